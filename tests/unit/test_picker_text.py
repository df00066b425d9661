"""Text on the screen: where a line is broken, and that nothing gets lost there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_picker.text import fitted

SENTENCE = "it runs inside the capsule: program, files and directory are the agent's own"


def test_a_sentence_is_broken_between_words_and_anything_else_where_the_line_is_full() -> None:
    assert [line.plain for line in fitted(SENTENCE, 40, 3, at_words=True)] == [
        "it runs inside the capsule: program, ",
        "files and directory are the agent's own",
    ]
    assert [line.plain for line in fitted(SENTENCE, 40, 3)] == [SENTENCE[:40], SENTENCE[40:]]


def test_a_word_that_is_longer_than_a_line_is_broken() -> None:
    lines = [line.plain for line in fitted("see /" + "a" * 30, 20, 3, at_words=True)]
    assert lines == ["see ", "/" + "a" * 19, "a" * 11]


@given(
    st.lists(st.text("ab中", min_size=1, max_size=9), min_size=1, max_size=9), st.integers(2, 30)
)
def test_nothing_is_lost_and_no_line_is_too_wide(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = fitted(text, width, 100, at_words=True)
    assert "".join(line.plain for line in lines) == text
    assert all(line.cell_length <= width for line in lines)


@pytest.mark.parametrize("width", [-1, 0, 1, 2])
def test_the_smallest_widths_end(width: int) -> None:
    assert fitted("ab 中 cd", width, 3, at_words=True)
