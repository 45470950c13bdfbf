"""From the start of a process to a loaded UNet of SDXL's size: shardtool against diffusers and other readers.

    python benchmarks/sdxl_unet.py /tmp/bench-unet
    python benchmarks/load.py /tmp/bench-unet --rounds 5 [--case same-warm ...] [--extra /tmp/bench-extra]

Every way is a script of its own in a process of its own; within a round they run one after the other, in an order that
turns with the round, so that a busy machine hits all alike. Printed are the medians over the rounds of wall and CPU
seconds of the whole process, and their ratios to diffusers' own script **of the same round**, with the range.

Cases: the dtype stays or is cast (``same``, ``fp32``, ``bf16``), with the weights in the page cache or evicted from it
(``warm``, ``cold``; the libraries stay cached). After the load each script reads one number of every page of every
tensor ("touched"), so that a map of a file that was never read is not called loaded.

``--extra`` is a folder with fastsafetensors and runai-model-streamer (``pip install --target``); without it they are
left out. Their tensors are copied out of the reader's buffer, which must be freed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from host import environment, settle_memory

DTYPES = {"same": "float16", "fp32": "float32", "bf16": "bfloat16"}
SHORT = {"same": "fp16", "fp32": "fp32", "bf16": "bf16"}

END = """
loaded = time.monotonic()
import resource
seen = sum(float(t.detach().reshape(-1)[:: max(1, 4096 // t.element_size())].float().sum()) for t in model.parameters())
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
sizes = {key: int(status[name].split()[0]) * 1024 for key, name in (("anonymous", "RssAnon"), ("peak", "VmHWM"))}
print(json.dumps({"loaded": loaded, "touched": time.monotonic(), "seen": seen, **sizes}))
"""
BUILD = """
import torch, diffusers
with torch.device("meta"):
    model = diffusers.UNet2DConditionModel.from_config(diffusers.UNet2DConditionModel.load_config(folder))
"""
WAYS = {
    "diffusers": """
import torch
from diffusers import UNet2DConditionModel
model = UNet2DConditionModel.from_pretrained(folder, dtype=getattr(torch, dtype))
""",
    "diffusers, parallel": """
import os
os.environ["HF_ENABLE_PARALLEL_LOADING"] = "yes"
import torch
from diffusers import UNet2DConditionModel
model = UNet2DConditionModel.from_pretrained(folder, dtype=getattr(torch, dtype))
""",
    "shardtool": """
import shardtool
model = shardtool.load_component(folder, device="cpu", dtype=short).model
""",
    "fastsafetensors": BUILD
    + """
from fastsafetensors import SafeTensorsFileLoader, SingleGroup
import glob
loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
loader.add_filenames({0: sorted(glob.glob(folder + "/*.safetensors"))})
held = loader.copy_files_to_device()
state = {key: held.get_tensor(key).to(getattr(torch, dtype), copy=True) for key in loader.get_keys()}
held.close(); loader.close()
model.load_state_dict(state, strict=True, assign=True)
""",
    "runai-model-streamer": BUILD
    + """
from runai_model_streamer import SafetensorsStreamer
import glob
state = {}
with SafetensorsStreamer() as streamer:
    streamer.stream_files(sorted(glob.glob(folder + "/*.safetensors")))
    for key, tensor in streamer.get_tensors():
        state[key] = tensor.to(getattr(torch, dtype), copy=True)
model.load_state_dict(state, strict=True, assign=True)
""",
}
EXTRA = ("fastsafetensors", "runai-model-streamer")


@dataclass(frozen=True)
class Took:
    """Seconds from the start of the process, CPU seconds of all of it, and bytes."""

    loaded: float
    touched: float
    cpu: float
    anonymous: int
    peak: int
    seen: float


def run(way: str, folder: Path, dtype: str, extra: Path | None) -> Took:
    head = f"import json, time\nfolder, dtype, short = {str(folder)!r}, {DTYPES[dtype]!r}, {SHORT[dtype]!r}\n"
    paths = [str(Path(__file__).parent.parent), *([str(extra)] if extra else [])]
    own = environment(PYTHONPATH=os.pathsep.join(paths), TQDM_DISABLE="1")
    began = time.monotonic()
    command = [sys.executable, "-W", "ignore", "-c", head + WAYS[way] + END]
    process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{way} failed with {process.returncode}")
    told = json.loads(text.strip().splitlines()[-1])
    cpu = usage.ru_utime + usage.ru_stime
    loaded, touched = told["loaded"] - began, told["touched"] - began
    return Took(loaded, touched, cpu, told["anonymous"], told["peak"], told["seen"])


def evict(folder: Path) -> None:
    os.sync()
    for path in folder.glob("*.safetensors"):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            while file.read(2**24):
                pass


def measure(case: str, folder: Path, rounds: int, ways: list[str], extra: Path | None) -> dict[str, list[Took]]:
    dtype, state = case.split("-")
    largest = 5 * sum(path.stat().st_size for path in folder.glob("*.safetensors")) // 2  # twice, in fp32, and some
    found: dict[str, list[Took]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            settle_memory(largest)
            evict(folder) if state == "cold" else warm(folder)
            found[way].append(run(way, folder, dtype, extra))
            print(f"  {case}, round {number + 1}: {way}: {found[way][-1]}", file=sys.stderr, flush=True)
        seen = {round(found[way][-1].seen, 1) for way in ways}
        assert len(seen) == 1, f"the ways loaded different numbers: {seen}"
    return found


def show(case: str, found: dict[str, list[Took]]) -> None:
    print(f"\n{case}, {len(found['diffusers'])} rounds")
    print(
        f"{'way':22} {'loaded':>8} {'touched':>8} {'CPU':>7}   {'touched, ratio':>19} {'CPU, ratio':>19}  anon, peak GB"
    )
    for way, took in found.items():
        wall = [mine.touched / theirs.touched for mine, theirs in zip(took, found["diffusers"], strict=True)]
        cpu = [mine.cpu / theirs.cpu for mine, theirs in zip(took, found["diffusers"], strict=True)]
        middle = statistics.median
        print(
            f"{way:22} {middle(t.loaded for t in took):7.2f}s {middle(t.touched for t in took):7.2f}s "
            f"{middle(t.cpu for t in took):6.2f}s   {middle(wall):6.2f} [{min(wall):.2f}..{max(wall):.2f}]"
            f"    {middle(cpu):6.2f} [{min(cpu):.2f}..{max(cpu):.2f}]"
            f"   {max(t.anonymous for t in took) / 1e9:5.2f} {max(t.peak for t in took) / 1e9:5.2f}"
        )


def main() -> None:
    cases = [f"{dtype}-{state}" for dtype in DTYPES for state in ("warm", "cold")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", choices=cases)
    parser.add_argument("--way", action="append", choices=list(WAYS))
    parser.add_argument("--extra", type=Path)
    options = parser.parse_args()
    ways = options.way or [way for way in WAYS if options.extra or way not in EXTRA]
    ways = ["diffusers", *(way for way in ways if way != "diffusers")]
    where = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{where}, load average {os.getloadavg()[0]:.1f}")
    for case in options.case or ["same-warm", "same-cold", "fp32-warm", "bf16-warm"]:
        show(case, measure(case, options.folder, options.rounds, ways, options.extra))


if __name__ == "__main__":
    main()
