"""Words that mean nothing are refused before anything is looked at, in a dry run as well."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.app import app


@pytest.mark.parametrize("typed", [("--device", "gpu"), ("--dtype", "fp8"), ("--offload", "disk")])
def test_a_dry_run_refuses_words_that_mean_nothing(typed: tuple[str, str]) -> None:
    found = CliRunner().invoke(app, ["generate", "dog", "--dry-run", *typed])
    assert found.exit_code == 2
    assert f'{typed[0]} "{typed[1]}"' in found.stderr
