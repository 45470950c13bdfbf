"""Flag before replayed image before environment before config file before default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardtool.errors import InputError, ShardtoolError, UsageError
from shardtool.images.layers import Layers, read_config
from shardtool.images.request import Delivery, Machine, option_names
from shardtool.images.resolve import ModelChoice
from shardtool.images.settings import Settings


def steps(**layers: Any) -> int:
    return Layers(**{"flags": {}, **layers}).fill(Settings).steps


def test_the_first_layer_that_has_a_value_wins() -> None:
    file, environment, record = {"steps": 2}, {"SHARDTOOL_STEPS": "3"}, {"steps": 4}
    assert steps() == 30
    assert steps(file=file) == 2
    assert steps(file=file, environment=environment) == 3
    assert steps(file=file, environment=environment, record=record) == 4
    assert steps(file=file, environment=environment, record=record, flags={"steps": 5}) == 5


def test_values_of_the_environment_take_the_type_of_the_option() -> None:
    environment = {
        "SHARDTOOL_GUIDANCE": "2.5",
        "SHARDTOOL_IMAGE": "a.png",
        "SHARDTOOL_GRID": "yes",
        "SHARDTOOL_SIDECAR": "0",
        "SHARDTOOL_LORA": "a.safetensors:0.5,b.safetensors",
        "SHARDTOOL_STEPS": "",
    }
    layers = Layers({}, environment=environment)
    assert layers.fill(Settings) == Settings(guidance=2.5, image=Path("a.png"))
    assert layers.fill(Delivery) == Delivery(grid=True, sidecar=False)
    assert layers.fill(ModelChoice).lora == ("a.safetensors:0.5", "b.safetensors")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("STEPS", "many", 'SHARDTOOL_STEPS "many" is not a whole number'),
        ("GUIDANCE", "x", "is not a number"),
        ("COMPILE", "perhaps", "is not yes or no"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable(name: str, value: str, words: str) -> None:
    layers = Layers({}, environment={f"SHARDTOOL_{name}": value})
    with pytest.raises(UsageError) as error:
        layers.fill(Machine if name == "COMPILE" else Settings)
    assert words in layers.blame(error.value).message


def test_a_choice_is_one_of_the_words() -> None:
    with pytest.raises(UsageError, match="--metadata") as error:
        Layers({"metadata": "some"}).fill(Delivery)
    assert error.value.hint == "write full, public, none"


def test_a_config_file_is_a_table_with_the_options(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[generate]\nsteps = 2\nguidance = 3\nnegative-prompt = "x"\nlora = ["a", "b:0.5"]\ngrid = true\n')
    layers = Layers({}, file=read_config(path, "generate", option_names()))
    assert layers.fill(Settings) == Settings(steps=2, guidance=3.0, negative_prompt="x")
    assert layers.fill(ModelChoice).lora == ("a", "b:0.5")
    assert layers.fill(Delivery).grid is True


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("[generate]\nstepz = 2\n", InputError, '"stepz" is no option of generate'),
        ("steps = 2\n", InputError, r"no table \[generate\]"),
        ("[generate\n", InputError, "not TOML"),
        ("[generate]\nsteps = " + "9" * 5000, InputError, "not TOML"),
        (None, InputError, "no such file"),
    ],
)
def test_a_bad_config_file(tmp_path: Path, text: str | None, error: type[ShardtoolError], words: str) -> None:
    path = tmp_path / "c.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=words):
        read_config(path, "generate", option_names())


def test_a_config_value_of_the_wrong_type_is_named() -> None:
    for value in ("x", 2.5, True):
        with pytest.raises(UsageError, match='--steps "'):
            steps(file={"steps": value})


@pytest.mark.parametrize("name", ["steps", "width", "scheduler", "seed"])
@pytest.mark.parametrize("layer", ["flags", "record", "environment", "file"])
def test_the_place_a_value_came_from_is_blamed(name: str, layer: str) -> None:
    """A file's value is damage of that file (exit 3), whoever finds it; a variable's is told of the variable."""
    values = {"flags": {}, "record": {}, "environment": {}, "file": {}} | {
        layer: {f"SHARDTOOL_{name.upper()}" if layer == "environment" else name: "x"}
    }
    layers = Layers(**values, record_path=Path("a.json"), file_path=Path("c.toml"))
    found = layers.blame(UsageError(f'--{name} "x" is wrong', code="wrong", hint=f"--{name} 8"))
    words = {"flags": f"--{name}", "record": f"a.json: {name}", "file": f"c.toml: {name}"}
    begin = words.get(layer, f"SHARDTOOL_{name.upper()}")
    assert (found.message, found.code) == (f'{begin} "x" is wrong', "wrong")
    assert found.exit_code == (3 if layer in ("record", "file") else 2)
    assert found.path == {"record": "a.json", "file": "c.toml"}.get(layer)


def test_what_the_command_line_contradicts_is_blamed_on_nothing_else() -> None:
    error = UsageError("--size contradicts --width and --height", code="contradiction")
    assert Layers({"size": "8x8"}, {"width": 8}, record_path=Path("a.json")).blame(error) is error
