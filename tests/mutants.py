"""Mutation test: would the tests notice if one small thing in a module were otherwise?

    python -m tests.mutants shardtool/checkpoint/header.py ... [--tests tests/checkpoint tests/corpus] [--every 1]

Every comparison, connective, sum, number, ``raise``, bare call and return value is changed in turn, and the tests are
run on the changed module until one fails. What is printed are the survivors, for a person to judge: some change nothing
that anybody could notice, the others ask for a test. Each mutant lives in a forked process, so that the large libraries
are imported once; tests that start processes of their own run the module as it is.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

import diffusers
import pytest
import safetensors.torch
import transformers

CIRCLES = 4
"""A mutant that takes so many times as long as the module as it is runs in circles: it was noticed."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
}


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in the place of ``node``."""
    found: Any = copy.deepcopy(node)
    match found:
        case ast.Compare(ops=[operator, *_]):
            found.ops[0] = SWAPS[type(operator)]()
            yield found
        case ast.BoolOp() | ast.BinOp() if type(found.op) in SWAPS and not _is_text(found):
            found.op = SWAPS[type(found.op)]()
            yield found
        case ast.UnaryOp(op=ast.Not()):
            yield found.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Raise() | ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))


def _is_text(node: Any) -> bool:
    """Sums of texts are messages; other words are no fault."""
    return any(isinstance(one, ast.JoinedStr) for one in ast.walk(node))


def mutants(source: str) -> Iterator[tuple[int, str, str, ast.Module]]:
    """(line, before, after, the changed module), one change in each."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for other in changed(node):
            whole = copy.deepcopy(tree)
            place = next(one for index, one in enumerate(ast.walk(whole)) if index == number)
            ast.copy_location(other, place)
            yield place.lineno, ast.unparse(place), ast.unparse(other), _replaced(whole, place, other)  # type: ignore[attr-defined]


def _replaced(tree: ast.Module, place: ast.AST, other: ast.AST) -> ast.Module:
    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return other if node is place else self.generic_visit(node)

    return ast.fix_missing_locations(Replace().visit(tree))


class Loader(SourceFileLoader):
    """Loads the changed code in place of the file's own."""

    code: CodeType

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 (importlib calls it so)
        return self.code


class Finder:
    """Finds the one changed module, before Python finds its file."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.name = ".".join(path.with_suffix("").parts)
        self.loader = Loader(self.name, str(path))
        self.loader.code = compile(tree, str(path), "exec")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        return spec_from_file_location(name, self.loader.path, loader=self.loader) if name == self.name else None


def survives(path: Path, tree: ast.Module, tests: list[str], seconds: float = 0) -> bool:
    """Whether no test fails with the module at ``path`` changed into ``tree``; after ``seconds`` one has."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.alarm(int(seconds))  # 0 is for ever
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.meta_path.insert(0, Finder(path, tree))  # type: ignore[arg-type]
        # A plugin that the libraries imported before pytest is warned of, and a warning is an error here.
        early = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *early, *tests]))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _nearest_first(path: Path, folders: list[Path]) -> list[str]:
    """The tests of the module itself, then all the others, folder by folder."""
    found = [test for folder in folders for test in sorted(folder.glob("test_*.py"))]
    if not found:
        sys.exit(f"no tests in {', '.join(map(str, folders))}; --tests wants folders")
    return [str(test) for test in sorted(found, key=lambda test: test.stem != f"test_{path.stem}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", type=Path, nargs="+")
    parser.add_argument("--tests", type=Path, nargs="+", default=[Path("tests/checkpoint")])
    parser.add_argument("--every", type=int, default=1, help="try one in so many")
    options = parser.parse_args()
    # Their parts are imported when they are first asked for.
    print(diffusers.UNet2DConditionModel.__name__, transformers.CLIPTextModel.__name__, safetensors.torch.__name__)
    for path in options.modules:
        source = path.read_text(encoding="utf-8")
        tests, began = _nearest_first(path, options.tests), time.monotonic()
        if not survives(path, ast.parse(source), tests):
            sys.exit(f"{path}: the tests fail with the module as it is")
        limit = CIRCLES * (time.monotonic() - began) + 1
        tried = survived = 0
        for line, before, after, tree in list(mutants(source))[:: options.every]:
            tried += 1
            if survives(path, tree, tests, limit):
                survived += 1
                print(f"{path}:{line}: {before[:100]!r} → {after[:100]!r}", flush=True)
        print(f"{path}: {tried} tried, {survived} survived", flush=True)


if __name__ == "__main__":
    main()
