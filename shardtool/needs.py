"""What a pipeline needs: bytes of weights and of a run, for each dtype and each way to offload. Plain arithmetic.

``count_needs`` counts the numbers in the headers; ``shardtool.placement`` compares the bytes with the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from shardtool.activations import Run, count_activations
from shardtool.checkpoint.dtypes import DTYPE_BITS, is_floating
from shardtool.checkpoint.quantisation import METHODS
from shardtool.part import Part

Dtype: TypeAlias = Literal["fp32", "fp16", "bf16"]
Offload: TypeAlias = Literal["none", "model", "group", "sequential"]

DTYPE_BYTES: Final[Mapping[str, int]] = {"fp32": 4, "fp16": 2, "bf16": 2}
STORED_DTYPES: Final[Mapping[str, Dtype]] = {"F32": "fp32", "F64": "fp32", "F16": "fp16", "BF16": "bf16"}
"""What a dtype of a safetensors header is called here."""

KEPT_IN_FP32: Final[Mapping[str, tuple[str, ...]]] = {"T5EncoderModel": (".wo.",), "UMT5EncoderModel": (".wo.",)}
"""Tensors that a class keeps in fp32 when the rest is fp16 (``_keep_in_fp32_modules`` in transformers 5.24)."""

OFFLOADS: Final[tuple[Offload, ...]] = ("none", "model", "group", "sequential")
"""In the order in which ``auto`` tries them: fastest first."""


@dataclass(frozen=True)
class ComponentNeeds:
    """What one component needs, counted from its headers.

    ``numbers`` is how many floating-point numbers it has, ``kept_fp32`` how many of these stay in fp32 when the rest is
    fp16; ``other_bytes`` is the rest (integers). ``largest_group`` and ``largest_layer`` are the numbers that group and
    sequential offload hold on the device at once. ``activations`` is how many numbers one run of it holds at its peak,
    ``activations_fp32`` that they are fp32 whatever the dtype (a VAE that decodes upcast).
    ``stored`` is bytes by header dtype. ``quantised`` names the method of weights that are taken as they are stored,
    ``fixed_dtype`` the only dtype in which they take numbers, if they are so.
    """

    name: str
    numbers: int
    stored: Mapping[str, int]
    other_bytes: int = 0
    kept_fp32: int = 0
    largest_group: int = 0
    largest_layer: int = 0
    activations: int = 0
    activations_fp32: bool = False
    quantised: str | None = None
    fixed_dtype: Dtype | None = None

    def weight_bytes(self, dtype: Dtype) -> int:
        """Bytes of its weights in ``dtype``; quantised ones take what they take in the file."""
        if self.quantised is not None:
            return sum(self.stored.values())
        extra = self.kept_fp32 * 2 if dtype == "fp16" else 0
        return self.numbers * DTYPE_BYTES[dtype] + self.other_bytes + extra

    def run_bytes(self, dtype: Dtype) -> int:
        """Bytes one run of it needs beside its weights; upcasting for the run counts the second copy of them."""
        if self.activations_fp32 and dtype == "fp16":
            return self.activations * 4 + self.numbers * 2
        return self.activations * DTYPE_BYTES[dtype]

    @property
    def stored_dtype(self) -> Dtype | None:
        """The floating-point dtype that most of it is stored in; ``None`` if there is none, or it is quantised."""
        return None if self.quantised is not None else most_stored(self.stored)


def most_stored(stored: Mapping[str, int]) -> Dtype | None:
    """The floating-point dtype of most bytes, of bytes by header dtype; ``None`` if there is none."""
    sizes: dict[Dtype, int] = {}
    for name, size in stored.items():
        if name in STORED_DTYPES:
            sizes[STORED_DTYPES[name]] = sizes.get(STORED_DTYPES[name], 0) + size
    return max(sizes, key=sizes.__getitem__, default=None)


@dataclass(frozen=True)
class Needs:
    """What is to be placed: the components with weights, in any order."""

    components: tuple[ComponentNeeds, ...]

    def device_bytes(self, dtype: Dtype, offload: Offload) -> int:
        """The most that the device holds at once under ``offload``, without the workspace."""
        size, parts = DTYPE_BYTES[dtype], self.components
        if not parts:
            return 0
        if offload == "none":
            return sum(part.weight_bytes(dtype) for part in parts) + max(part.run_bytes(dtype) for part in parts)
        if offload == "model":
            return max(part.weight_bytes(dtype) + part.run_bytes(dtype) for part in parts)
        if offload == "group":
            return max(part.largest_group * size + part.run_bytes(dtype) for part in parts)
        return max(part.largest_layer * size + part.run_bytes(dtype) for part in parts)

    def host_bytes(self, dtype: Dtype, device: str, offload: Offload) -> int:
        """The most that main memory holds: everything on a CPU or with offload, else nothing but passing buffers."""
        if device == "cpu":
            return self.device_bytes(dtype, "none")
        return sum(part.weight_bytes(dtype) for part in self.components) if offload != "none" else 0


def count_needs(parts: Mapping[str, Part], run: Run | None = None) -> Needs:
    """What the parts with weights need, counted from their headers; with ``run``, what running them takes besides."""
    activations = {} if run is None else count_activations(parts, run)
    return Needs(
        tuple(_count(part, activations.get(name, 0)) for name, part in parts.items() if part.checkpoint is not None)
    )


def _count(part: Part, activations: int) -> ComponentNeeds:
    tensors = [] if part.checkpoint is None else [stored.info for stored in part.checkpoint.tensors.values()]
    numbers = other = kept = 0
    groups: dict[str, int] = {}
    layers: dict[str, int] = {}
    patterns = KEPT_IN_FP32.get(part.class_name, ())
    for info in tensors:
        if not is_floating(info.dtype) or DTYPE_BITS[info.dtype] < 8:  # the narrower ones are packed
            other += info.nbytes
            continue
        numbers += info.elements
        if any(pattern in info.name for pattern in patterns):
            kept += info.elements
        layer, group = info.name.rpartition(".")[0], _group(info.name)
        layers[layer] = layers.get(layer, 0) + info.elements
        groups[group] = groups.get(group, 0) + info.elements
    outside = groups.pop("", 0)
    stored: Mapping[str, int] = {} if part.checkpoint is None else part.checkpoint.dtypes
    method = METHODS.get(part.quantised or "")
    return ComponentNeeds(
        part.name,
        numbers,
        stored,
        other_bytes=other,
        kept_fp32=kept,
        largest_group=outside + max(groups.values(), default=0),
        largest_layer=max(layers.values(), default=0),
        activations=activations,
        activations_fp32=bool((part.config or {}).get("force_upcast")),
        quantised=part.quantised,
        fixed_dtype=most_stored(stored) if method is not None and method.fixed_dtype else None,
    )


def _group(name: str) -> str:
    """The group that group offload moves a tensor with: ``down_blocks.0``, or ``""`` for what stays on the device.

    diffusers groups the entries of the lists that are direct children of the model; everything else is one group that
    stays for the whole forward pass (``diffusers.hooks.group_offloading``, block level).
    """
    first, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return f"{first}.{number}" if number.isdigit() else ""
