from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.checkpoint.names import SCHEDULER_NAME
from shardtool.errors import InputError, UsageError
from shardtool.parts import read_parts
from shardtool.replacements import SHORT, read_replacements, with_own_options
from tests.models import copied, edited

NAMES = st.sampled_from([*SHORT, "scheduler", "tokenizer"])
SOURCES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAMES, SOURCES))
def test_both_ways_to_write_it_mean_the_same(wanted: dict[str, str]) -> None:
    """Everything after the first = is the source, whatever it is."""
    texts = [f"{name}={source}" for name, source in wanted.items()]
    assert read_replacements({}, texts) == wanted
    short = {name: source for name, source in wanted.items() if name in SHORT}
    rest = [text for text in texts if text.partition("=")[0] not in SHORT]
    assert read_replacements({**dict.fromkeys(SHORT), **short}, rest) == wanted


@given(st.dictionaries(NAMES, SOURCES), st.dictionaries(st.sampled_from(SHORT), SOURCES))
def test_with_own_options_says_the_same_as_before(listed: dict[str, str], own: dict[str, str]) -> None:
    texts = [f"{name}={source}" for name, source in listed.items()]
    moved = with_own_options({**own, "component": texts, "steps": 3})
    assert moved["steps"] == 3
    short = {name: source for name, source in moved.items() if name in SHORT}
    if any(own.get(name, source) != source for name, source in listed.items()):
        with pytest.raises(UsageError):
            read_replacements(short, moved["component"])
    else:
        assert read_replacements(short, moved["component"]) == {**own, **listed}
        assert not any(text.partition("=")[0] in SHORT for text in moved["component"])


@pytest.mark.parametrize("text", ["", "unet", "unet=", "=build", "="])
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        read_replacements({}, [text])
    assert (error.value.code, error.value.message) == ("component_invalid", f'--component "{text}" is not NAME=SOURCE')


def test_two_sources_for_one_component_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--component unet=b contradicts a, which is to be the unet too"):
        read_replacements({"unet": "a"}, ["unet=b"])
    assert read_replacements({"unet": "a"}, ["unet=a"]) == {"unet": "a"}


def test_a_scheduler_from_elsewhere_is_of_its_own_class(demo: Path, tmp_path: Path) -> None:
    folder = copied(demo / "scheduler", tmp_path / "scheduler")
    edited(folder / SCHEDULER_NAME, _class_name="DDIMScheduler")
    part = read_parts(demo, {"scheduler": folder}).parts["scheduler"]
    assert (part.library, part.class_name, part.folder) == ("diffusers", "DDIMScheduler", folder)
    edited(folder / SCHEDULER_NAME, _class_name="os.system")
    with pytest.raises(InputError) as error:
        read_parts(demo, {"scheduler": folder})
    assert (error.value.code, error.value.path) == ("foreign_class", str(folder / SCHEDULER_NAME))


def test_a_folder_of_something_else_is_no_tokenizer(demo: Path, tmp_path: Path) -> None:
    folder = copied(demo / "tokenizer", tmp_path / "words")
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match="is no CLIPTokenizer: it holds none of scheduler_config") as error:
        read_parts(demo, {"tokenizer": folder})
    assert (error.value.code, error.value.path) == ("component_invalid", str(folder))


@pytest.mark.parametrize(("name", "file"), [("scheduler", SCHEDULER_NAME), ("tokenizer", "tokenizer.json")])
def test_settings_are_not_read_through_links_out_of_their_folder(
    demo: Path, tmp_path: Path, name: str, file: str
) -> None:
    model = copied(demo, tmp_path / "model")
    folder = model / name
    (folder / file).rename(tmp_path / "elsewhere.json")
    (folder / file).symlink_to(tmp_path / "elsewhere.json")
    for read in (lambda: read_parts(model), lambda: read_parts(demo, {name: folder})):
        with pytest.raises(InputError) as error:
            read()
        assert (error.value.code, error.value.path) == ("link_outside", str(folder / file))


def test_settings_take_no_models_place_nor_a_model_theirs(demo: Path) -> None:
    for name, other in (("unet", "scheduler"), ("text_encoder", "tokenizer"), ("scheduler", "unet")):
        with pytest.raises(InputError) as error:
            read_parts(demo, {name: demo / other})
        assert error.value.code == "partner_mismatch"
        assert str(demo / other) in error.value.message
