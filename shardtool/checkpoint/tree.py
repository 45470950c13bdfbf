"""The modules of a checkpoint as a tree, read off the tensors' names: ``down_blocks.1.attentions.0.norm.weight``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardtool.checkpoint.header import TensorInfo

_PARTS = re.compile(r"(\d+)")


@dataclass
class Module:
    """A module and everything below it. ``name`` is its last part, or ``"0–11"`` for alike neighbours in one row."""

    name: str
    tensors: int = 0
    parameters: int = 0
    nbytes: int = 0
    dtypes: set[str] = field(default_factory=set)
    children: dict[str, Module] = field(default_factory=dict)
    alike: int = 1

    def _count(self, info: TensorInfo) -> None:
        self.tensors += 1
        self.parameters += info.elements
        self.nbytes += info.nbytes
        self.dtypes.add(info.dtype)

    def _same_form(self, other: Module) -> bool:
        """Whether the two differ in nothing but their names, as the layers of a transformer do."""
        return (
            (self.tensors, self.parameters, self.nbytes) == (other.tensors, other.parameters, other.nbytes)
            and self.children.keys() == other.children.keys()
            and all(child._same_form(other.children[name]) for name, child in self.children.items())
        )

    def _absorb(self, other: Module) -> None:
        self.tensors += other.tensors
        self.parameters += other.parameters
        self.nbytes += other.nbytes
        self.dtypes |= other.dtypes
        self.alike += 1


def module_tree(tensors: Iterable[TensorInfo], depth: int) -> Module:
    """The tree down to ``depth`` levels below the root; what lies deeper is counted in its ancestors.

    A tensor's own last part (``weight``) is no module; tensors in none are those of the module named ``""``. Children
    are in natural order: ``2`` before ``10``.
    """
    root = Module("")
    for info in tensors:
        root._count(info)
        module = root
        for part in info.name.split(".")[:-1][:depth] or [""]:
            module = module.children.setdefault(part, Module(part))
            module._count(info)
    return root


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """A sort key that puts ``block2`` before ``block10``."""
    parts = (part for part in _PARTS.split(name) if part)
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts]


def rows(root: Module) -> Iterator[tuple[int, bool, Module]]:
    """The modules below ``root`` in reading order, as (level from 0, whether it is the last of its siblings, module).

    Numbered neighbours of one form are one row with their sums, named ``0–11``.
    """
    yield from _rows(root, 0)


def _rows(parent: Module, level: int) -> Iterator[tuple[int, bool, Module]]:
    siblings = list(_gathered(sorted(parent.children.values(), key=lambda child: natural_key(child.name))))
    for position, module in enumerate(siblings):
        yield level, position == len(siblings) - 1, module
        yield from _rows(module, level + 1)


def _gathered(siblings: Iterable[Module]) -> Iterator[Module]:
    group: list[Module] = []
    for module in siblings:
        follows = bool(group) and module.name.isdecimal() and _is_next(group[-1].name, module.name)
        if follows and group[0]._same_form(module):
            group.append(module)
            continue
        yield from _as_rows(group)
        group = [module]
    yield from _as_rows(group)


def _is_next(name: str, following: str) -> bool:
    return name.isdecimal() and following.isdecimal() and int(following) == int(name) + 1


def _as_rows(group: list[Module]) -> Iterator[Module]:
    if len(group) < 3:  # a range of two is no shorter than the two
        yield from group
        return
    first = group[0]
    merged = Module(f"{first.name}–{group[-1].name}", children=first.children, alike=0)
    for module in group:
        merged._absorb(module)
    yield merged
