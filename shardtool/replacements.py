"""Components of a pipeline that come from elsewhere: as typed, and where they lie.

::

    --unet SOURCE                 for the four that are replaced most
    --component NAME=SOURCE       for any: scheduler, tokenizer, transformer …
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from shardtool.errors import UsageError
from shardtool.events import Listener, ignore
from shardtool.obtain import component_path, structure_of
from shardtool.source import parse_source

SHORT: Final = ("unet", "vae", "text_encoder", "text_encoder_2")
"""The components that have an option of their own."""


def read_replacements(short: Mapping[str, str | None], texts: Iterable[str] = ()) -> dict[str, str]:
    """Component → source as typed, of the options of their own and of ``NAME=SOURCE``.

    Raises ``UsageError`` for a text of another form, and for a component with two sources.
    """
    found = {name: source for name, source in short.items() if source is not None}
    for text in texts:
        name, equals, source = text.partition("=")
        if not (name and equals and source):
            raise UsageError(
                f'--component "{text}" is not NAME=SOURCE',
                code="component_invalid",
                hint="such as --component unet=build/unet",
            )
        if found.setdefault(name, source) != source:
            raise UsageError(
                f"--component {text} contradicts {found[name]}, which is to be the {name} too", code="contradiction"
            )
    return found


def with_own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with ``unet=SOURCE`` of ``component`` moved to ``unet``, where no other source stands already.

    So what is typed replaces what a replayed image or the environment says, whichever way each is written.
    """
    found, rest = dict(options), []
    for text in options["component"]:
        name, _, source = text.partition("=")
        if name in SHORT and source and found.setdefault(name, source) == source:
            continue
        rest.append(text)
    return {**found, "component": rest}


def find_replacements(
    typed: Mapping[str, str],
    *,
    variant: str | None = None,
    offline: bool = False,
    headers: ExitStack | None = None,
    on_event: Listener = ignore,
) -> dict[str, Path]:
    """Component → its folder or file, or a pipeline's that has it; what is on the Hub is downloaded.

    With ``headers`` only the structure of that is fetched, until ``headers`` is closed. Raises ``InputError`` where a
    source is missing, and ``HubError``.
    """
    found: dict[str, Path] = {}
    for name, text in typed.items():
        source = parse_source(text)
        if headers is None:
            found[name] = component_path(source, name, variant=variant, offline=offline, on_event=on_event)
        else:
            structure = structure_of(source, variant=variant, offline=offline, on_event=on_event)
            found[name] = headers.enter_context(structure)
    return found
