"""docs/operator.md against the picker: its keys, its pages, its pictures are what is there."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

import pytest

from jackin_picker.guard import ARM_S
from jackin_picker.pages import PAGES
from jackin_picker.pages.page import IDLE_S
from jackin_picker.tabs import NAMES
from support.picker_pictures import FOLDER, SCENES, drawn
from support.source_tree import REPOSITORY

TEXT: Final = (REPOSITORY / "docs" / "operator.md").read_text(encoding="utf-8")
_TEXTS: Final = re.compile(r"<text[^>]*>([^<]*)</text>")


def words_in(svg: str) -> list[str]:
    """What a picture shows, without how: another release of the drawing library moves points."""
    return [unescape(text) for text in _TEXTS.findall(svg)]


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_is_what_the_picker_draws(name: str) -> None:
    """If not: `python -m support.picker_pictures` in `tests/` draws them again."""
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert words_in(kept) == words_in(drawn(name))
    assert "@font-face" not in kept, "a picture that is looked at fetches nothing"


def test_every_picture_is_shown_and_every_one_that_is_shown_exists() -> None:
    shown = set(re.findall(r"\(pictures/(\w+)\.svg\)", TEXT))
    assert shown == set(SCENES) == {path.stem for path in FOLDER.iterdir()}


def test_every_page_has_a_row() -> None:
    rows = re.findall(r"^\| `(\d)` (\w+) \|", TEXT, re.MULTILINE)
    assert rows == [(page.value, name) for page, name in NAMES.items()]
    assert set(PAGES) == set(NAMES)


def test_the_times_are_the_programs() -> None:
    assert f"{ARM_S:g} s" in TEXT
    assert IDLE_S == 10
    assert "ten\nseconds" in TEXT
