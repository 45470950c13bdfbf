"""What ``generate`` costs beside plain diffusers: time to the first image, and sixteen images.

    python benchmarks/generate.py [--rounds 5] [--json FILE]

Whole processes, start included, one after the other within a round, so that a busy machine hits all alike; printed are
medians of wall and CPU seconds over the rounds, and the ratio of the CPU seconds to the peer's. "loop" is the tightest
loop written by hand that makes the same sixteen files: one load, the prompt encoded once, a generator for each image.
The pixels of each pair are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from host import environment
from PIL import Image

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "shardtool" / "demo"
STEPS, SEED, IMAGES = 30, 7, 16

SCRIPT = f"""
import sys, torch
from diffusers import StableDiffusionXLPipeline
pipe = StableDiffusionXLPipeline.from_pretrained(sys.argv[1], dtype=torch.float32)
generator = torch.Generator("cpu").manual_seed({SEED})
pipe("dog", num_inference_steps={STEPS}, generator=generator).images[0].save(sys.argv[2] + "/dog-{SEED}.png")
"""

LOOP = f"""
import sys, torch
from diffusers import StableDiffusionXLPipeline
pipe = StableDiffusionXLPipeline.from_pretrained(sys.argv[1], dtype=torch.float32)
pipe.set_progress_bar_config(disable=True)
with torch.inference_mode():
    names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
    embeddings = dict(zip(names, pipe.encode_prompt("dog")))
    for seed in range({SEED}, {SEED + IMAGES}):
        generator = torch.Generator("cpu").manual_seed(seed)
        image = pipe(num_inference_steps={STEPS}, generator=generator, **embeddings).images[0]
        image.save(f"{{sys.argv[2]}}/dog-{{seed}}.png")
"""


def commands(folder: Path) -> dict[str, list[str]]:
    ours = [sys.executable, "-m", "shardtool", "generate", "dog", "--steps", str(STEPS), "--seed", str(SEED)]
    ours += ["--device", "cpu", "-q"]
    return {
        "one image: plain diffusers": [sys.executable, "-c", SCRIPT, str(DEMO), str(folder / "script")],
        "one image: shardtool": [*ours, "-o", f"{folder}/one/"],
        "sixteen: loop": [sys.executable, "-c", LOOP, str(DEMO), str(folder / "loop")],
        "sixteen: shardtool": [*ours, "--count", str(IMAGES), "-o", f"{folder}/many/"],
    }


PAIRS = {
    "one image: shardtool": ("one image: plain diffusers", "script", "one"),
    "sixteen: shardtool": ("sixteen: loop", "loop", "many"),
}


def measure(command: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a process and its threads."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    own = environment(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT))
    subprocess.run(command, check=True, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def same_pixels(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.glob("*.png"))
    if not names or names != sorted(path.name for path in other.glob("*.png")):
        return False
    pairs = [(Image.open(one / name), Image.open(other / name)) for name in names]
    return all(a.convert("RGB").tobytes() == b.convert("RGB").tobytes() for a, b in pairs)


def run(rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[tuple[float, float]]] = {}
    equal: dict[str, bool] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for kind in ("script", "one", "loop", "many"):
                (folder / kind).mkdir()
            for title, command in commands(folder).items():
                seconds.setdefault(title, []).append(measure(command))
            for title, (_, theirs, ours) in PAIRS.items():
                equal[title] = equal.get(title, True) and same_pixels(folder / theirs, folder / ours)
    return {
        title: {
            "wall_s": statistics.median(wall for wall, _ in taken),
            "cpu_s": statistics.median(cpu for _, cpu in taken),
            "cpu_range_s": [min(cpu for _, cpu in taken), max(cpu for _, cpu in taken)],
            "same_pixels": equal.get(title),
        }
        for title, taken in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = run(options.rounds)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, medians of {options.rounds} rounds")
    for title, figures in found.items():
        line = f"{title:28} {figures['wall_s']:6.2f} s wall {figures['cpu_s']:6.2f} s CPU"
        if title in PAIRS:
            peer = found[PAIRS[title][0]]
            line += f"  {figures['wall_s'] / peer['wall_s']:.2f} × wall  {figures['cpu_s'] / peer['cpu_s']:.2f} × CPU"
            line += f"  same pixels: {figures['same_pixels']}"
        print(line)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
