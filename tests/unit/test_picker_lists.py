"""The parts of the pages without a screen: lists, the end of an output, what is stored."""

from __future__ import annotations

import secrets
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from jackin_picker.listing import Entry, Listing
from jackin_picker.tail import LINE_MAX_BYTES, LINES_MAX, Tail
from jackin_picker.terms import stored_glimpse, text_lines
from jackin_picker.text import own
from jackin_picker.theme import DARK, LIGHT, theme_for


def nothing_drawn(_width: int) -> list[Content]:
    return [own("entry")]


def words(text: str) -> str:
    return text


def entries(*names: str) -> list[Entry]:
    return [Entry(name, partial(words, name), nothing_drawn) for name in names]


def test_the_cursor_stays_on_its_entry_when_others_come_and_go() -> None:
    listing = Listing()
    listing.show(entries("b", "c", "d"))
    listing.move(1)
    listing.show(entries("a", "b", "c", "d"))
    assert listing.selected == "c"
    listing.show(entries("a", "b", "d"))
    assert listing.selected == "d"
    listing.show(entries())
    assert listing.selected is None


def test_a_filter_is_compared_with_the_words_and_moves_the_cursor_to_what_is_seen() -> None:
    listing = Listing()
    listing.show(entries("alpha", "beta", "Alps"))
    listing.narrow("ALP")
    assert (listing.seen, listing.total) == (2, 3)
    listing.move(9)
    assert listing.selected == "Alps"
    listing.narrow("")
    assert listing.selected == "Alps"


@given(st.integers(0, 60), st.lists(st.integers(-70, 70), max_size=8), st.integers(1, 12))
def test_the_cursor_is_always_among_the_lines(count: int, steps: list[int], height: int) -> None:
    listing = Listing()
    listing.show(entries(*(str(number) for number in range(count))))
    for step in steps:
        listing.move(step)
        lines, spots = listing.lines(20, height)
        assert len(lines) == min(count, height)
        assert len(spots) == len(lines)
        assert sum(line.plain.startswith("› ") for line in lines) == min(count, 1)


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=40)), max_size=20))
def test_a_tail_keeps_each_stream_whole_however_it_was_cut(
    pieces: list[tuple[bool, bytes]],
) -> None:
    tail = Tail()
    whole = {False: b"", True: b""}
    for is_stderr, data in pieces:
        tail.feed(data, is_stderr=is_stderr)
        whole[is_stderr] += data
    for is_stderr, data in whole.items():
        kept = [line.data for line in tail.lines if line.is_stderr is is_stderr]
        wanted = data.split(b"\n")
        wanted = [line.removesuffix(b"\r") for line in wanted[:-1]] + [x for x in wanted[-1:] if x]
        assert kept == wanted


def test_a_tail_is_bounded_and_counts_what_it_dropped() -> None:
    tail = Tail()
    tail.feed(b"x" * (LINE_MAX_BYTES * 5), is_stderr=False)
    assert max(len(line.data) for line in tail.lines) == LINE_MAX_BYTES
    tail.feed(b"\n" + b"line\n" * (LINES_MAX + 10), is_stderr=False)
    assert len(tail.lines) == LINES_MAX
    assert tail.dropped == 15


def test_what_is_stored_is_shown_to_the_letter_and_folded() -> None:
    value = secrets.token_hex(60)
    lines = [line.plain for line in text_lines('a = "\x1b"\n\n' + value, 40)]
    assert lines[0] == '│ a = "\\x1b"'
    assert lines[1] == "│ "
    assert "".join(line.removeprefix("│ ") for line in lines[2:]) == value


def test_the_command_of_a_stored_text_is_a_glimpse_of_it() -> None:
    text = 'capsule = "web"\nargv = ["gh", "pr list", "\\u202e"]'
    assert stored_glimpse(text).plain == "gh pr list \\u{202e}"
    assert stored_glimpse("no command\x07").plain == "no command\\x07"


def test_the_look_follows_the_choice_then_the_variable_then_the_terminal() -> None:
    light = {"JACKIN_PICKER_THEME": "light"}
    assert theme_for("dark", light) is DARK
    assert theme_for("auto", light) is LIGHT
    assert theme_for("auto", {"COLORFGBG": "0;15"}) is LIGHT
    assert theme_for("auto", {"COLORFGBG": "15;0"}) is DARK
    assert theme_for("auto", {}) is DARK
