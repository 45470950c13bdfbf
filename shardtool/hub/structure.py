"""Which files of a source tell of its structure, judged by their names, the indexes and model_index.json."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shardtool.checkpoint.digests import DIGESTS_NAME
from shardtool.checkpoint.folder import read_pipeline, weights_among
from shardtool.checkpoint.index import shards_of
from shardtool.checkpoint.names import COMPONENT_STEMS, CONFIG_NAME, PIPELINE_NAME, parse_name
from shardtool.checkpoint.needed import TEXTS
from shardtool.errors import InputError

_CONFIGS = (CONFIG_NAME, DIGESTS_NAME)
"""How the small files end, beside indexes, that say something about the structure; vocabularies do not."""


@dataclass(frozen=True)
class Structure:
    """Which of the ``names`` laid out in ``root`` say something about the structure of a source.

    Of one ``file``, itself; of a component or a pipeline's components the weights of ``variant`` and the default ones,
    or of all variants for ``None``; with ``texts`` also what tokenizers consist of. Whatever is damaged is passed over:
    whoever looks finds it again.
    """

    root: Path
    names: Collection[str]
    file: str | None
    variant: str | None
    texts: bool

    def first_files(self) -> list[str]:
        """What must be there before the rest can be told."""
        return [PIPELINE_NAME] if PIPELINE_NAME in self.names and self.file is None else []

    def small_files(self) -> list[str]:
        """Configs and indexes."""
        if self.file is not None:
            return [self.file] if self._is_index(self.file) else [name for name in self.names if name == CONFIG_NAME]
        return [name for folder in self._folders() for name in self._in(folder) if self._is_small(name)]

    def weights(self) -> list[str]:
        """The files that hold headers, those included that an index names."""
        if self.file is not None:
            return self._named_by(self.file) if self._is_index(self.file) else [self.file]
        found = []
        for folder in self._folders():
            sets = weights_among(PurePosixPath(name).name for name in self._in(folder))
            for weights in sets.values():
                own_name = weights.name.stem in COMPONENT_STEMS or len(sets) == 1
                if own_name and (self.variant is None or weights.name.variant in (self.variant, None)):
                    found += [f"{folder}{name}" for name in weights if name not in weights.indexes]
                    found += [shard for index in weights.indexes for shard in self._named_by(f"{folder}{index}")]
        return list(dict.fromkeys(found))

    def _folders(self) -> list[str]:
        """The folders with components, each with its slash; the root of a lone component is ``""``."""
        if PIPELINE_NAME not in self.names:
            return [""]
        try:
            return [f"{component}/" for component in read_pipeline(self.root).components]
        except InputError:
            return []

    def _in(self, folder: str) -> list[str]:
        return [name for name in self.names if name.startswith(folder) and "/" not in name.removeprefix(folder)]

    def _is_index(self, name: str) -> bool:
        parsed = parse_name(PurePosixPath(name).name)
        return parsed is not None and parsed.is_index

    def _is_small(self, name: str) -> bool:
        return name.endswith(_CONFIGS) or self._is_index(name) or (self.texts and name.endswith(TEXTS))

    def _named_by(self, index: str) -> list[str]:
        folder = index.removesuffix(PurePosixPath(index).name)
        return [f"{folder}{name}" for name in shards_of(self.root / index) if f"{folder}{name}" in self.names]
