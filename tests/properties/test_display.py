"""`display.py` over every code point and any text: nothing slips through, nothing looks alike."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator

from hypothesis import example, given
from hypothesis import strategies as st

from jackin_broker.display import show, show_lines

# No character of these categories may reach a screen, a log or a notifier.
FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
BATCH = 4096
SEPARATOR = "\x1e"
SHOWN_SEPARATOR = r"\x1e"

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=200)


def every_code_point() -> Iterator[str]:
    """All 1,114,112 of them, surrogates too, in batches."""
    for start in range(0, sys.maxunicode + 1, BATCH):
        yield "".join(map(chr, range(start, min(start + BATCH, sys.maxunicode + 1))))


def is_fit_to_show(text: str) -> bool:
    return all(
        char == " " or (unicodedata.category(char) not in FORBIDDEN and not char.isspace())
        for char in text
    )


def is_nameless(char: str) -> bool:
    """Unassigned, private or a surrogate."""
    return unicodedata.category(char) in {"Cn", "Co", "Cs"}


def undone(shown: str) -> str:
    """The text that `show` was given: the reading that the module's table promises."""

    def one(match: re.Match[str]) -> str:
        escape = match.group()[1:]
        if escape in {"n", "r", "t", "\\"}:
            return {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}[escape]
        if escape.startswith("{"):
            return "" if escape == "{empty}" else " " * int(escape[1:].split()[0])
        return chr(int(escape.strip("xu{}"), 16))

    return re.sub(r"\\(?:[nrt\\]|x..|u\{[0-9a-f]+\}|\{empty\}|\{\d+ spaces\})", one, shown)


def test_no_code_point_reaches_the_screen_unseen_and_each_looks_different() -> None:
    """Characters that mean nothing anywhere are compared with the one form they may have; the
    others are shown between separators, so that no neighbour explains them."""
    seen: set[str] = set()
    count = 0
    for batch in every_code_point():
        nameless = [char for char in batch if is_nameless(char)]
        expected = "".join(f"\\u{{{ord(char):x}}}" for char in nameless)
        assert not nameless or show("".join(nameless)).text == expected
        others = [char for char in batch if not is_nameless(char) and char != SEPARATOR]
        shown = show(SEPARATOR.join(["", *others, ""])).text
        pieces = shown.split(SHOWN_SEPARATOR)[1:-1]
        assert is_fit_to_show(shown)
        assert len(pieces) == len(others)
        seen.update(pieces)
        count += len(others)
    assert len(seen) == count


@given(ANY_TEXT)
@example("\\" * 3 + "n")
@example("a" + " " * 9 + "\\{9 spaces}")
@example("\\{empty}")
def test_what_is_shown_can_be_read_back(text: str) -> None:
    shown = show(text)
    assert is_fit_to_show(shown.text)
    assert undone(shown.text) == text
    assert shown.clipped == 0


@given(ANY_TEXT)
def test_the_lines_say_what_the_whole_says(text: str) -> None:
    assert "".join(undone(shown.text) for shown in show_lines(text)) == text


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_different_bytes_look_different(one: bytes, other: bytes) -> None:
    assert is_fit_to_show(show(one).text)
    assert (show(one).text == show(other).text) == (one == other)


@given(ANY_TEXT, st.integers(0, 40))
def test_a_clip_shows_the_beginning_and_counts_the_rest(text: str, limit: int) -> None:
    whole, clipped = show(text), show(text, limit=limit)
    if not text:
        return
    assert len(clipped.text) <= limit
    assert whole.text.startswith(clipped.text)
    shown_of_text = len(text) - clipped.clipped
    assert undone(clipped.text) == text[:shown_of_text]


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="\\")))
def test_printable_ascii_is_never_touched(text: str) -> None:
    if text:
        assert show(text).text == text
        assert show(text).is_plain
