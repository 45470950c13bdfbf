"""``shardtool verify`` from outside: exit codes, every problem with its code, and what was not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from tests.corpus.base import INDEX, NAMES, held, shard_name, weights_file, write_component

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def data_of(*arguments: object) -> dict[str, Any]:
    return dict(json.loads(run(*arguments, "--json").stdout)["data"])


@pytest.fixture
def unet(tmp_path: Path) -> Path:
    return write_component(tmp_path / "unet")


def test_what_is_whole_is_exit_0_and_what_was_not_checked_is_said(unet: Path) -> None:
    found = run(unet, "--structure")
    assert found.exit_code == 0
    assert found.stdout.startswith("whole")
    assert "not checked: the fit to the model's class; the values (--deep reads them)" in found.stdout
    assert data_of(unet, "--structure")["whole"] is True


def test_deep_says_that_without_digests_a_flipped_bit_may_go_unseen(unet: Path) -> None:
    assert "digests, since none are recorded: a flipped bit may go unseen" in run(unet, "--structure", "--deep").stdout


def test_every_problem_is_listed_with_code_and_hint_and_exit_1(unet: Path) -> None:
    (unet / shard_name(1)).unlink()
    (unet / shard_name(2)).write_bytes(b"<html>")
    (unet / shard_name(3)).write_bytes(weights_file({NAMES[4]: 4}))
    found = run(unet, "--structure")
    assert found.exit_code == 1
    for code in ("[shard_missing]", "[web_page]", "[tensor_absent]"):
        assert code in found.stdout
    assert "damaged" in found.stdout and "3 errors" in found.stdout

    data = data_of(unet, "--structure")
    assert data["whole"] is False
    problems = {problem["code"]: problem for problem in data["components"][0]["problems"]}
    assert problems.keys() == {"shard_missing", "web_page", "tensor_absent"}
    assert problems["tensor_absent"]["tensor"] == NAMES[5]
    assert problems["tensor_absent"]["path"] == str(unet / shard_name(3))
    assert all(problem["hint"] for problem in problems.values())


def test_many_of_one_kind_are_cut_for_people_and_complete_with_verbose(unet: Path) -> None:
    content = json.loads((unet / INDEX).read_text())
    content["weight_map"] |= {f"ghost{number}": shard_name(1) for number in range(50)}
    (unet / INDEX).write_text(json.dumps(content))
    assert "… and 40 more tensor_absent" in run(unet, "--structure").stdout
    assert "ghost49" in run(unet, "--structure", "--verbose").stdout
    assert len(data_of(unet, "--structure")["components"][0]["problems"]) == 50


def test_warnings_alone_are_exit_0(unet: Path) -> None:
    (unet / "optimizer.bin").write_bytes(b"x")
    found = run(unet, "--structure")
    assert found.exit_code == 0
    assert "warning: " in found.stdout and "[pickle_beside]" in found.stdout


def test_what_is_not_there_is_exit_3() -> None:
    assert run("no/such/thing/here").exit_code == 3


def test_against_compares_bit_for_bit(unet: Path, tmp_path: Path) -> None:
    single = tmp_path / "x.safetensors"
    single.write_bytes(weights_file(dict.fromkeys(NAMES, 4)))
    assert "6 the same as in" in run(unet, "--structure", "--against", single).stdout
    raw = bytearray(single.read_bytes())
    raw[-1] ^= 1
    single.write_bytes(raw)
    found = run(unet, "--structure", "--against", single)
    assert found.exit_code == 1
    assert "\ndifferent  " in found.stdout
    data = data_of(unet, "--structure", "--against", single)
    assert (data["whole"], data["against"]["same"]) == (False, 5)
    assert [(problem["code"], problem["tensor"]) for problem in data["against"]["problems"]] == [
        ("against_values", NAMES[-1])
    ]


def test_what_was_compared_bit_for_bit_is_not_said_to_be_unread(unet: Path) -> None:
    copy = write_component(unet.parent / "copy")
    assert "not checked: the fit to the model's class; NaN and infinities (--deep reads them)\n" in (
        run(unet, "--structure", "--against", copy).stdout
    )
    deep = run(unet, "--structure", "--deep", "--against", copy).stdout
    assert "digests" not in deep and "a flipped bit" not in deep


def test_recorded_digests_that_were_not_compared_are_mentioned(tmp_path: Path) -> None:
    target = tmp_path / "vae"
    made = CliRunner().invoke(app, ["shard", "demo:vae", "--max-size", "3MB", "-o", str(target), "--digests", "-q"])
    assert made.exit_code == 0
    assert "the values and the recorded digests (--deep reads them)" in run(target, "--structure").stdout
    assert data_of(target, "--structure")["components"][0]["digests_recorded"] is True
    assert "recorded digests" not in run(target, "--structure", "--deep").stdout


@pytest.mark.parametrize("fault", ["missing", "cut", "no index"])
def test_what_can_be_read_of_a_damaged_checkpoint_is_counted(unet: Path, fault: str) -> None:
    """The three shards hold two tensors each."""
    if fault == "missing":
        (unet / shard_name(2)).unlink()
    elif fault == "cut":
        (unet / shard_name(2)).write_bytes(b"")
    else:
        (unet / INDEX).unlink()
    readable = "6 tensors" if fault == "no index" else "4 tensors in 2 of 3 files"
    assert f"damaged  {unet}  {readable}, 1 error\n" in run(unet, "--structure").stdout


def test_without_an_index_the_shards_are_looked_at_all_the_same(unet: Path) -> None:
    (unet / INDEX).unlink()
    (unet / shard_name(2)).write_bytes(b"")
    found = run(unet, "--structure")
    assert "[index_missing]" in found.stdout and "[truncated]" in found.stdout
    assert "4 tensors in 2 of 3 files, 2 errors" in found.stdout


@pytest.mark.parametrize("columns", [None, "40"])
def test_a_pipe_gets_every_problem_on_one_line(unet: Path, columns: str | None) -> None:
    """Who searches a log for a file and its fault finds both in one line, whatever COLUMNS says."""
    folder = unet.rename(unet.parent / ("long " * 40).strip())
    (folder / INDEX).unlink()
    found = CliRunner().invoke(app, ["verify", str(folder), "--structure"], env={"COLUMNS": columns})
    first = found.stdout.splitlines()[0]
    assert first.startswith(f"error: {folder}: ") and first.endswith("[index_missing]")


def test_recorded_digests_find_every_flipped_bit(tmp_path: Path, demo: Path) -> None:
    from cli.app import app as shardtool

    target = tmp_path / "unet"
    arguments = ["shard", str(demo / "unet"), "--max-size", "3MB", "-o", str(target), "--digests", "-q"]
    assert CliRunner().invoke(shardtool, arguments).exit_code == 0
    assert run(target, "--structure", "--deep").exit_code == 0
    shard = sorted(target.glob("*.safetensors"))[1]
    raw = bytearray(shard.read_bytes())
    raw[-100] ^= 0x04
    shard.write_bytes(raw)
    found = run(target, "--structure", "--deep")
    assert found.exit_code == 1 and "[digest_mismatch]" in found.stdout and shard.name in found.stdout


def test_structure_imports_neither_torch_nor_numpy(unet: Path) -> None:
    program = (
        "import sys\nfrom cli.app import main\ntry:\n    main()\nexcept SystemExit as leaving:\n"
        "    found = {'torch', 'numpy', 'diffusers', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        "    print(leaving.code or 0, sorted(found))\n"
    )
    command = [sys.executable, "-c", program, "verify", str(unet), "--structure", "-q", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_held_is_what_the_shards_hold(unet: Path) -> None:
    """The helper of these tests and the files agree."""
    from safetensors import safe_open

    for number in (1, 2, 3):
        with safe_open(unet / shard_name(number), framework="np") as file:
            assert set(file.keys()) == set(held(number))
