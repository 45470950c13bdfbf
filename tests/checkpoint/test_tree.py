"""The module tree: sums are right at every depth, and alike layers take one row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardtool.checkpoint.header import TensorInfo
from shardtool.checkpoint.tree import Module, module_tree, natural_key, rows

PARTS = st.sampled_from(["down", "up", "0", "1", "2", "10", "weight"])
NAMES = st.lists(st.lists(PARTS, min_size=1, max_size=4).map(".".join), unique=True, max_size=12)


def info(name: str, side: int = 3) -> TensorInfo:
    return TensorInfo(name, "F16", (side,), 0, 2 * side)


def below(module: Module) -> int:
    return sum(child.parameters for child in module.children.values())


@given(NAMES, st.integers(0, 4))
def test_a_module_holds_at_least_what_its_children_hold(names: list[str], depth: int) -> None:
    root = module_tree([info(name) for name in names], depth)
    assert (root.tensors, root.parameters, root.nbytes) == (len(names), 3 * len(names), 6 * len(names))
    waiting = [root]
    while waiting:
        module = waiting.pop()
        assert below(module) <= module.parameters
        waiting.extend(module.children.values())


@given(NAMES, st.integers(1, 4))
def test_the_rows_of_the_first_level_hold_everything(names: list[str], depth: int) -> None:
    root = module_tree([info(name) for name in names], depth)
    first = [module for level, _, module in rows(root) if level == 0]
    assert sum(module.parameters for module in first) == root.parameters
    # Tensors without a dot are in no module, and stand together.
    assert sum(module.tensors for module in first if module.name == "") == sum("." not in name for name in names)


def test_alike_layers_in_a_row_are_one_line() -> None:
    names = [f"layers.{number}.{part}.weight" for number in range(12) for part in ("q", "k")] + ["layers.12.q.weight"]
    found = [(level, module.name, module.alike) for level, _, module in rows(module_tree(map(info, names), 2))]
    assert found == [(0, "layers", 1), (1, "0–11", 12), (1, "12", 1)]


def test_numbers_sort_as_numbers() -> None:
    assert sorted(["a.10.b", "a.2.b", "a.b", "a.1"], key=natural_key) == ["a.1", "a.2.b", "a.10.b", "a.b"]
