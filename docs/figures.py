"""The recorded measurements of ``benchmarks/results/`` as tables and charts in Markdown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NONE_YET = (
    "Nothing is recorded yet. `make bench` measures on a quiet machine and `python docs/generate.py` puts it here."
)
ORDER = ("shard", "shard-reflinks", "shard-sizes", "load", "verify", "images")

WORDS = {
    "shard: 2GB-shards": "5.1 GB in one file into shards of 2 GB, ext4",
    "shard-reflinks: xfs": "the same on XFS, which shares blocks",
    "shard-reflinks: btrfs": "the same on btrfs, which shares blocks",
    "load: same-warm": "SDXL's UNet loaded, from the start of the process: fp16 as stored",
    "load: same-cold": "the same, with nothing in the page cache",
    "load: fp32-warm": "the same, fp16 cast to fp32",
    "load: bf16-warm": "the same, fp16 cast to bf16",
    "verify: commands": "checks of that UNet, and what imports take",
    "verify: data": "all of its data",
    "images: one-image": "the first image of the embedded model, 30 steps",
    "images: sixteen": "sixteen images",
}
"""What a case is called in the README."""

Result = Mapping[str, Any]


def recorded() -> list[Result]:
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")}
    return [found[name] for name in sorted(found, key=lambda name: (*ORDER, name).index(name))]


def sections() -> Iterator[str]:
    """One for each result: what was measured, on what, a chart and a table for each case."""
    before = ""
    for result in recorded():
        yield f"## {result['benchmark']}"
        machine = describe(result["machine"])
        where = "The same machine" if machine == before else machine
        load = result["machine"]["load_average_before"]
        yield f"{result['title']} {result['rounds']} rounds; medians. {where}; load average before: {load}."
        before = machine
        for case in dict.fromkeys(one["case"] for one in result["measurements"]):
            yield f"![{result['benchmark']}, {case}](images/{result['benchmark']}-{case}.svg)"
        yield table(result)


def describe(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB, "
        f"{machine['file_system']}, {machine['system']}, Python {machine['python']}, {versions}"
    )


def table(result: Result) -> str:
    rows = ["| case | way | size | seconds | range | CPU seconds | peak memory |", "|---|---|---:|---:|---:|---:|---:|"]
    for one in result["measurements"]:
        if one["seconds"] is None:
            continue  # there for the chart alone, which is of memory
        size = "" if one["size_bytes"] is None else f"{one['size_bytes'] / 1e9:.2f} GB"
        seconds = one["seconds"]
        times = (
            "| |" if seconds is None else f"{statistics.median(seconds):.2f} | {min(seconds):.2f}–{max(seconds):.2f}"
        )
        cpu = f"{statistics.median(one['cpu_seconds']):.2f}"
        peak = "" if one["peak_bytes"] is None else f"{statistics.median(one['peak_bytes']) / 2**20:,.0f} MiB"
        rows.append(f"| {one['case']} | {one['way']} | {size} | {times} | {cpu} | {peak} |")
    return "\n".join(rows)


def summary() -> str:
    """For the README: the medians of the ways in each case, shardtool's beside the others'."""
    rows = ["| | shardtool | others |", "|---|---|---|"]
    for result in recorded():
        for case in dict.fromkeys(one["case"] for one in result["measurements"]):
            ways = [one for one in result["measurements"] if one["case"] == case and one["seconds"]]
            name = f"{result['benchmark']}: {case}"
            if len({one["size_bytes"] for one in ways}) == 1:
                ours = [one for one in ways if one["way"].startswith("shardtool")]
                others = [one for one in ways if one not in ours]
                rows.append(f"| {WORDS.get(name, name)} | {_listed(ours)} | {_listed(others)} |")
    return "\n".join(rows) if len(rows) > 2 else NONE_YET


def _listed(ways: list[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{one['way'].removeprefix('shardtool ')} {statistics.median(one['seconds']):.2f} s" for one in ways
    )
