"""The options of ``generate``. Each is ``None`` where it was not typed: its default stands in the core, beside the
field of the same name, and the environment and a config file come before it (see ``shardtool.images.layers``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from .completion import complete_source

Text: TypeAlias = str | None
Number: TypeAlias = int | None
Real: TypeAlias = float | None
Flag: TypeAlias = bool | None
Texts: TypeAlias = list[str] | None
File: TypeAlias = Path | None


def _option(*names: str, metavar: str | None = None, help: str, **more: Any) -> Any:  # noqa: A002
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


PromptArg: TypeAlias = Annotated[
    Texts,
    typer.Argument(metavar="PROMPT...", help="What to draw; several are several pictures. - reads standard input."),
]
PromptOpt: TypeAlias = Annotated[Texts, typer.Option("--prompt", "-p", hidden=True)]
PromptsFileOpt: TypeAlias = Annotated[
    Text,
    _option(
        "--prompts-file",
        metavar="FILE",
        help="One prompt a line, with --n --w --h --s --d --l; or JSON Lines.",
    ),
]
Prompt2Opt: TypeAlias = Annotated[
    Text, _option("--prompt-2", metavar="TEXT", help="For the second text encoder [the prompt].")
]
NegativeOpt: TypeAlias = Annotated[Text, _option("--negative-prompt", "-n", metavar="TEXT", help="What not to draw.")]
Negative2Opt: TypeAlias = Annotated[
    Text, _option("--negative-prompt-2", metavar="TEXT", help="For the second text encoder.")
]
SeedOpt: TypeAlias = Annotated[
    Texts, _option("--seed", "-s", metavar="LIST", help="7, 1-4, or 1-4,9 [a random one, reported].")
]
CountOpt: TypeAlias = Annotated[
    Number, _option("--count", "-c", metavar="N", help="Images from each seed: s, s+1, … [1].")
]
StepsOpt: TypeAlias = Annotated[
    Number, _option("--steps", "--num-inference-steps", metavar="N", help="Denoising steps [30].")
]
GuidanceOpt: TypeAlias = Annotated[
    Real,
    _option(
        "--guidance",
        "-g",
        "--guidance-scale",
        "--cfg-scale",
        metavar="X",
        help="How closely to follow [5.0].",
    ),
]
SchedulerOpt: TypeAlias = Annotated[
    Text, _option("--scheduler", metavar="NAME", help="euler, dpmpp-2m-karras, … [the model's own].")
]
ListSchedulersOpt: TypeAlias = Annotated[
    bool, _option("--list-schedulers", help="Show the names of schedulers, and do nothing else.")
]
WidthOpt: TypeAlias = Annotated[Number, _option("--width", "-W", metavar="PX", help="[the model's own]")]
HeightOpt: TypeAlias = Annotated[Number, _option("--height", "-H", metavar="PX", help="[the model's own]")]
SizeOpt: TypeAlias = Annotated[Text, _option("--size", metavar="WxH", help="Width and height in one.")]
ImageOpt: TypeAlias = Annotated[File, _option("--image", "-i", metavar="FILE", help="Start from this image.")]
StrengthOpt: TypeAlias = Annotated[
    Real, _option("--strength", metavar="X", help="How much of the image is redrawn, 0 to 1 [0.6].")
]
MaskOpt: TypeAlias = Annotated[
    File, _option("--mask", metavar="FILE", help="Redraw the image only where this is white.")
]

ModelOpt: TypeAlias = Annotated[
    Text,
    _option(
        "--model",
        "-m",
        metavar="SOURCE",
        help="The pipeline [the embedded demo, or the UNet's own].",
        autocompletion=complete_source,
    ),
]
LoraOpt: TypeAlias = Annotated[
    Texts, _option("--lora", metavar="SOURCE[:SCALE]", help="Add this LoRA; may be given several times.")
]
VariantOpt: TypeAlias = Annotated[
    Text, _option("--variant", metavar="NAME", help="Which weights: fp16, for files named *.fp16.*.")
]
RevisionOpt: TypeAlias = Annotated[Text, _option("--revision", metavar="REV", help="Branch, tag or commit of --model.")]
OfflineOpt: TypeAlias = Annotated[Flag, _option("--offline", help="Use the Hub's cache only, never the network.")]

OutputOpt: TypeAlias = Annotated[
    Text,
    _option(
        "--output",
        "-o",
        metavar="PATH",
        help="A file, a folder/, a template such as out/{prompt}-{seed}.png, or - [{prompt}-{seed}.png].",
    ),
]
FormatOpt: TypeAlias = Annotated[Text, _option("--format", metavar="png|jpg|webp", help="[png]")]
OverwriteOpt: TypeAlias = Annotated[Flag, _option("--overwrite", "-f", help="Replace images that are there.")]
SkipExistingOpt: TypeAlias = Annotated[
    Flag,
    _option("--skip-existing", help="Keep images that are there and were made so; make the others."),
]
SidecarOpt: TypeAlias = Annotated[Flag, _option("--sidecar", help="Beside each image, a .json of how it was made.")]
GridOpt: TypeAlias = Annotated[Flag, _option("--grid", help="A contact sheet, grid.png, in the folder.")]
GalleryOpt: TypeAlias = Annotated[
    Flag, _option("--gallery", help="One HTML page with all images, gallery.html, in the folder.")
]
PreviewOpt: TypeAlias = Annotated[Flag, _option("--preview", help="Show the images in the terminal.")]
PreviewEveryOpt: TypeAlias = Annotated[
    Number, _option("--preview-every", metavar="N", help="Show them every N steps while they become.")
]
MetadataOpt: TypeAlias = Annotated[
    Text,
    _option("--metadata", metavar="full|public|none", help="What the files say of how they were made [full]."),
]
ReplayOpt: TypeAlias = Annotated[
    File,
    _option("--replay", metavar="IMAGE", help="Make this image (or its .json) again; what is typed wins."),
]
ExpectOpt: TypeAlias = Annotated[
    Text,
    _option(
        "--expect",
        metavar="same|close[:DB]",
        help="Exit 1 unless the replay is the same, or close (30 dB); without -o nothing is written.",
    ),
]
KeepLatentsOpt: TypeAlias = Annotated[
    Flag, _option("--keep-latents", help="On Ctrl-C keep the image in hand, to go on with --resume.")
]
ResumeOpt: TypeAlias = Annotated[
    File, _option("--resume", metavar="FILE", help="Go on with an image that was stopped.")
]

DeviceOpt: TypeAlias = Annotated[
    Text, _option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:N, mps, xpu [auto].")
]
DtypeOpt: TypeAlias = Annotated[Text, _option("--dtype", metavar="DTYPE", help="auto, fp32, fp16, bf16 [auto].")]
OffloadOpt: TypeAlias = Annotated[
    Text, _option("--offload", metavar="MODE", help="auto, none, model, group, sequential [auto].")
]
ForceOpt: TypeAlias = Annotated[
    Flag, _option("--force", help="Try although it does not fit into memory by the numbers.")
]
VaeTilingOpt: TypeAlias = Annotated[
    Flag, _option("--vae-tiling", help="Decode large images in tiles: less memory, slightly other pixels.")
]
VaeSlicingOpt: TypeAlias = Annotated[
    Flag, _option("--vae-slicing", help="Decode one image at a time, as is done anyway.")
]
CompileOpt: TypeAlias = Annotated[Flag, _option("--compile", help="Compile the UNet first: pays off in long runs.")]
BatchSizeOpt: TypeAlias = Annotated[
    Number,
    _option("--batch-size", metavar="N", help="Taken, and changes no pixel: images are made one by one [1]."),
]
OnLongPromptOpt: TypeAlias = Annotated[
    Text,
    _option(
        "--on-long-prompt",
        metavar="warn|error|chunk",
        help="What to do with a prompt beyond the tokenizer's limit; chunk encodes all of it [warn].",
    ),
]
KeepGoingOpt: TypeAlias = Annotated[
    Flag, _option("--keep-going", help="Go on after an image that fails; exit 5 at the end.")
]
ConfigOpt: TypeAlias = Annotated[
    File, _option("--config", metavar="FILE", help="Options from the table [generate] of a TOML file.")
]
DryRunOpt: TypeAlias = Annotated[
    bool, _option("--dry-run", help="Show what would be made and with what; load no weights.")
]
