"""What a source's text means, decided without the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardtool.errors import InputError, UsageError
from shardtool.events import Event, Note
from shardtool.obtain import local_path, look_into
from shardtool.source import HubSource, LocalSource, demo_path, parse_source


@pytest.mark.parametrize(
    ("text", "repo", "revision", "subfolder"),
    [
        ("org/name", "org/name", None, None),
        ("org/name@v1", "org/name", "v1", None),
        ("org/name:unet", "org/name", None, "unet"),
        ("org/name@refs/pr/3:unet/deep", "org/name", "refs/pr/3", "unet/deep"),
        ("hf://org/name.v-1_0@main:vae", "org/name.v-1_0", "main", "vae"),
        ("org/name:unet/x.safetensors", "org/name", None, "unet/x.safetensors"),
    ],
)
def test_a_repo_is_written_with_revision_and_subfolder(
    text: str, repo: str, revision: str | None, subfolder: str | None
) -> None:
    assert parse_source(text) == HubSource(repo, revision, subfolder, text)


def test_the_options_say_the_same_as_the_text() -> None:
    assert parse_source("org/name", revision="v1", subfolder="unet") == HubSource("org/name", "v1", "unet", "org/name")
    assert parse_source("org/name@v1:unet", revision="v1", subfolder="unet").subfolder == "unet"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("org/name@v1", {"revision": "v2"}),
        ("org/name:unet", {"subfolder": "vae"}),
        ("demo:unet", {"subfolder": "vae"}),
        ("demo", {"revision": "v1"}),
    ],
)
def test_an_option_that_contradicts_the_text_is_wrong_usage(text: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_source(text, **options)
    assert caught.value.code == "contradiction"


@pytest.mark.parametrize(
    "text", ["name", "a/b/c", "org/na me", "../x/y", "org/..", "hf://name", "x" * 5000, "~nobody/x"]
)
def test_what_is_neither_a_path_nor_a_repo_is_missing(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_source(text)
    assert (caught.value.code, caught.value.path) == ("file_missing", text)
    assert "ORG/NAME" in (caught.value.hint or "")


def test_an_empty_source_is_wrong_usage() -> None:
    with pytest.raises(UsageError):
        parse_source("")


def test_demo_is_the_embedded_model_also_where_a_folder_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_source("demo") == LocalSource(demo_path(), "demo")
    assert parse_source("demo:unet") == LocalSource(demo_path() / "unet", "demo:unet")
    assert parse_source("./demo") == LocalSource(Path("demo"), "./demo")


def test_an_existing_path_wins_and_hf_forces_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name" / "unet").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_source("org/name", subfolder="unet") == LocalSource(Path("org/name/unet"), "org/name")
    assert parse_source("hf://org/name") == HubSource("org/name", None, None, "hf://org/name")


@pytest.mark.parametrize("subfolder", ["../other", "/etc", "a/../../b"])
def test_a_subfolder_does_not_lead_out_of_a_local_source(tmp_path: Path, subfolder: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_source(str(tmp_path), subfolder=subfolder)
    assert caught.value.code == "unsafe_path"


def test_a_local_source_is_used_where_it_lies(tmp_path: Path) -> None:
    source = parse_source(str(tmp_path))
    assert local_path(source) == tmp_path
    assert look_into(source, lambda path: path) == tmp_path


def test_a_path_spelled_like_a_repo_in_the_cache_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local path wins, silently where nothing is known of such a repo, with a note where it has been used."""
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "cache" / "models--org--name").mkdir(parents=True)
    (tmp_path / "org" / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    events: list[Event] = []
    local_path(parse_source("org/name"), on_event=events.append)
    local_path(parse_source("org/other"), on_event=events.append)
    local_path(parse_source("./org/name"), on_event=events.append)
    assert [event.code for event in events if isinstance(event, Note)] == ["path_taken"]
    assert "hf://org/name" in str(events[0])


@pytest.mark.parametrize("text", ["demo/vae", "demo/vae/", "demo/unet/config.json", "demo/text_encoder:x"])
def test_a_part_of_the_demo_spelled_as_a_path_is_told_how_it_is_spelled(text: str) -> None:
    """It would else be looked for on the Hub, as a repo of somebody called demo."""
    with pytest.raises(InputError) as error:
        parse_source(text)
    assert error.value.hint is not None
    assert f"written demo:{text.removeprefix('demo/').rstrip('/').replace(':', '/')};" in error.value.hint


def test_a_misspelt_path_is_not_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its first part is a folder here, that is the likelier meaning; nothing is sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/vae").mkdir(parents=True)
    with pytest.raises(InputError, match="models/vea: no such file or folder") as error:
        parse_source("models/vea")
    assert error.value.hint == "did you mean models/vae? a repo on the Hub would be written hf://models/vea"
    with pytest.raises(InputError) as error:
        parse_source("models/other@main:unet")
    assert error.value.hint == "a repo on the Hub would be written hf://models/other@main:unet"
    assert isinstance(parse_source("hf://models/vea"), HubSource)
    assert isinstance(parse_source("others/vea"), HubSource)


def test_a_source_may_be_text(demo: Path) -> None:
    assert local_path("demo:unet") == demo / "unet"


def test_a_part_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(InputError, match="no unte in") as error:
        parse_source("demo:unte")
    assert error.value.hint is not None and "unet, vae" in error.value.hint
