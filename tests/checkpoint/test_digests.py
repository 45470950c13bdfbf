"""Digests identify a model however it is sharded, and find bit rot."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from shardtool.checkpoint.digests import DIGESTS_NAME, fingerprint, read_digests
from shardtool.checkpoint.names import WeightsName
from shardtool.checkpoint.plan import WHOLE, Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, Written, write_job
from shardtool.errors import InputError
from tests.checkpoint.referee import Tensor, by_hand
from tests.checkpoint.test_shard import STEM, component, some_tensors

NAME = WeightsName(STEM)


def run(source: Path, target: Path, limit: int | None, *, digests: bool = True, variant: str | None = None) -> Written:
    job = plan_job(source, Choice(variant), Shape(Split(limit)))
    return write_job(job, target, Manner(overwrite=True, durable=False, digests=digests))


def test_every_tensor_has_its_sha256(tmp_path: Path) -> None:
    run(component(tmp_path / "unet", some_tensors()), tmp_path / "out", 80_000)
    expected = {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in some_tensors().items()}
    assert read_digests(tmp_path / "out", NAME) == expected


def test_empty_tensors_and_large_ones_have_theirs_too(tmp_path: Path) -> None:
    tensors: dict[str, Tensor] = {
        "a": ("F32", [0, 3], b""),
        "b": ("U8", [3_000_000], b"\x07" * 3_000_000),
        "c": ("U8", [], b"x"),
        "d": ("F32", [0], b""),
    }
    (tmp_path / "x.safetensors").write_bytes(by_hand(tensors, {"format": "pt"}))
    run(tmp_path / "x.safetensors", tmp_path / "out", 10**9)
    found = read_digests(tmp_path / "out", WeightsName("x"))
    assert found == {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in tensors.items()}


def test_the_fingerprint_is_the_same_however_the_model_is_sharded(tmp_path: Path) -> None:
    source = component(tmp_path / "unet", some_tensors())
    prints = {run(source, tmp_path / f"out{limit}", limit).fingerprints for limit in (30_000, 80_000, None)}
    prints |= {run(tmp_path / "out30000", tmp_path / "again", None).fingerprints}
    assert len(prints) == 1
    changed = some_tensors()
    changed["block.0.weight"] = ("BF16", *changed["block.0.weight"][1:])
    assert run(component(tmp_path / "other", changed), tmp_path / "o", None).fingerprints not in prints


def test_the_fingerprint_is_what_its_definition_says() -> None:
    digests = {"b": "22", "a": "11"}
    expected = hashlib.sha256(b'["a","F16",[2,3],"11"]\n["b","F32",[],"22"]\n').hexdigest()
    assert fingerprint([("b", "F32", ()), ("a", "F16", (2, 3))], digests) == expected


def test_digests_on_record_go_along_when_nothing_is_hashed(tmp_path: Path) -> None:
    run(component(tmp_path / "unet", some_tensors()), tmp_path / "one", 80_000)
    written = run(tmp_path / "one", tmp_path / "two", 50_000, digests=False)
    assert read_digests(tmp_path / "two", NAME) == read_digests(tmp_path / "one", NAME)
    assert written.fingerprints != (None,)


def test_bit_rot_is_found_on_the_way(tmp_path: Path) -> None:
    run(component(tmp_path / "unet", some_tensors()), tmp_path / "one", 80_000)
    shard = sorted((tmp_path / "one").glob("*.safetensors"))[0]
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(InputError, match=r"tensor 'block\.\d+\.weight': its bytes are not those that were recorded"):
        run(tmp_path / "one", tmp_path / "two", 50_000)
    assert not (tmp_path / "two").exists()


def test_records_of_other_variants_survive_and_stale_ones_do_not(tmp_path: Path) -> None:
    """A record that outlived its checkpoint would make every later verification fail."""
    source = component(tmp_path / "unet", some_tensors())
    component(source, some_tensors(seed=1), variant=".fp16")
    run(source, tmp_path / "out", 80_000)
    run(component(tmp_path / "new", some_tensors(seed=2)), tmp_path / "out", None, digests=False)
    assert read_digests(tmp_path / "out", NAME) is None
    assert read_digests(tmp_path / "out", WeightsName(STEM, "fp16")) is not None


def test_a_record_elsewhere_is_not_read(tmp_path: Path) -> None:
    run(component(tmp_path / "unet", some_tensors()), tmp_path / "out", None)
    (tmp_path / "out" / DIGESTS_NAME).rename(tmp_path / "elsewhere.json")
    (tmp_path / "out" / DIGESTS_NAME).symlink_to("../elsewhere.json")
    with pytest.raises(InputError) as caught:
        read_digests(tmp_path / "out", NAME)
    assert caught.value.code == "link_outside"


def test_without_a_record_there_is_none(tmp_path: Path) -> None:
    written = run(component(tmp_path / "unet", some_tensors()), tmp_path / "out", None, digests=False)
    assert written.fingerprints == (None,)
    assert read_digests(tmp_path / "out", NAME) is None
    assert not (tmp_path / "out" / DIGESTS_NAME).exists()


@pytest.mark.parametrize("content", ["[]", '{"checkpoints": []}', '{"checkpoints": {"x": {"tensors": {"a": 1}}}}', "{"])
def test_a_damaged_record_is_an_input_error(tmp_path: Path, content: str) -> None:
    (tmp_path / DIGESTS_NAME).write_text(content)
    with pytest.raises(InputError, match=r"shardtool\.digests\.json"):
        read_digests(tmp_path, NAME)


def test_the_file_says_which_checkpoint_it_speaks_of(tmp_path: Path) -> None:
    written = run(component(tmp_path / "unet", some_tensors()), tmp_path / "out", 80_000)
    content = json.loads((tmp_path / "out" / DIGESTS_NAME).read_text())
    assert content["schema"] == "shardtool.digests/1"
    assert [entry["fingerprint"] for entry in content["checkpoints"].values()] == list(written.fingerprints)
    assert list(content["checkpoints"]) == [STEM]


def test_a_merged_file_prints_its_fingerprint_and_records_nothing_beside_it(tmp_path: Path) -> None:
    source = component(tmp_path / "unet", some_tensors())
    job = plan_job(source, Choice(), Shape(WHOLE))
    written = write_job(job, tmp_path / "x.safetensors", Manner(digests=True))
    assert written.fingerprints[0] is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unet", "x.safetensors"]
