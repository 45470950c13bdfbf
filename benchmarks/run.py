"""Run the benchmarks side by side with the peers, write results/NAME.json, and draw the charts.

    python benchmarks/run.py [--only NAME ...] [--rounds 5] [--scratch build/bench]
    python benchmarks/run.py --draw         # only the charts, from the results that are there

The programs beside this one measure; here they are put together and the machine is described.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import host
import load
import plots
import shard

HERE = Path(__file__).parent
RESULTS = HERE / "results"
IMAGES = HERE.parent / "docs" / "images"
Measurement = Mapping[str, Any]


# Models are made by processes of their own: a child's peak memory counts what its parent held when it was started.
SMALLER = """
import sys, torch
from diffusers import UNet2DConditionModel
from sdxl_unet import SDXL
channels = int(sys.argv[2])
heads = tuple(max(1, channels * level // 64) for level in (1, 2, 4))
shape = {**SDXL, "block_out_channels": (channels, 2 * channels, 4 * channels), "attention_head_dim": heads}
UNet2DConditionModel(**shape).to(torch.float16).save_pretrained(sys.argv[1], max_shard_size="50GB")
"""


def unet(scratch: Path, name: str, max_size: str) -> Path:
    """A UNet of SDXL's size in files of ``max_size``, made once."""
    folder = scratch / name
    if not (folder / "config.json").exists():
        subprocess.run([sys.executable, HERE / "sdxl_unet.py", folder, "--max-size", max_size], check=True)
    return folder


def smaller_unet(scratch: Path, channels: int) -> Path:
    """A UNet of SDXL's shape with ``channels`` in place of 320: its size grows with their square."""
    folder = (scratch / f"unet-{channels}").resolve()
    if not (folder / "config.json").exists():
        subprocess.run([sys.executable, "-W", "ignore", "-c", SMALLER, folder, str(channels)], cwd=HERE, check=True)
    return folder


def run_load(scratch: Path, rounds: int) -> list[Measurement]:
    """From the start of a process to a loaded UNet of SDXL's size (benchmarks/load.py)."""
    ways = [way for way in load.WAYS if way not in load.EXTRA]
    sharded = unet(scratch, "unet", "2GB")
    found: list[Measurement] = []
    for case in ("same-warm", "same-cold", "fp32-warm", "bf16-warm"):
        for way, took in load.measure(case, sharded, rounds, ways, None).items():
            found.append(
                {
                    "case": case,
                    "way": way,
                    "seconds": [one.touched for one in took],
                    "cpu_seconds": [one.cpu for one in took],
                    "peak_bytes": [one.peak for one in took],
                    "size_bytes": None,
                }
            )
    return found


def run_shard(scratch: Path, rounds: int) -> list[Measurement]:
    """Cutting a UNet of SDXL's size, 5.1 GB in one file, into shards of 2 GB (benchmarks/shard.py)."""
    return _shard_ways(unet(scratch, "unet-single", "1TB"), scratch, rounds, "2GB-shards")


def run_shard_sizes(scratch: Path, rounds: int) -> list[Measurement]:
    """Cutting UNets of four sizes: how time and memory grow (benchmarks/shard.py)."""
    sources = [smaller_unet(scratch, channels) for channels in (32, 96, 160)]
    sources.append(unet(scratch, "unet-single", "1TB"))
    rows = [row for source in sources for row in _shard_ways(source, scratch, rounds, "seconds")]
    chosen = [row for row in rows if row["way"] in ("cp", "shardtool shard --no-fsync", "diffusers load + save")]
    return [*chosen, *({**row, "case": "memory", "seconds": None} for row in chosen)]


def run_shard_reflinks(scratch: Path, rounds: int) -> list[Measurement]:
    """The same on file systems that share blocks, mounted from files, against copies (benchmarks/shard.py; as root)."""
    source = unet(scratch, "unet-single", "1TB")
    found: list[Measurement] = []
    for kind in ("xfs", "btrfs"):
        turns, _ = shard.on_loop(kind, source, scratch.resolve(), rounds)
        found.extend(_shard_rows(kind, (source / shard.SINGLE).stat().st_size, turns))
    return found


def _shard_ways(source: Path, scratch: Path, rounds: int, case: str) -> list[Measurement]:
    out = scratch / "out"
    turns = shard.interleaved(shard.ways(source, out, diffusers=True), source, out, rounds)
    return _shard_rows(case, (source / shard.SINGLE).stat().st_size, turns)


def _shard_rows(case: str, size: int, turns: Mapping[str, Sequence[shard.Run]]) -> list[Measurement]:
    return [
        {
            "case": case,
            "way": way if way.startswith(("cp", "diffusers")) else f"shardtool {way}",
            "seconds": [run.wall for run in runs],
            "cpu_seconds": [run.cpu for run in runs],
            "peak_bytes": [round(run.peak * 2**20) for run in runs],
            "size_bytes": size,
        }
        for way, runs in turns.items()
    ]


def run_images(scratch: Path, rounds: int) -> list[Measurement]:
    """The embedded model, 30 steps: time to the first image, and sixteen images (benchmarks/generate.py)."""
    import generate  # not above: what it imports would count in the others' peaks

    turns: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            for kind in ("script", "one", "loop", "many"):
                (Path(folder) / kind).mkdir()
            for title, command in generate.commands(Path(folder)).items():
                turns.setdefault(title, []).append(generate.measure(command))
    return [_timed_row(*title.split(": ", 1), runs) for title, runs in turns.items()]


def run_verify(scratch: Path, rounds: int) -> list[Measurement]:
    """Checking a sharded UNet of SDXL's size: structure, fit, and all of its data (benchmarks/verify.py)."""
    import verify  # not above: numpy in this process would count in the others' peaks

    folder = unet(scratch, "unet", "2GB")
    commands = verify.commands(folder)
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            turns[name].append(verify.once(command))
    found = [_timed_row("commands", _ours(name), runs) for name, runs in turns.items()]
    checkpoint = verify.read_checkpoint(folder)
    workers = verify.default_workers()
    data: dict[str, list[tuple[float, float]]] = {"reading all data": [], "verify --deep, its scan": []}
    for _ in range(rounds):
        data["reading all data"].append(verify.timed(lambda: verify.read_all(checkpoint, workers)))
        data["verify --deep, its scan"].append(verify.timed(lambda: verify.scan(checkpoint, workers=workers)))
    return [*found, *(_timed_row("data", _ours(name), runs) for name, runs in data.items())]


def _ours(way: str) -> str:
    return f"shardtool {way}" if way.startswith("verify") else way


def _timed_row(case: str, way: str, runs: Sequence[tuple[float, float]]) -> Measurement:
    return {
        "case": case.replace(" ", "-"),
        "way": way,
        "seconds": [wall for wall, _ in runs],
        "cpu_seconds": [cpu for _, cpu in runs],
        "peak_bytes": None,
        "size_bytes": None,
    }


BENCHMARKS: Mapping[str, Callable[[Path, int], list[Measurement]]] = {
    "shard": run_shard,
    "shard-sizes": run_shard_sizes,
    "shard-reflinks": run_shard_reflinks,
    "load": run_load,
    "verify": run_verify,
    "images": run_images,
}


def write_result(name: str, scratch: Path, rounds: int) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    described = host.machine(scratch)
    function = BENCHMARKS[name]
    result = {
        "benchmark": name,
        "title": (function.__doc__ or "").strip(),
        "machine": described,
        "rounds": rounds,
        "measurements": function(scratch, rounds),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def draw() -> list[Path]:
    """A chart for each case of each result: bars, or lines where the size changes within a case."""
    drawn = []
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        for case in dict.fromkeys(one["case"] for one in result["measurements"]):
            rows = [one for one in result["measurements"] if one["case"] == case]
            chart = IMAGES / f"{result['benchmark']}-{case}.svg"
            chart.write_text(_chart(f"{result['benchmark']}: {case}", rows), encoding="utf-8")
            drawn.append(chart)
    return drawn


def _chart(title: str, rows: Sequence[Measurement]) -> str:
    sizes = {row["size_bytes"] for row in rows}
    if len(sizes) > 1:
        key, unit, scale = ("seconds", "seconds", 1.0)
        if rows[0]["seconds"] is None:
            key, unit, scale = ("peak_bytes", "MiB", 2.0**20)
        series: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            point = (row["size_bytes"] / 1e9, statistics.median(row[key]) / scale)
            series.setdefault(row["way"], []).append(point)
        return plots.lines(title, "size, GB", unit, series)
    bars = [
        plots.Bar(row["way"], statistics.median(row["seconds"]), min(row["seconds"]), max(row["seconds"]))
        for row in rows
    ]
    return plots.bars(title, "seconds", bars)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=Path("build/bench"))
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    if not options.draw:
        chosen = options.only or [name for name in BENCHMARKS if name != "shard-reflinks" or os.geteuid() == 0]
        for name in chosen:
            print(f"{name}: {BENCHMARKS[name].__doc__}", flush=True)
            write_result(name, options.scratch, options.rounds)
    for chart in draw():
        print(chart)


if __name__ == "__main__":
    main()
