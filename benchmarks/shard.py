"""Time `shardtool shard` on a UNet of SDXL's real size against cp, cp with sync, and diffusers' load and save.

    python benchmarks/shard.py [FOLDER] [--rounds 5] [--skip-diffusers] [--loop xfs btrfs] [--sparse 50GB]

Every round runs every way once, in turn, on the same warm source; the figures are medians over the rounds, and ratios
are medians of the rounds' own ratios. Whole processes are timed, start-up included. What a way wrote is removed, the
disk synced, and memory for the next copy taken from the machine's host and freed, before the next one starts.
`--loop` needs root: it makes a filesystem in a file in FOLDER, mounts it,
and compares with a copy that may not share blocks (cp --reflink=never), as cp would share them too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from host import environment, settle_memory

from shardtool.checkpoint.header import build_header
from shardtool.sizes import format_size, parse_size

SINGLE = "diffusion_pytorch_model.safetensors"
DIFFUSERS = """
import sys
from diffusers import UNet2DConditionModel
import torch
model = UNet2DConditionModel.from_pretrained(sys.argv[1], torch_dtype=torch.float16)
model.save_pretrained(sys.argv[2], max_shard_size="2GB")
"""


@dataclass(frozen=True)
class Run:
    """One process: seconds on the clock and of the processor, and its peak memory in MiB."""

    wall: float
    cpu: float
    peak: float


def measure(command: list[str]) -> Run:
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment(OMP_NUM_THREADS="1"))
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{' '.join(command)}: failed ({status})")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def shardtool(*argv: str) -> list[str]:
    return [sys.executable, "-m", "shardtool", *argv, "-q"]


def ways(source: Path, out: Path, *, diffusers: bool) -> dict[str, list[str]]:
    """Name → command; each makes ``out`` from the component folder ``source``."""
    single = str(source / SINGLE)
    shard = shardtool("shard", str(source), "--max-size", "2GB", "-o", str(out))
    found = {
        "cp": ["cp", single, str(out)],
        "shard --no-fsync": [*shard, "--no-fsync"],
        "cp, sync": ["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", single, str(out)],
        "shard": shard,
        "shard --no-fsync --digests": [*shard, "--no-fsync", "--digests"],
    }
    if diffusers:
        found["diffusers load + save"] = [sys.executable, "-c", DIFFUSERS, str(source), str(out)]
    return found


RATIOS = (
    ("shard", "cp, sync", 1.10),
    ("shard --no-fsync", "cp", 1.10),
    ("shard --no-fsync", "diffusers load + save", 0.40),
)


def interleaved(commands: dict[str, list[str]], source: Path, out: Path, rounds: int) -> dict[str, list[Run]]:
    """Every command ``rounds`` times, in turns; each finds ``source`` in the page cache, and memory for a copy."""
    found: dict[str, list[Run]] = {name: [] for name in commands}
    single = source / SINGLE
    for number in range(rounds):
        order = list(commands) if number % 2 == 0 else list(reversed(commands))
        for name in order:
            remove(out)
            os.sync()
            settle_memory(single.stat().st_size * 3 // 2)
            subprocess.run(["cat", str(single)], stdout=subprocess.DEVNULL, check=True)
            found[name].append(measure(commands[name]))
            print(f"  round {number + 1}: {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    remove(out)
    return found


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def median(values: Iterator[float]) -> float:
    return statistics.median(values)


def report(found: dict[str, list[Run]], ratios: tuple[tuple[str, str, float], ...]) -> None:
    print(f"{'':28}  wall s   CPU s  peak MiB")
    for name, runs in found.items():
        figures = [median(getattr(run, field) for run in runs) for field in ("wall", "cpu", "peak")]
        print(f"{name:28}  {figures[0]:6.2f}  {figures[1]:6.2f}  {figures[2]:8.0f}")
    for one, other, limit in ratios:
        if one in found and other in found:
            pairs = list(zip(found[one], found[other], strict=True))
            wall = [a.wall / b.wall for a, b in pairs]
            cpu = median(a.cpu / b.cpu for a, b in pairs)
            spread = f"{min(wall):.2f} to {max(wall):.2f}"
            print(f"{one} / {other}: {median(iter(wall)):.3f} wall ({spread}), {cpu:.3f} CPU; to be ≤ {limit}")


@contextmanager
def mounted(kind: str, folder: Path, size: int) -> Iterator[Path]:
    image, place = folder / f"{kind}.image", folder / f"{kind}.mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
        image.unlink()
        place.rmdir()


def on_loop(kind: str, source: Path, folder: Path, rounds: int) -> tuple[dict[str, list[Run]], int]:
    """Sharing blocks against copying them, on a filesystem with reflinks; and the bytes of blocks that shards took."""
    with mounted(kind, folder, 13 << 30) as place:
        copy = place / "unet"
        shutil.copytree(source, copy)
        out = place / "out"
        single = str(copy / SINGLE)
        shard = shardtool("shard", str(copy), "--max-size", "2GB", "-o", str(out))
        copied = 'cp --reflink=never "$1" "$2" && sync "$2"'
        commands = {
            "cp": ["cp", "--reflink=never", single, str(out)],
            "shard --no-fsync": [*shard, "--no-fsync"],
            "cp, sync": ["sh", "-c", copied, "sh", single, str(out)],
            "shard": shard,
        }
        found = interleaved(commands, copy, out, rounds)
        os.sync()
        before = used(place)
        measure(commands["shard"])
        os.sync()
        return found, used(place) - before


def used(place: Path) -> int:
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def sparse(folder: Path, size: int) -> None:
    """Memory must not grow with the checkpoint: one of holes, on a filesystem that shares them."""
    with mounted("xfs", folder, 8 << 30) as place:
        tensors = 200
        header = build_header(
            [(f"t{n}", "U8", (size // tensors,), size // tensors) for n in range(tensors)], {"format": "pt"}
        )
        with (place / "x.safetensors").open("wb") as file:
            file.write(header)
            file.truncate(len(header) + size // tensors * tensors)
        run = measure(shardtool("shard", str(place / "x.safetensors"), "--max-size", "5GB", "-o", str(place / "out")))
        print(f"\n{format_size(size)} of holes on XFS: {run.wall:.2f} s, {run.cpu:.2f} s CPU, peak {run.peak:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="on the disk to be measured; 16 GB free")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-diffusers", action="store_true")
    parser.add_argument("--skip-disk", action="store_true", help="only --loop and --sparse")
    parser.add_argument("--loop", nargs="*", default=[], metavar="KIND")
    parser.add_argument("--sparse", type=parse_size, default=0, metavar="SIZE")
    parser.add_argument("--source", type=Path, help="a component folder with one file, instead of a made one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="shard-benchmark-") as name:
        folder = Path(name)
        source = options.source or made(folder / "unet")
        print(json.dumps({"bytes": (source / SINGLE).stat().st_size, "rounds": options.rounds}))
        if not options.skip_disk:
            out = folder / "out"
            commands = ways(source, out, diffusers=not options.skip_diffusers)
            report(interleaved(commands, source, out, options.rounds), RATIOS)
        for kind in options.loop:
            found, blocks = on_loop(kind, source, folder, options.rounds)
            print(f"\n{kind}, mounted from a file")
            report(found, (("shard", "cp, sync", 0.05), ("shard --no-fsync", "cp", 0.05)))
            print(f"blocks used by the shards: {format_size(blocks)}")
        if options.sparse:
            sparse(folder, options.sparse)


def made(folder: Path) -> Path:
    """By a process of its own: torch in this one would count in every command's peak."""
    script = Path(__file__).parent / "sdxl_unet.py"
    subprocess.run([sys.executable, str(script), str(folder), "--max-size", "1TB"], check=True, stdout=sys.stderr)
    return folder


if __name__ == "__main__":
    main()
