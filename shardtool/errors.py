"""What can go wrong, and the exit code each kind of failure has.

::

    ShardtoolError            (70: never raised itself)
    ├── UsageError             2  what was typed makes no sense
    ├── InputError             3  an input is missing, damaged, or does not fit
    ├── RefusedError           4  possible in principle, refused here: placement, memory, disk, target exists
    ├── RunError               5  it ran, and failed or partly failed
    └── HubError               6  the Hub or the network said no

"The answer is no" (``verify`` found damage, ``diff`` a difference) is exit code 1 and no error; a bug is 70 and an
interruption 130, both decided by the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

REPLACE_FILE = "fetch or write the file again"
"""The hint for a file whose bytes are damaged."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: a stable ``code``, and a sentence that names the file, the tensor and the fault.

    ``path`` and ``tensor`` repeat, for machines, what the message says in words; ``hint`` says what to do.
    A ``warning`` is worth telling but stops nothing.
    """

    code: str
    message: str
    path: str | None = None
    tensor: str | None = None
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class ShardtoolError(Exception):
    """A failure that is explained to the user. ``code`` is stable; ``hint`` says what to type or do next.

    ``problems`` lists everything that was found, where one fault is not the whole story.
    """

    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        message: str,
        *,
        code: str,
        hint: str | None = None,
        path: object = None,
        tensor: str | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.path = None if path is None else str(path)
        self.tensor = tensor
        self.problems = tuple(problems)

    @classmethod
    def of_all(cls, problems: Sequence[Problem]) -> Self:
        """The error that reports these problems, at least one; it speaks with the first one's words."""
        first = problems[0]
        return cls(
            first.message,
            code=first.code,
            hint=first.hint,
            path=first.path,
            tensor=first.tensor,
            problems=problems,
        )

    def as_problem(self) -> Problem:
        """This error as one entry of a list of problems."""
        return Problem(self.code, self.message, self.path, self.tensor, self.hint)

    def as_problems(self) -> tuple[Problem, ...]:
        """Everything that was found, or this error as the only entry."""
        return self.problems or (self.as_problem(),)

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "path": self.path,
            "tensor": self.tensor,
            "hint": self.hint,
            "problems": [problem.as_json() for problem in self.problems],
        }


class UsageError(ShardtoolError):
    """What was typed makes no sense: a malformed size, two options that exclude each other."""

    exit_code = 2


class InputError(ShardtoolError):
    """An input is missing, damaged, or does not fit the rest."""

    exit_code = 3


class RefusedError(ShardtoolError):
    """Possible in principle, refused here: no such device, too little memory or disk, the target exists."""

    exit_code = 4


class RunError(ShardtoolError):
    """It ran and failed, or part of it failed."""

    exit_code = 5


class HubError(ShardtoolError):
    """The Hub or the network said no: not found, gated, offline."""

    exit_code = 6
