"""Where a link in a checkpoint's folder may lead: inside the folder, or into the Hub cache's own ``blobs``.

A checkpoint that somebody made can hold links to files of the machine it is unpacked on, and whoever shards or loads
it would then read those. The Hub's cache is made of links too, in one layout, which is allowed::

    models--ORG--NAME/snapshots/COMMIT/unet/x.safetensors -> ../../../blobs/HASH
    models--ORG--NAME/blobs/HASH                          -> ../../blobs/HA/HASH, shared between repos since hub 2.0

A link that the user names is followed; so are all with ``SHARDTOOL_FOLLOW_LINKS=1``, for people who keep the large
files on another disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from shardtool.checkpoint.names import PIPELINE_NAME
from shardtool.errors import InputError, Problem

FOLLOW_LINKS = "SHARDTOOL_FOLLOW_LINKS"
_CACHE_PREFIXES = ("models--", "datasets--", "spaces--")


def link_problem(folder: Path, path: Path) -> Problem | None:
    """Why ``path``, found in a checkpoint's ``folder``, is not followed; ``None`` where it stays inside."""
    if os.environ.get(FOLLOW_LINKS, "0") not in ("", "0"):
        return None
    target = Path(os.path.realpath(path))
    if any(target.is_relative_to(place) for place in _allowed(folder)):
        return None
    return Problem(
        "link_outside",
        f"{path}: is a link that leads out of the checkpoint, to {target}",
        str(path),
        hint=f"if you trust it, run again with {FOLLOW_LINKS}=1 before the command; or put the file itself there",
    )


def check_link(folder: Path, path: Path) -> None:
    """Raises ``InputError`` with the ``link_problem``, if there is one."""
    if problem := link_problem(folder, path):
        raise InputError.of_all([problem])


def _allowed(folder: Path) -> list[Path]:
    real = Path(os.path.realpath(folder))
    allowed = [real.parent if (real.parent / PIPELINE_NAME).is_file() else real]
    allowed.extend(
        Path(os.path.realpath(owner / "blobs"))
        for place in real.parents
        if place.name == "snapshots" and place.parent.name.startswith(_CACHE_PREFIXES)
        for owner in (place.parent, place.parent.parent)
    )
    return allowed
