"""shardtool from Python: shard the embedded model, look at it, load its UNet strictly, make a picture with it.

Run it as ``python examples/python_api.py [OUT]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import shardtool
from shardtool.checkpoint.inventory import examine, read_checkpoint
from shardtool.checkpoint.plan import Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.events import Event, Finished
from shardtool.obtain import local_path
from shardtool.source import parse_source


def main(out: Path) -> None:
    # Decide, then act: a job is a plain value.
    source = local_path(parse_source("demo"))
    job = plan_job(source, Choice(), Shape(Split(limit=1_000_000)))
    written = write_job(job, out / "sharded", Manner(overwrite=True), on_event=tell)
    print(f"{sum(len(output.files) for output in job.outputs)} files, {sum(written.moved.values()):,} bytes")

    # Headers only, no torch: what is there, and what is wrong with it.
    unet = read_checkpoint(out / "sharded" / "unet")
    print(f"{len(unet.tensors)} tensors in {len(unet.files)} shards; first: {next(iter(unet.tensors))}")
    assert examine(out / "sharded" / "unet").problems == ()

    # Strict, no hooks, nothing on meta; an error names the file and the tensor.
    loaded = shardtool.load_component(out / "sharded" / "unet", device="cpu")
    print(f"{loaded.report.class_name} on {loaded.placement.device} in {loaded.placement.dtype}")
    try:
        shardtool.load_component(out / "sharded" / "no-such-folder")
    except shardtool.ShardtoolError as error:
        print(f"exit code {error.exit_code}, {error.code}: {error.hint}")

    # A diffusers pipeline, to be used as any other.
    pipe = shardtool.build_pipeline("demo", unet=loaded.model, device="cpu").pipe
    generator = torch.Generator("cpu").manual_seed(7)
    image = pipe("dog", num_inference_steps=20, guidance_scale=5.0, generator=generator).images[0]
    image.save(out / "dog.png")
    print(out / "dog.png")


def tell(event: Event) -> None:
    """What a listener may do with progress."""
    if isinstance(event, Finished):
        print(f"{event.task}: done")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/python-api")
    folder.mkdir(parents=True, exist_ok=True)
    main(folder)
