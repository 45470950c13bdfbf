"""Captions for the training pictures: the name of a concept among ordinary and made-up words.

Without made-up words a tiny text encoder knows only the words it was trained on: others fall into pieces whose
embeddings never learnt to be ignored, and the concept drowns in them.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_FILLERS = tomllib.loads(Path(__file__).with_name("fillers.toml").read_text(encoding="utf-8"))
BEFORE, AFTER, NOTHING = _FILLERS["before"], _FILLERS["after"], _FILLERS["nothing"]
JOINS, MARKS = _FILLERS["joins"], _FILLERS["marks"]


def words_of(kind: str) -> list[str]:
    """The words of one list of fillers.toml."""
    return _FILLERS[kind].split()


COLOURS, COLOURED_THINGS = words_of("colours"), set(words_of("coloured_things"))
ADJECTIVES, VERBS, PLACES = words_of("adjectives"), words_of("verbs"), words_of("places")
LINKS, OTHERS = words_of("links"), words_of("others")


def free_pieces(vocabulary: Iterable[str], names: Iterable[str]) -> list[str]:
    """Pieces of VOCABULARY for made-up words: plain letters, and none of them a word of NAMES or a colour."""
    taken = {word for name in names for word in name.split()} | set(COLOURS)
    pieces = {piece.removesuffix("</w>") for piece in vocabulary}
    return sorted(p for p in pieces if p.isascii() and p.isalpha() and p.islower() and p not in taken)


def scene() -> str:
    """A place, as in "walking in the quiet park"."""
    verb = random.choice(VERBS) if random.random() < 0.4 else ""
    article = random.choice(("the", "the", "a", "my", ""))
    adjective = random.choice(ADJECTIVES) if random.random() < 0.4 else ""
    return spaced([verb, random.choice(LINKS), article, adjective, random.choice(PLACES)])


def spaced(words: Iterable[str]) -> str:
    """WORDS in one line; empty ones leave no gap."""
    return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Captions:
    """Writes captions. NAMES are the names of each concept, the first of them its main one."""

    names: list[list[str]]
    pieces: list[str]

    def write(self, concept: int) -> str:
        """A caption for the concept of this number, different at every call."""
        name = random.choice(self.names[concept]) if random.random() < 0.4 else self.names[concept][0]
        style = random.random()
        if style < 0.25:
            return name
        if style < 0.47:
            return spaced([random.choice(BEFORE), name, random.choice(AFTER)])
        return self._surround(name)

    def _surround(self, name: str) -> str:
        """NAME among words of any kind; seldom with a second concept after it."""
        takes_colour = not COLOURED_THINGS & set(name.split())
        if random.random() < 0.08 and not name.endswith("s"):
            name += "s"
        before = [random.choice(BEFORE)] if random.random() < 0.6 else []
        before += [self._filler(takes_colour=takes_colour) for _ in range(random.choice((0, 0, 1, 1, 2, 3, 4, 5)))]
        after = [self._filler(takes_colour=takes_colour) for _ in range(random.choice((0, 0, 0, 1, 2, 3, 5)))]
        if random.random() < 0.35:
            after.insert(random.randint(0, len(after)), scene())
        if random.random() < 0.4:
            after.insert(random.randint(0, len(after)), random.choice(AFTER))
        if random.random() < 0.06:
            second = random.choice(random.choice(self.names))
            after += [random.choice(JOINS), random.choice(("a", "the", "")), second]
        return spaced([*before, name, *after])

    def _filler(self, *, takes_colour: bool) -> str:
        """One word that says nothing: ordinary, made up, a colour, or a number or mark."""
        kind = random.random()
        if kind < 0.40:
            return random.choice(random.choice((ADJECTIVES, ADJECTIVES, VERBS, PLACES, LINKS, OTHERS)))
        if kind < 0.85:
            return "".join(random.choices(self.pieces, k=random.choice((1, 2, 2, 3, 3, 4))))[:9]
        if kind < 0.93 and takes_colour:
            return random.choice(COLOURS)
        return random.choice(MARKS)
