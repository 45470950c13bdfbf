"""Write a UNet checkpoint of the real size and shape of SDXL's, with cheap random weights: 5.1 GB in fp16.

    python benchmarks/sdxl_unet.py OUT [--max-size 2GB] [--dtype F16]

Weights are streamed: memory stays small. The same block of random numbers is repeated, which no reader can notice.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from diffusers import UNet2DConditionModel

from shardtool.checkpoint.header import build_header
from shardtool.checkpoint.index import render_index
from shardtool.checkpoint.names import WeightsName
from shardtool.sizes import parse_size

SDXL: dict[str, Any] = {
    "sample_size": 128,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (320, 640, 1280),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
BITS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}


def write_unet(folder: Path, *, max_size: int, dtype: str = "F16") -> int:
    """Write config, shards and index into ``folder``; returns the bytes of tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.device("meta"):
        model = UNet2DConditionModel(**SDXL)
    model.save_config(folder)
    size = BITS[dtype].itemsize
    shards: list[list[tuple[str, str, list[int], int]]] = [[]]
    room = max_size
    for name, tensor in model.state_dict().items():
        nbytes = tensor.numel() * size
        if nbytes > room and shards[-1]:
            shards.append([])
            room = max_size
        room -= nbytes + 200
        shards[-1].append((name, dtype, list(tensor.shape), nbytes))
    block = bytes(
        (torch.randn(8_000_000 // size, generator=torch.Generator().manual_seed(0)) * 0.02)
        .to(BITS[dtype])
        .view(torch.uint8)
        .numpy()
    )
    names = WeightsName("diffusion_pytorch_model")
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        filename = names.single if len(shards) == 1 else names.shard(number, len(shards))
        with (folder / filename).open("wb") as out:
            out.write(build_header(shard, {"format": "pt"}))
            left = sum(entry[3] for entry in shard)
            while left:
                left -= out.write(block[: min(left, len(block))])
        weight_map.update({entry[0]: filename for entry in shard})
    total = sum(entry[3] for shard in shards for entry in shard)
    if len(shards) > 1:
        (folder / names.index).write_bytes(render_index(weight_map, total_size=total, metadata={}))
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--max-size", default="2GB")
    parser.add_argument("--dtype", default="F16", choices=sorted(BITS))
    options = parser.parse_args()
    written = write_unet(options.out, max_size=parse_size(options.max_size), dtype=options.dtype)
    print(json.dumps({"out": str(options.out), "tensor_bytes": written}))
