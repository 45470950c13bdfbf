"""Where things go: the decision for every kind of machine and request, from plain values."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shardtool.devices import Accelerator, Inventory
from shardtool.errors import InputError, RefusedError, UsageError
from shardtool.inventory_file import inventory_json, read_inventory_file
from shardtool.needs import OFFLOADS, ComponentNeeds, Needs
from shardtool.offloading import WORKSPACE
from shardtool.placement import Placement, Request, plan_placement

GB = 10**9


def cuda(index: int = 0, *, free: int = 24 * GB, bf16: bool = True) -> Accelerator:
    return Accelerator("cuda", index, "NVIDIA Test", 24 * GB, free, bf16)


def machine(*devices: Accelerator, cpu_free: int = 64 * GB, **more: Any) -> Inventory:
    return Inventory(devices, cpu_total=64 * GB, cpu_free=cpu_free, **more)


MPS = Accelerator("mps", 0, "Apple GPU", 16 * GB, 12 * GB)
XPU = Accelerator("xpu", 0, "Intel Arc", 16 * GB, 15 * GB)


def stored(dtype: str = "F16", numbers: int = 1000) -> Needs:
    width = {"F16": 2, "BF16": 2, "F32": 4}[dtype]
    return Needs((ComponentNeeds("unet", numbers, {dtype: numbers * width}),))


def place(inventory: Inventory, needs: Needs | None = None, **request: Any) -> Placement:
    return plan_placement(Request(**request), inventory, needs or stored())


# Which device


@pytest.mark.parametrize(
    ("inventory", "asked", "device"),
    [
        (machine(), "auto", "cpu"),
        (machine(cuda()), "auto", "cuda:0"),
        (machine(MPS), "auto", "mps"),
        (machine(XPU), "auto", "xpu:0"),
        (machine(cuda()), "cpu", "cpu"),
        (machine(cuda()), "cuda", "cuda:0"),
        (machine(cuda(), cuda(1)), "cuda", "cuda:0"),
        (machine(cuda(3)), "cuda", "cuda:3"),
        (machine(cuda(), cuda(1)), "cuda:00", "cuda:0"),
        (machine(cuda(), cuda(1)), "cuda:01", "cuda:1"),
        (machine(cuda(), cuda(1)), "cuda:1", "cuda:1"),
        (machine(cuda(), cuda(1)), "cpu", "cpu"),
        (machine(MPS), "mps", "mps"),
        (machine(MPS), "mps:0", "mps"),
        (machine(XPU), "xpu", "xpu:0"),
        (machine(cuda(), XPU), "xpu", "xpu:0"),
        (machine(cuda(), cuda(1), local_rank=1), "auto", "cuda:1"),
        (machine(cuda(), cuda(1), local_rank=1), "cuda", "cuda:1"),
        (machine(cuda(), cuda(1), local_rank=1), "cuda:0", "cuda:0"),
        (machine(cuda(), local_rank=0), "auto", "cuda:0"),
        (machine(local_rank=3), "auto", "cpu"),
    ],
)
def test_the_device_is_the_one_that_was_meant(inventory: Inventory, asked: str, device: str) -> None:
    placement = place(inventory, device=asked)
    assert placement.device == device
    assert any(device in reason for reason in placement.reasons)


@pytest.mark.parametrize("count", [2, 8])
def test_auto_with_several_accelerators_refuses_and_says_what_to_type(count: int) -> None:
    with pytest.raises(RefusedError) as caught:
        place(machine(*(cuda(index) for index in range(count))))
    error = caught.value
    assert (error.exit_code, error.code) == (4, "multi_gpu")
    assert all(f"cuda:{index} (NVIDIA Test" in error.message for index in range(count))
    assert error.hint is not None
    assert "--device cuda:0" in error.hint
    assert f"accelerate launch --num_processes {count}" in error.hint


def test_auto_with_accelerators_of_two_kinds_refuses() -> None:
    with pytest.raises(RefusedError, match=r"cuda:0 .*xpu:0 "):
        place(machine(cuda(), XPU))


@pytest.mark.parametrize(
    ("inventory", "asked", "hint"),
    [
        (machine(), "cuda", "--device cpu"),
        (machine(), "cuda:0", "--device cpu"),
        (machine(cuda()), "cuda:7", "--device cuda:0"),
        (machine(cuda()), "mps", "--device cuda:0"),
        (machine(MPS), "cuda", "--device mps"),
        (machine(cuda(), cuda(1)), "xpu", "--device cuda:0 or --device cuda:1"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_exists(inventory: Inventory, asked: str, hint: str) -> None:
    with pytest.raises(RefusedError) as caught:
        place(inventory, device=asked)
    assert caught.value.code == "no_device"
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    for device in inventory.accelerators:
        assert device.device in caught.value.message


def test_a_process_of_a_launch_without_a_device_of_its_own_is_refused() -> None:
    with pytest.raises(RefusedError, match="process 2 of this launch"):
        place(machine(cuda(), cuda(1), local_rank=2))


@pytest.mark.parametrize("asked", ["gpu", "cuda:", "cuda:x", "cuda:-1", "0", "", "cuda:0:1", "CPU", "cuda:１"])
def test_a_word_that_is_no_device_is_wrong_usage(asked: str) -> None:
    with pytest.raises(UsageError, match="is no device"):
        place(machine(), device=asked)


# Which numbers


@pytest.mark.parametrize(
    ("inventory", "held", "dtype"),
    [
        (machine(), "F16", "fp32"),
        (machine(), "F32", "fp32"),
        (machine(), "BF16", "fp32"),
        (machine(cpu_bf16=True), "BF16", "bf16"),
        (machine(cpu_bf16=True), "F16", "fp32"),
        (machine(cuda()), "F16", "fp16"),
        (machine(cuda()), "BF16", "bf16"),
        (machine(cuda()), "F32", "bf16"),
        (machine(cuda(bf16=False)), "BF16", "fp16"),
        (machine(cuda(bf16=False)), "F32", "fp16"),
        (machine(MPS), "F16", "fp16"),
    ],
)
def test_auto_takes_the_dtype_that_the_device_is_good_at(inventory: Inventory, held: str, dtype: str) -> None:
    placement = place(inventory, stored(held))
    assert placement.dtype == dtype
    assert any(reason.startswith(f"dtype: {dtype}") for reason in placement.reasons)


def test_one_dtype_is_chosen_for_all_and_those_stored_otherwise_are_named() -> None:
    needs = Needs(
        (
            ComponentNeeds("unet", 1000, {"F16": 2000}),
            ComponentNeeds("vae", 10, {"F32": 40}),
            ComponentNeeds("odd", 0, {"U8": 10}, other_bytes=10),
        )
    )
    placement = place(machine(cuda()), needs)
    assert placement.dtype == "fp16"
    assert [reason for reason in placement.reasons if "cast" in reason] == ["vae: stored in fp32, cast to fp16"]


@pytest.mark.parametrize("asked", ["fp32", "fp16", "bf16"])
def test_a_dtype_that_was_asked_for_is_taken_everywhere(asked: str) -> None:
    assert place(machine(), dtype=asked).dtype == asked
    assert place(machine(cuda(bf16=False)), dtype=asked).dtype == asked


PACKED = ComponentNeeds("text_encoder", 10, {"U8": 500, "F32": 40}, other_bytes=500, quantised="bitsandbytes")
FIXED = ComponentNeeds("unet", 10, {"I8": 500, "BF16": 20}, 500, quantised="torchao", fixed_dtype="bf16")


def test_what_is_quantised_has_no_say_in_the_dtype_and_is_not_cast() -> None:
    placement = place(machine(cuda()), Needs((PACKED, *stored("F16").components)))
    assert placement.dtype == "fp16"
    assert [reason for reason in placement.reasons if reason.startswith("text_encoder")] == [
        "text_encoder: quantised with bitsandbytes, its packed weights stay as stored"
    ]


def test_a_quantised_part_that_computes_in_one_dtype_alone_decides_for_all() -> None:
    needs = Needs((*stored("F16").components, FIXED))
    placement = place(machine(), needs)
    assert placement.dtype == "bf16"
    assert "dtype: bf16, which the quantised unet computes in" in placement.reasons
    with pytest.raises(RefusedError, match="compute in bf16 and cannot be cast to fp32") as caught:
        place(machine(), needs, dtype="fp32")
    assert (caught.value.code, caught.value.exit_code) == ("dtype_quantised", 4)


def test_a_word_that_is_no_dtype_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="float16"):
        place(machine(), dtype="float16")


# Does it fit

BIG = Needs(
    (
        ComponentNeeds("unet", 3 * GB, {"F16": 6 * GB}, largest_group=GB, largest_layer=GB // 10, activations=GB),
        ComponentNeeds("text_encoder", GB, {"F16": 2 * GB}, largest_group=GB, largest_layer=GB // 10),
    )
)
"""In fp16: 8 GB of weights; a run takes 2 GB; the largest component is 6 GB, group 2 GB, layer 0.2 GB."""

NEEDED = {"none": 10 * GB, "model": 8 * GB, "group": 4 * GB, "sequential": 2 * GB + GB // 5}


@pytest.mark.parametrize("offload", OFFLOADS)
def test_auto_takes_the_first_offload_that_fits(offload: str) -> None:
    enough = NEEDED[offload] + WORKSPACE
    assert place(machine(cuda(free=enough)), BIG).offload == offload


@pytest.mark.parametrize(("offload", "next_one"), list(pairwise(OFFLOADS)))
def test_one_byte_less_takes_the_next_and_says_why(offload: str, next_one: str) -> None:
    placement = place(machine(cuda(free=NEEDED[offload] + WORKSPACE - 1)), BIG)
    assert placement.offload == next_one
    assert any(f"because {offload} needs" in reason for reason in placement.reasons)


@pytest.mark.parametrize("offload", OFFLOADS)
def test_an_explicit_offload_that_cannot_fit_is_refused_with_the_numbers(offload: str) -> None:
    with pytest.raises(RefusedError) as caught:
        place(machine(cuda(free=NEEDED[offload] + WORKSPACE - 10_000_000)), BIG, offload=offload)
    assert (caught.value.code, caught.value.exit_code) == ("memory", 4)
    assert f"{offload} needs" in caught.value.message
    assert "are free" in caught.value.message
    assert "--force" in (caught.value.hint or "")


def test_quantised_parts_are_offloaded_whole_or_not_at_all() -> None:
    needs = Needs((*BIG.components, PACKED))
    with pytest.raises(RefusedError, match="model needs") as caught:
        place(machine(cuda(free=GB)), needs)
    assert "group needs" not in caught.value.message
    for offload in ("group", "sequential"):
        with pytest.raises(RefusedError, match=r"quantised ones do not bear: text_encoder") as caught:
            place(machine(cuda()), needs, offload=offload)
        assert (caught.value.code, caught.value.hint) == ("offload_quantised", "type --offload model, or leave it out")


def test_a_refusal_names_what_would_fit() -> None:
    with pytest.raises(RefusedError) as caught:
        place(machine(cuda(free=9 * GB)), BIG, offload="none")
    assert "--offload model would fit" in (caught.value.hint or "")
    with pytest.raises(RefusedError) as caught:
        place(machine(cpu_free=12 * GB), BIG, dtype="fp32")
    assert "--dtype bf16 would fit" in (caught.value.hint or "")


def test_a_dtype_that_fits_only_with_another_offload_is_not_recommended() -> None:
    with pytest.raises(RefusedError) as caught:
        place(machine(cuda(free=9 * GB)), BIG, dtype="fp32", offload="none")
    assert "--dtype" not in (caught.value.hint or "")


def test_a_device_of_endless_digits_is_one_that_is_not_there() -> None:
    with pytest.raises(RefusedError, match="there is no cuda:"):
        place(machine(cuda()), device="cuda:" + "9" * 5000)


def test_force_places_what_does_not_fit() -> None:
    placement = place(machine(cuda(free=GB)), BIG, force=True)
    assert placement.offload == "sequential"
    assert any("forced" in reason for reason in placement.reasons)
    assert place(machine(cpu_free=GB), BIG, force=True).device == "cpu"


def test_weights_that_wait_in_main_memory_must_fit_there() -> None:
    with pytest.raises(RefusedError, match="main memory"):
        place(machine(cuda(free=9 * GB), cpu_free=7 * GB), BIG)
    assert place(machine(cuda(free=24 * GB), cpu_free=GB), BIG).offload == "none"


@pytest.mark.parametrize("inventory", [machine(), machine(MPS)], ids=["cpu", "mps"])
def test_there_is_no_offload_where_memory_is_one(inventory: Inventory) -> None:
    assert place(inventory, stored()).offload == "none"
    assert place(inventory, stored(), offload="none").offload == "none"
    with pytest.raises(RefusedError) as caught:
        place(inventory, stored(), offload="model")
    assert caught.value.code == "offload_without_accelerator"


def test_a_word_that_is_no_offload_is_wrong_usage() -> None:
    with pytest.raises(UsageError):
        place(machine(), offload="disk")


def test_a_vae_that_decodes_upcast_needs_its_weights_twice() -> None:
    vae = ComponentNeeds("vae", 100, {"F16": 200}, activations=1000, activations_fp32=True)
    assert vae.run_bytes("fp16") == 4000 + 200
    assert vae.run_bytes("fp32") == 4000
    assert vae.run_bytes("bf16") == 2000


def test_numbers_that_stay_in_fp32_are_counted_so() -> None:
    part = ComponentNeeds("text_encoder", 100, {"F32": 400}, other_bytes=8, kept_fp32=10)
    assert part.weight_bytes("fp16") == 90 * 2 + 10 * 4 + 8
    assert part.weight_bytes("fp32") == 400 + 8
    assert part.weight_bytes("bf16") == 200 + 8


# Another machine's inventory


def test_an_inventory_survives_its_file(tmp_path: Path) -> None:
    inventory = machine(cuda(), cuda(1, bf16=False), XPU, MPS, cpu_bf16=True, local_rank=1)
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(inventory_json(inventory)))
    assert read_inventory_file(path) == inventory


def test_sizes_in_an_inventory_may_be_written_with_units(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text('{"accelerators": [{"kind": "cuda", "total": "24GB"}], "cpu_total": "1GiB", "cpu_free": 5}')
    found = read_inventory_file(path)
    assert found == Inventory((Accelerator("cuda", 0, "cuda", 24 * GB, 24 * GB),), 2**30, 5)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"cpu_total": -1, "cpu_free": 1}',
        '{"cpu_total": "many", "cpu_free": 1}',
        '{"cpu_total": 1, "cpu_free": 1, "accelerators": {}}',
        '{"cpu_total": 1, "cpu_free": 1, "accelerators": [1]}',
        '{"cpu_total": 1, "cpu_free": 1, "accelerators": [{"kind": "tpu", "total": 1}]}',
        '{"cpu_total": 1, "cpu_free": 1, "accelerators": [{"kind": "cuda"}]}',
        '{"cpu_total": 1, "cpu_free": 1, "accelerators": [{"kind": "cuda", "total": 1, "index": -1}]}',
        '{"cpu_total": 1, "cpu_free": 1, "accelerators": [{"kind": "cuda", "total": 1, "bf16": 1}]}',
        '{"cpu_total": 1, "cpu_free": 1, "local_rank": "0"}',
        '{"cpu_total": 1%s, "cpu_free": 1}' % ("0" * 400),
        '{"cpu_total": 1, "cpu_free": "1%s TB"}' % ("0" * 400),
        '{"cpu_total": 1, "cpu_free": 1, "accelerators": [{"kind": "mps", "total": 1}, {"kind": "mps", "total": 1}]}',
    ],
)
def test_a_file_that_is_no_inventory_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "machine.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_inventory_file(path)
    assert caught.value.code == "inventory_invalid"
    assert str(path) in caught.value.message
