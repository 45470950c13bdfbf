"""Options and arguments that two or more commands share, each declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from .completion import complete_source


class ProgressMode(StrEnum):
    """How progress is shown: ``auto`` is bars on a terminal and lines elsewhere."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


SOURCE_FORMS = "a folder, a file, ORG/NAME[@REVISION][:SUBFOLDER] on the Hub, or demo"

SourceArg: TypeAlias = Annotated[
    str, typer.Argument(metavar="SOURCE", help=f"What to use: {SOURCE_FORMS}.", autocompletion=complete_source)
]
OutputOpt: TypeAlias = Annotated[Path | None, typer.Option("--output", "-o", metavar="PATH", help="Where to write.")]
OverwriteOpt: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", "-f", help="Replace what is there. Without it, an existing target is refused.")
]
DryRunOpt: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
VariantOpt: TypeAlias = Annotated[
    str | None, typer.Option("--variant", metavar="NAME", help="Which weights: fp16, for files named *.fp16.*.")
]
RevisionOpt: TypeAlias = Annotated[
    str | None, typer.Option("--revision", metavar="REV", help="Branch, tag or commit of a Hub source.")
]
SubfolderOpt: TypeAlias = Annotated[
    str | None, typer.Option("--subfolder", metavar="DIR", help="The folder inside the source to use.")
]
OfflineOpt: TypeAlias = Annotated[bool, typer.Option("--offline", help="Use the Hub's cache only, never the network.")]

JsonOpt: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")]
QuietOpt: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result and errors.")]
VerboseOpt: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
DebugOpt: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
NoColorOpt: TypeAlias = Annotated[bool, typer.Option("--no-color", help="No colours, as with NO_COLOR set.")]
ProgressOpt: TypeAlias = Annotated[
    ProgressMode, typer.Option("--progress", help="How progress is shown, on stderr.", show_default=True)
]
