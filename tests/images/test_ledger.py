"""The ledger survives what a killed run leaves."""

from __future__ import annotations

from pathlib import Path

from shardtool.images.ledger import Entry, Ledger

ONE, TWO = Entry("1", "a.png", "aa"), Entry("2", "b.png", "bb")


def test_what_is_added_is_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new")
    assert ledger.read() == {}
    ledger.add(ONE)
    ledger.add(TWO)
    ledger.add(Entry("1", "c.png", "cc"))
    assert ledger.read() == {"1": Entry("1", "c.png", "cc"), "2": TWO}


def test_half_a_line_is_ignored_and_the_next_one_is_whole(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add(ONE)
    with ledger.path.open("ab") as file:
        file.write(b'{"key": "x", "pa')
    assert ledger.read() == {"1": ONE}
    ledger.add(TWO)
    assert ledger.read() == {"1": ONE, "2": TWO}


def test_foreign_lines_are_ignored(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.path.write_bytes(b'[]\n{"key": 1}\n\xff\xfe\n{"key": "x"}\n')
    ledger.add(ONE)
    assert ledger.read() == {"1": ONE}
