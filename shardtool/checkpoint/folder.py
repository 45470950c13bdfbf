"""What lies in a folder: which weights, under which names and variants, and of what kind the folder is."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import (
    COMPONENT_STEMS,
    CONFIG_NAME,
    PIPELINE_NAME,
    ParsedName,
    WeightsName,
    parse_name,
    parse_pickle,
)
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError

Kind: TypeAlias = Literal["file", "component", "pipeline"]

PICKLE_SUFFIXES = (".bin", ".pt", ".ckpt", ".pth")


@dataclass(frozen=True)
class WeightsFiles:
    """All files of one name in a folder: the single file, the index and the shards, as far as they exist."""

    name: WeightsName
    single: str | None = None
    indexes: tuple[str, ...] = ()
    shards: Mapping[str, ParsedName] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        """Every file name, indexes first."""
        yield from self.indexes
        if self.single is not None:
            yield self.single
        yield from self.shards

    def first(self, library: str | None) -> str | None:
        """What ``library`` begins with; ``None`` where there are shards alone, which cannot be loaded.

        Of an index and a single file side by side, diffusers takes the index, transformers the file.
        """
        if self.indexes and not (self.single and library == "transformers"):
            return self.indexes[0]
        return self.single


def kind_of(path: Path) -> Kind:
    """Whether ``path`` is a weights file (or an index), a component or a pipeline. Raises ``InputError`` if none."""
    if path.is_dir():
        if kind := kind_among(names_in(path)):
            return kind
        raise InputError(
            f"{path}: holds no {PIPELINE_NAME}, no {CONFIG_NAME} and no weights",
            code="not_a_checkpoint",
            path=path,
            hint="name a pipeline folder, a component folder such as unet/, or a .safetensors file",
        )
    if path.exists() or path.is_symlink():
        return "file"
    raise InputError(f"{path}: no such file or folder", code="file_missing", path=path)


def kind_among(names: Collection[str]) -> Literal["component", "pipeline"] | None:
    """Of which kind a folder with files of these ``names`` is; ``None`` if it is neither. Pickles are weights too."""
    if PIPELINE_NAME in names:
        return "pipeline"
    if CONFIG_NAME in names or weights_among(names) or any(name.endswith(PICKLE_SUFFIXES) for name in names):
        return "component"
    return None


def weights_in(folder: Path) -> dict[WeightsName, WeightsFiles]:
    """Every set of safetensors weights in ``folder``, by name. The files are only listed, none is opened."""
    return weights_among(names_in(folder))


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder, as far as it may be looked at: ``Path.is_dir`` raises where it may not."""
    return os.path.isdir(path)  # noqa: PTH112


