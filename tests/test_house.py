"""The rules of the house, held by machine: what is packaged, who imports whom, and what stays out of light commands."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY_TO_DRAW = {"rich", "textual_image", "PIL"}
HEAVY = {"torch", "diffusers", "transformers", "accelerate", "huggingface_hub", "numpy"}
CORE = sorted((ROOT / "shardtool").rglob("*.py"))
CHECKPOINT = sorted((ROOT / "shardtool" / "checkpoint").rglob("*.py"))
FACE = sorted((ROOT / "cli").rglob("*.py"))


def imported(path: Path, *, module_level_only: bool = False) -> Iterator[str]:
    """The absolute names that a module imports, those under ``if TYPE_CHECKING`` left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        or (module_level_only and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def roots(names: Iterator[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_the_list_of_packages_is_complete() -> None:
    """A sub-package that is forgotten works in a checkout and is missing from the wheel; of a folder of data that is
    not named, setuptools warns at length."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(settings["tool"]["setuptools"]["packages"])
    demo = ROOT / "shardtool/demo"
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "shardtool").rglob("__init__.py")}
    folders |= {path.relative_to(ROOT) for path in (demo, *demo.iterdir()) if path.is_dir()}
    assert listed == {".".join(folder.parts) for folder in folders} | {"shardtool_cli"}


@pytest.mark.parametrize("path", CHECKPOINT, ids=lambda path: path.stem)
def test_checkpoint_imports_the_standard_library_only(path: Path) -> None:
    ours = {"shardtool.errors", "shardtool.events", "shardtool.sizes"}
    foreign = {
        name
        for name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and name not in ours
        and not name.startswith("shardtool.checkpoint")
    }
    assert foreign == set()


def test_the_checkpoint_package_is_laid_out_as_its_docstring_says() -> None:
    package = ROOT / "shardtool" / "checkpoint"
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = [line.strip().split("  ", 1)[1].split() for line in text.splitlines() if line.startswith("    ")]
    levels = {name: level for level, names in enumerate(lines) for name in names}
    assert sorted(levels) == sorted(path.stem for path in CHECKPOINT if path.stem != "__init__")
    assert len(levels) == sum(map(len, lines))
    for name, level in levels.items():
        ours = {found.split(".")[2] for found in imported(package / f"{name}.py") if found.count(".") == 2}
        assert {other for other in ours if levels[other] > level} == set(), name


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_knows_no_terminal(path: Path) -> None:
    assert roots(imported(path)) & {"rich", "typer", "cli", "shardtool_cli"} == set()


@pytest.mark.parametrize("path", FACE, ids=lambda path: path.stem)
def test_the_command_line_imports_nothing_heavy_at_module_level(path: Path) -> None:
    assert roots(imported(path, module_level_only=True)) & (HEAVY | HEAVY_TO_DRAW) == set()


def loaded_by(*arguments: str) -> tuple[int, set[str]]:
    """The exit code of ``shardtool ARGUMENTS``, and which heavy modules were loaded when it ended."""
    program = (
        "import json, sys\n"
        "from cli.app import main\n"
        "try:\n    main()\n"
        "except SystemExit as leaving:\n"
        f"    print(json.dumps([leaving.code, sorted({HEAVY!r} & set(sys.modules))]), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    code, modules = json.loads(ran.stderr.splitlines()[-1])
    return code or 0, set(modules)


def command_names() -> list[str]:
    from cli.app import COMMANDS

    return [function.__name__ for function in COMMANDS]


@pytest.mark.parametrize("name", ["", *command_names()])
def test_help_loads_nothing_heavy(name: str) -> None:
    assert loaded_by(*filter(None, [name]), "--help") == (0, set())


def test_light_commands_load_nothing_heavy(tmp_path: Path) -> None:
    """Sharding, merging, looking and comparing never start torch or the Hub's client."""
    sharded, merged = tmp_path / "sharded", tmp_path / "merged"
    assert loaded_by("shard", "demo", "--max-size", "1MB", "-o", str(sharded)) == (0, set())
    assert loaded_by("merge", str(sharded), "-o", str(merged)) == (0, set())
    assert loaded_by("inspect", str(sharded)) == (0, set())


def test_every_command_has_a_help_text_with_examples() -> None:
    from cli.app import COMMANDS

    for command in COMMANDS:
        text = command.function.__doc__ or ""
        assert "Examples:" in text, command.__name__
        assert f"shardtool {command.__name__}" in text, command.__name__


def test_nothing_dangerous_is_called_in_the_product() -> None:
    """No pickle, no eval, no shell, no remote code: promised in SECURITY.md."""
    banned = {"eval", "exec", "compile", "__import__"}
    for path in [*CORE, *FACE]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in banned, f"{path}:{node.lineno}"
            if isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "shell"):
                assert isinstance(node.value, ast.Constant), f"{path}: {node.arg}"
                assert node.value.value is False, f"{path}: {node.arg}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pickle":
                assert node.attr == "UnpicklingError", f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                assert "weights_only=True" in ast.unparse(node), f"{path}:{node.lineno}"
        assert roots(imported(path)) & {"marshal", "shelve", "yaml"} == set(), path
