"""Options and arguments that two or more commands share, each declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from .completion import complete_replacement, complete_source


class ProgressMode(StrEnum):
    """How progress is shown: ``auto`` is bars on a terminal and lines elsewhere."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


SOURCE_FORMS = "a folder, a file, ORG/NAME[@REVISION][:SUBFOLDER] on the Hub, or demo"


def _replacement(name: str, help: str) -> Any:  # noqa: A002
    return typer.Option(name, metavar="SOURCE", help=help, autocompletion=complete_source)


SourceArg: TypeAlias = Annotated[
    str, typer.Argument(metavar="SOURCE", help=f"What to use: {SOURCE_FORMS}.", autocompletion=complete_source)
]
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
UnetOpt: TypeAlias = Annotated[str | None, _replacement("--unet", "This UNet in the pipeline, sharded or not.")]
VaeOpt: TypeAlias = Annotated[str | None, _replacement("--vae", "This VAE in the pipeline.")]
TextEncoderOpt: TypeAlias = Annotated[str | None, _replacement("--text-encoder", "This text encoder in the pipeline.")]
TextEncoder2Opt: TypeAlias = Annotated[
    str | None, _replacement("--text-encoder-2", "This second text encoder in the pipeline.")
]
ReplacementsOpt: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--component",
        metavar="NAME=SOURCE",
        help="This component in the pipeline, such as scheduler=SOURCE; may be repeated.",
        autocompletion=complete_replacement,
    ),
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
