"""The reference parser over the same files: where it accepts what is refused here, that is on purpose and listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open

from tests.corpus import header_cases, layout_cases, valid_cases
from tests.corpus.case import Case

STRICTER = {
    "header-duplicate-tensor": "the last entry wins there, elsewhere the first",
    "header-duplicate-other-dtype": "likewise",
    "header-duplicate-by-escape": "likewise",
    "header-duplicate-metadata-key": "likewise",
    "header-metadata-null": "no string to string map, though harmless",
    "header-entry-list": "an entry by position, which no other reader knows",
    "header-shape-zero-by-huge": "a side that no library can hold; reading it fails late",
}
"""Cases that the reference accepts, and why they are refused."""

FILES = [
    case
    for case in [*header_cases.CASES, *layout_cases.CASES, *valid_cases.CASES]
    if not case.name.startswith(
        ("component", "index", "shard", "hub", "folder", "file-by", "other", "old", "second", "left")
    )
]


@pytest.mark.parametrize("case", FILES, ids=lambda case: case.name)
def test_the_reference_agrees_but_for_the_listed_cases(case: Case, tmp_path: Path) -> None:
    try:
        with safe_open(case.make(tmp_path), framework="np") as file:
            file.keys()
    except SafetensorError:
        verdict = "reject"
    else:
        verdict = "accept"
    expected = "accept" if case.name in STRICTER else case.verdict
    assert verdict == expected


def test_every_listed_case_exists() -> None:
    assert STRICTER.keys() <= {case.name for case in FILES if case.verdict == "reject"}
