"""The gallery is one page that needs nothing else and believes no prompt."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from shardtool.images.files import encode_image
from shardtool.images.gallery import Shown, render_gallery
from tests.images.records import picture, record

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{records}}<!-- \" '"


class Page(HTMLParser):
    """Collects elements and the text of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)
            self._in_script = False

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(*facts: dict[str, Any]) -> Page:
    data = encode_image(picture(), "png", record(), "x")
    parsed = Page()
    parsed.feed(render_gallery(f"2 images {EVIL}", [Shown(f"{EVIL}.png", "png", data, 64, one) for one in facts]))
    return parsed


def test_every_image_is_inside_the_page() -> None:
    parsed = page({"prompt": "a dog", "seed": 7}, {"prompt": "a cat", "seed": 8})
    sources = [image["src"] or "" for image in parsed.all("figure") and parsed.all("img") if image.get("src")]
    assert len(sources) == 2
    for source in sources:
        assert base64.b64decode(source.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


def test_nothing_is_fetched_from_elsewhere() -> None:
    parsed = page({"prompt": "a dog", "seed": 7})
    links = [value for _, attributes in parsed.elements for key, value in attributes.items() if key in ("src", "href")]
    assert all((value or "").startswith("data:") for value in links)
    (policy,) = [meta["content"] or "" for meta in parsed.all("meta") if meta.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_a_prompt_is_text_and_never_markup() -> None:
    parsed = page({"prompt": EVIL, "seed": 7})
    assert len(parsed.all("script")) == 2
    assert [image for image in parsed.all("img") if "onerror" in image] == []
    assert next(image["alt"] for image in parsed.all("img") if image.get("src")) == EVIL
    assert json.loads(parsed.scripts[0])[0]["prompt"] == EVIL


def test_facts_without_a_value_are_left_out() -> None:
    parsed = page({"prompt": "a dog", "seed": 7, "scheduler": None, "steps": 30})
    assert json.loads(parsed.scripts[0]) == [{"prompt": "a dog", "seed": "7", "steps": "30"}]


def test_the_script_is_complete() -> None:
    script = page({"prompt": "a dog", "seed": 7}).scripts[1]
    assert script.count("{") == script.count("}")
    assert not re.search(r"innerHTML|eval|document\.write", script)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

DRIVER = """
<script>
  const seen = [], press = key => document.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const state = () => [document.querySelector("output").textContent, box.open,
    box.open ? [...box.querySelectorAll("dd")].map(one => one.textContent) : null,
    [...document.querySelectorAll("figure img")].map(one => one.naturalWidth)];
  window.addEventListener("load", () => {
    seen.push(state());
    figures[0].querySelector("button").click(); seen.push(state());
    press("ArrowRight"); seen.push(state());
    press("ArrowRight"); seen.push(state());
    box.close();
    const input = document.querySelector("input");
    input.value = "CAT 8"; input.dispatchEvent(new Event("input")); seen.push(state());
    figures[1].querySelector("button").click(); seen.push(state());
    document.title = "done";
    const made = document.createElement("pre");
    made.id = "seen"; made.textContent = JSON.stringify(seen); document.body.append(made);
  });
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_in_a_real_browser_images_show_open_turn_and_filter(tmp_path: Path) -> None:
    data = encode_image(picture(), "png", record(), "x")
    shown = [
        Shown(f"{seed}.png", "png", data, 64, {"prompt": prompt, "seed": seed})
        for prompt, seed in ((EVIL, 7), ("a cat", 8))
    ]
    path = tmp_path / "gallery.html"
    path.write_text(render_gallery("two images", shown).replace("</body>", f"{DRIVER}</body>"))
    command = [
        str(CHROMIUM),
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000", "--dump-dom", path.as_uri()),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found, ran.stdout[-2000:]
    start, opened, turned, around, filtered, only = json.loads(html.unescape(found[1]))
    assert start == ["2 of 2", False, None, [64, 64]]
    assert opened[1:3] == [True, [EVIL, "7"]]
    assert turned[1:3] == [True, ["a cat", "8"]]
    assert around[1:3] == opened[1:3]
    assert filtered[:2] == ["1 of 2", False]
    assert only[1:3] == [True, ["a cat", "8"]]
