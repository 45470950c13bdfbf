"""Sources on the Hub: the only importer of huggingface_hub."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from shardtool.errors import HubError
from shardtool.events import Listener, ignore
from shardtool.source import HubSource


def fetch(
    source: HubSource,
    *,
    variant: str | None = None,
    components: Collection[str] | None = None,
    offline: bool = False,
    on_event: Listener = ignore,
) -> Path:
    """Download what is needed of ``source`` into the Hub's cache and return the local folder."""
    raise HubError(f"{source.text}: downloading is not built yet", code="hub")
