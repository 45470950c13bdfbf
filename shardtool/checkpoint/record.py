"""Digests along the way: what the source has on record, what the result will have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from shardtool.checkpoint.digests import make_entry, read_digests, read_entries
from shardtool.checkpoint.job import Output
from shardtool.errors import InputError


def on_record(output: Output) -> Mapping[str, str]:
    """The digests that the source records, by the result's tensor names, for tensors that are copied as they are."""
    checkpoint = output.part.checkpoint
    known = read_digests(checkpoint.folder, checkpoint.name) or {}
    by_new_name = ((item, known.get(output.renamed.get(item.name, item.name))) for item in output.items)
    return {item.name: digest for item, digest in by_new_name if digest is not None and item.offset is not None}


def check_record(output: Output, digests: Mapping[str, str]) -> None:
    """Raises ``InputError`` for a tensor whose bytes are not those that the source has on record."""
    for name, digest in on_record(output).items():
        if digests[name] != digest:
            folder = output.part.checkpoint.folder
            raise InputError(
                f"{folder}: tensor {name!r}: its bytes are not those that were recorded (SHA-256)",
                code="digest_mismatch",
                path=folder,
                tensor=name,
                hint="the source is damaged: fetch or write it again",
            )


def entry_of(output: Output, digests: Mapping[str, str]) -> dict[str, Any] | None:
    """What is recorded of ``output``; ``None`` unless the digests of all its tensors are known."""
    if any(item.name not in digests for item in output.items):
        return None
    return make_entry([(item.name, item.dtype, item.shape) for item in output.items], digests)


def entries_for(
    place: PurePath, outputs: Sequence[tuple[Output, Mapping[str, Any] | None]], target: Path
) -> dict[str, Mapping[str, Any]]:
    """The digests file of one folder: the new entries, and those of other checkpoints that the old target keeps."""
    folder = target / place
    found: dict[str, Mapping[str, Any]] = dict(read_entries(folder)) if folder.is_dir() else {}
    for output, entry in outputs:
        if output.part.place == place:
            found.pop(output.name.base, None)
            if entry is not None:
                found[output.name.base] = entry
    return found
