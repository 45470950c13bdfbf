"""The table of docs/placement.md, from the function that decides: request × machine → decision."""

from __future__ import annotations

from shardtool.devices import Accelerator, Inventory
from shardtool.errors import ShardtoolError
from shardtool.needs import ComponentNeeds, Needs
from shardtool.placement import Request, plan_placement

GB = 10**9


def gpu(index: int, memory: int, *, bf16: bool = True) -> Accelerator:
    return Accelerator("cuda", index, "GPU", memory * GB, memory * GB, bf16)


MACHINES: dict[str, Inventory] = {
    "no accelerator": Inventory((), 64 * GB, 60 * GB),
    "no accelerator, CPU with bf16": Inventory((), 64 * GB, 60 * GB, cpu_bf16=True),
    "no accelerator, 8 GB": Inventory((), 8 * GB, 6 * GB),
    "one GPU, 24 GB": Inventory((gpu(0, 24),), 64 * GB, 60 * GB),
    "one GPU, 8 GB": Inventory((gpu(0, 8),), 64 * GB, 60 * GB),
    "one GPU, 6 GB": Inventory((gpu(0, 6),), 64 * GB, 60 * GB),
    "one GPU, 4 GB": Inventory((gpu(0, 4),), 64 * GB, 60 * GB),
    "one GPU without bf16": Inventory((gpu(0, 24, bf16=False),), 64 * GB, 60 * GB),
    "two GPUs": Inventory((gpu(0, 24), gpu(1, 24)), 64 * GB, 60 * GB),
    "two GPUs, process 1 of a launch": Inventory((gpu(0, 24), gpu(1, 24)), 64 * GB, 60 * GB, local_rank=1),
    "eight GPUs": Inventory(tuple(gpu(index, 80) for index in range(8)), 512 * GB, 500 * GB),
    "Mac, 32 GB": Inventory((Accelerator("mps", 0, "Apple GPU", 24 * GB, 20 * GB),), 32 * GB, 24 * GB),
    "Intel GPU, 16 GB": Inventory((Accelerator("xpu", 0, "Arc", 16 * GB, 15 * GB),), 64 * GB, 60 * GB),
}
REQUESTS: tuple[Request, ...] = (
    Request(),
    Request("cpu"),
    Request("cuda"),
    Request("cuda:1"),
    Request("mps"),
    Request("xpu"),
    Request(dtype="fp32"),
    Request(dtype="bf16"),
    Request(offload="none"),
    Request(offload="model"),
    Request(offload="sequential"),
)
MILLION = 10**6
SDXL = {
    # numbers, largest group, largest layer, numbers of a run at 1024 × 1024
    "text_encoder": (123 * MILLION, 123 * MILLION, 38 * MILLION, 13 * MILLION),
    "text_encoder_2": (695 * MILLION, 695 * MILLION, 63 * MILLION, 21 * MILLION),
    "unet": (2567 * MILLION, 1100 * MILLION, 13 * MILLION, 168 * MILLION),
    "vae": (84 * MILLION, 84 * MILLION, 5 * MILLION, 1074 * MILLION),
}
"""Rounded from the real model; a run is one picture with guidance."""


def needs(dtype: str) -> Needs:
    size = {"F16": 2, "BF16": 2, "F32": 4}[dtype]
    return Needs(
        tuple(
            ComponentNeeds(
                name,
                numbers,
                {dtype: numbers * size},
                largest_group=group,
                largest_layer=layer,
                activations=run,
                activations_fp32=name == "vae",
            )
            for name, (numbers, group, layer, run) in SDXL.items()
        )
    )


def decision(request: Request, inventory: Inventory, dtype: str = "F16") -> str:
    """What is decided, in one cell."""
    try:
        placement = plan_placement(request, inventory, needs(dtype))
    except ShardtoolError as error:
        return f"refused: {error.code} ({error.exit_code})"
    offload = "" if placement.offload == "none" else f", offload {placement.offload}"
    return f"{placement.device}, {placement.dtype}{offload}"


def typed(request: Request) -> str:
    words = [
        f"--{name} {value}"
        for name, value in (("device", request.device), ("dtype", request.dtype), ("offload", request.offload))
        if value != "auto"
    ]
    return f"`{' '.join(words)}`" if words else "nothing"


def text() -> str:
    """The whole table."""
    lines = [
        "For SDXL stored in fp16, one picture of 1024 × 1024. In brackets the exit code of a refusal.",
        "",
        f"| machine | {' | '.join(typed(request) for request in REQUESTS)} |",
        f"|---|{'---|' * len(REQUESTS)}",
    ]
    for name, inventory in MACHINES.items():
        cells = " | ".join(decision(request, inventory) for request in REQUESTS)
        lines.append(f"| {name} | {cells} |")
    lines += [
        "",
        "The dtype that is taken where none is asked for, by what the weights are stored in:",
        "",
        "| machine | fp16 | bf16 | fp32 |",
        "|---|---|---|---|",
    ]
    for name in (
        "no accelerator",
        "no accelerator, CPU with bf16",
        "one GPU, 24 GB",
        "one GPU without bf16",
        "Mac, 32 GB",
    ):
        cells = " | ".join(decision(Request(), MACHINES[name], dtype) for dtype in ("F16", "BF16", "F32"))
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)
