"""On a machine with a CUDA GPU: do all placements give one picture, is the plan's memory right, how fast is a load?

    python benchmarks/gpu.py MODEL [--size 512 --size 1024] [--images 1 --images 2] [--unet /tmp/bench-unet] > gpu.json

``MODEL`` is a pipeline folder of the SDXL family (``shardtool/demo`` for a quick look). For each offload mode, in a
process of its own:

1. the picture is compared with the one from the CPU in fp32 (largest difference of a value between 0 and 1);
2. the peak that CUDA's allocator counted is compared with what the placement had planned. The figures in
   ``shardtool/activations.py`` are right where ``measured / planned`` is between 0.85 and 1.15.

With ``--unet``, a folder made by ``benchmarks/sdxl_unet.py``, the time from the start of the process to the UNet on the
GPU is compared with diffusers' own (``from_pretrained(...).to("cuda")``), interleaved, the weights in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OFFLOADS = ("none", "model", "group", "sequential")

PICTURE = """
import json, sys
from pathlib import Path
import torch
from shardtool.activations import Run
from shardtool.pipeline import build_pipeline

model, device, dtype, offload, size, images, out = json.loads(sys.argv[1])
built = build_pipeline(Path(model), device=device, dtype=dtype, offload=offload, run=Run(size, size, images))
generators = [torch.Generator().manual_seed(seed) for seed in range(images)]
if device != "cpu":
    torch.cuda.reset_peak_memory_stats()
made = built.pipe("a dog", num_inference_steps=8, width=size, height=size, num_images_per_prompt=images,
                  generator=generators, output_type="pt").images
torch.save(made.float().cpu(), out)
print(json.dumps({"planned": built.placement.device_bytes,
                  "measured": 0 if device == "cpu" else torch.cuda.max_memory_allocated()}))
"""
LOADS = {
    "diffusers": """
import torch
from diffusers import UNet2DConditionModel
model = UNet2DConditionModel.from_pretrained(folder, dtype=torch.float16).to("cuda")
""",
    "shardtool": """
import shardtool
model = shardtool.load_component(folder, device="cuda", dtype="fp16").model
""",
}
END = """
import torch, time
torch.cuda.synchronize()
print(time.monotonic())
"""


def run(program: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def picture(out: Path, *settings: Any) -> dict[str, int]:
    told: dict[str, int] = json.loads(run(PICTURE, json.dumps([*settings, str(out)])).splitlines()[-1])
    return told


def compare_pictures(model: str, size: int, images: int, folder: Path) -> list[dict[str, Any]]:
    import torch

    picture(folder / "cpu.pt", model, "cpu", "fp32", "auto", size, images)
    reference = torch.load(folder / "cpu.pt")
    rows = []
    for dtype in ("fp32", "fp16"):
        for offload in OFFLOADS:
            told = picture(folder / "gpu.pt", model, "cuda:0", dtype, offload, size, images)
            difference = float((torch.load(folder / "gpu.pt") - reference).abs().max())
            rows.append(
                {"size": size, "images": images, "dtype": dtype, "offload": offload, "largest_difference": difference}
                | told
                | {"measured_by_planned": told["measured"] / told["planned"]}
            )
            print(rows[-1], file=sys.stderr)
    return rows


def compare_loads(folder: Path, rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {way: [] for way in LOADS}
    for number in range(rounds + 1):
        for way in sorted(LOADS, reverse=bool(number % 2)):
            began = time.monotonic()
            ended = float(run(f"folder = {str(folder)!r}\n" + LOADS[way] + END).splitlines()[-1])
            if number:  # the first round fills the page cache
                seconds[way].append(ended - began)
    for way, taken in seconds.items():
        print(f"{way}: {statistics.median(taken):.2f} s, {min(taken):.2f} to {max(taken):.2f}", file=sys.stderr)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--images", type=int, action="append")
    parser.add_argument("--unet", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/shardtool-gpu"))  # noqa: S108 (pictures to compare)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"pictures": []}
    for size in options.size or [64]:
        for images in options.images or [1]:
            found["pictures"] += compare_pictures(options.model, size, images, options.folder)
    if options.unet:
        found["loads"] = compare_loads(options.unet, options.rounds)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