def names_in(folder: Path) -> list[str]:
    """The names of everything directly in ``folder``, sorted. Raises ``InputError`` where it cannot be listed."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed: {error.strerror}", code="unreadable", path=folder) from error


def weights_among(names: Iterable[str]) -> dict[WeightsName, WeightsFiles]:
    """Every set of safetensors weights among the file names of one folder, by name."""
    singles: dict[WeightsName, str] = {}
    indexes: dict[WeightsName, list[str]] = {}
    shards: dict[WeightsName, dict[str, ParsedName]] = {}
    for filename in sorted(names):
        parsed = parse_name(filename)
        if parsed is None:
            continue
        if parsed.is_index:
            indexes.setdefault(parsed.name, []).append(filename)
        elif parsed.is_shard:
            shards.setdefault(parsed.name, {})[filename] = parsed
        else:
            singles[parsed.name] = filename
    return {
        name: WeightsFiles(name, singles.get(name), tuple(indexes.get(name, ())), shards.get(name, {}))
        for name in sorted({*singles, *indexes, *shards}, key=lambda name: (name.stem, name.variant or ""))
    }


def choose_weights(folder: Path, variant: str | None = None) -> WeightsFiles:
    """The weights that ``variant`` means in a component folder (``None``: the default ones).

    A component's own names win over any other single file. Raises ``InputError`` naming what is there instead.
    """
    return choose_among(names_in(folder), variant, folder)


def choose_among(names: Collection[str], variant: str | None, folder: Path) -> WeightsFiles:
    """Like ``choose_weights``, among the file ``names`` that ``folder`` is known to hold."""
    found = weights_among(names)
    for stem in COMPONENT_STEMS:
        if files := found.get(WeightsName(stem, variant)):
            return files
    others = [files for name, files in found.items() if name.stem not in COMPONENT_STEMS]
    if variant is None and len(others) == 1 and len(found) == 1:
        return others[0]
    raise _absent(names, variant, folder, found)


def _absent(
    names: Collection[str], variant: str | None, folder: Path, found: Mapping[WeightsName, WeightsFiles]
) -> InputError:
    component = [name for name in found if name.stem in COMPONENT_STEMS]
    if component:
        wanted = f"no {variant} variant" if variant else "no default weights"
        present = ", ".join(name.variant or "default" for name in component)
        hint = "leave out --variant" if None in {name.variant for name in component} else None
        hint = hint or f"try --variant {component[0].variant}"
        return InputError(f"{folder}: has {wanted}; present: {present}", code="variant_absent", path=folder, hint=hint)
    if found:
        several = ", ".join(name.single for name in found)
        return InputError(
            f"{folder}: holds several checkpoints ({several})",
            code="ambiguous",
            path=folder,
            hint="name one of the files",
        )
    pickles = sorted(name for name in names if name.endswith(PICKLE_SUFFIXES))
    if pickles:
        known = any(parse_pickle(name) for name in pickles)
        return InputError(
            f"{folder}: holds only pickled weights ({', '.join(pickles[:3])})",
            code="pickle",
            path=folder,
            hint=f"convert them with `shardtool shard {folder if known else folder / pickles[0]} --allow-pickle`",
        )
    return InputError(f"{folder}: holds no weights", code="weights_missing", path=folder)


@dataclass(frozen=True)
class PipelineFolder:
    """A folder with ``model_index.json``. ``components`` is name → (library, class), without the absent ones.

    ``custom_module`` names the Python module of a pipeline that brings its own code, which is never run.
    """

    path: Path
    class_name: str
    components: Mapping[str, tuple[str, str]]
    settings: Mapping[str, Any]
    custom_module: str | None = None

    def folder(self, component: str) -> Path:
        """Where a component lies. Raises ``InputError`` where that is a link out of the pipeline."""
        check_link(self.path, self.path / component)
        return self.path / component

    def with_weights(self) -> list[str]:
        """The components whose folder holds safetensors weights, in the order of ``model_index.json``."""
        return [name for name in self.components if is_folder(self.folder(name)) and weights_in(self.folder(name))]


def read_pipeline(path: Path) -> PipelineFolder:
    """Read ``model_index.json`` of a pipeline folder. Raises ``InputError`` where it is damaged."""
    index = path / PIPELINE_NAME
    check_link(path, index)
    content = read_json_object(index, code="model_index_invalid")
    class_name, custom_module = content.get("_class_name"), None
    if isinstance(class_name, list) and len(class_name) == 2:
        custom_module, class_name = str(class_name[0]), class_name[1]
    if not isinstance(class_name, str) or not class_name.isidentifier():
        raise InputError(f"{index}: names no pipeline class in _class_name", code="model_index_invalid", path=index)
    components: dict[str, tuple[str, str]] = {}
    settings: dict[str, Any] = {}
    for key, value in content.items():
        if key.startswith("_"):
            continue
        is_component = isinstance(value, list) or (key.isidentifier() and is_folder(path / key))
        if not is_component:
            settings[key] = value
        elif isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value):
            _check_component_name(index, key)
            components[key] = (value[0], value[1])
        elif value != [None, None]:
            raise InputError(
                f"{index}: component {key!r:.80} is {value!r:.80}, not [library, class]",
                code="model_index_invalid",
                path=index,
            )
    return PipelineFolder(path, class_name, components, settings, custom_module)


def _check_component_name(index: Path, name: str) -> None:
    # The name becomes a folder's name, so it must not lead elsewhere.
    if not name.isidentifier():
        raise InputError(f"{index}: {name!r:.80} is no component name", code="unsafe_path", path=index)
