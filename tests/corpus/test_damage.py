"""The table in docs/damage.md: shardtool's column is what it says today, and no damage passes without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.damage_table import PAGE, damaged, save_models, verdict
from cli.app import app
from tests.corpus.case import SENTINEL
from tests.corpus.damage import KINDS, Damage

SAYS_NOTHING = {"a bit is flipped, nothing recorded"}
"""What no look at the file can show."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_models(folder)
    return folder


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """Damage → shardtool's cell."""
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return {cells[0]: cells[-1] for cells in rows}


@pytest.mark.parametrize("damage", KINDS, ids=lambda damage: damage.label)
def test_the_page_says_what_verify_says(models: Path, told: dict[str, str], tmp_path: Path, damage: Damage) -> None:
    found = verdict(damaged(models, "diffusers", damage, tmp_path), damage)
    assert told[damage.label] == found
    assert (found == "whole") == (damage.label in SAYS_NOTHING)


@pytest.mark.parametrize("library", ["diffusers", "transformers"])
@pytest.mark.parametrize("damage", [kind for kind in KINDS if not kind.deep], ids=lambda damage: damage.label)
def test_what_verify_refuses_is_not_loaded(models: Path, tmp_path: Path, damage: Damage, library: str) -> None:
    """The same guard stands before the loaders of both libraries, with the same codes."""
    model = damaged(models, library, damage, tmp_path)
    codes = verdict(model, damage)
    ran = CliRunner().invoke(app, ["load", str(model.folder), "--device", "cpu", "--json", "-q"])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    error = json.loads(ran.stdout)["error"]
    if codes.startswith("warning"):
        assert (ran.exit_code, error) == (0, None)
    else:
        assert ran.exit_code == 3
        assert f"`{error['code']}`" in codes
    assert not (tmp_path / SENTINEL).exists()


def test_the_undamaged_models_are_whole(models: Path, tmp_path: Path) -> None:
    nothing = Damage("nothing", lambda _: None)
    for library in ("diffusers", "transformers"):
        assert verdict(damaged(models, library, nothing, tmp_path / library), nothing) == "whole"
