"""The picker's one-line editor."""

from __future__ import annotations

import pytest

from jackin_picker.editor import LINE_MAX_CHARS, LineEditor


def typed(*keys: str) -> LineEditor:
    editor = LineEditor()
    for key in keys:
        editor.press(key, key if len(key) == 1 else None)
    return editor


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        (["a", "b", "left", "c"], "acb", 2),
        (["a", "b", "backspace"], "a", 1),
        (["backspace", "delete", "left"], "", 0),
        (["a", "b", "home", "delete"], "b", 0),
        (["a", " ", "b", "c", "ctrl+w"], "a ", 2),
        (["a", "b", "left", "ctrl+u"], "b", 0),
        (["a", "b", "left", "ctrl+k"], "a", 1),
        (["a", "b", "home", "end", "c"], "abc", 3),
    ],
)
def test_keys_edit_as_in_a_shell(keys: list[str], text: str, cursor: int) -> None:
    editor = typed(*keys)
    assert (editor.text, editor.cursor) == (text, cursor)


def test_what_cannot_be_printed_becomes_a_space() -> None:
    editor = LineEditor()
    editor.insert("a\x1b[2J\nb\u202ec")
    assert editor.text == "a [2J b c"


def test_the_line_has_an_end() -> None:
    editor = LineEditor()
    editor.insert("a" * 10_000)
    editor.insert("b")
    assert editor.text == "a" * LINE_MAX_CHARS
    assert editor.cursor == LINE_MAX_CHARS


def test_other_keys_are_not_an_editors() -> None:
    assert not LineEditor().press("f5", None)
    assert not LineEditor().press("ctrl+g", "\x07")
