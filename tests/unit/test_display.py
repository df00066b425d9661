"""What an operator is shown of text from outside: `display.py`."""

from __future__ import annotations

import pytest

from jackin_broker.display import EMPTY, Shown, show, show_lines, show_name
from jackin_broker.protocol import Bytes64, text_from_bytes


@pytest.mark.parametrize(
    "text",
    ["", "gh", "--limit=30", "a b", "café naïve", "日本語", "привет", "π ≈ 3", "a  indented   b"],
)
def test_harmless_text_is_shown_as_it_is(text: str) -> None:
    shown = show(text)
    assert shown.text == (text or EMPTY)
    assert shown.is_plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x00\x7f", r"\x00\x7f"),
        ("\x9b31m", r"\u{9b}31m"),
        ("a\u200bb", r"a\u{200b}b"),
        ("\u202egnp.exe", r"\u{202e}gnp.exe"),
        ("\U000e0041", r"\u{e0041}"),
        ("\ufe0f", r"\u{fe0f}"),
        ("\U000e0100", r"\u{e0100}"),
        ("\ue000", r"\u{e000}"),
        ("\ud800", r"\u{d800}"),
        ("\u2028\u2029", r"\u{2028}\u{2029}"),
        ("a\xa0b", r"a\u{a0}b"),
        ("\u3164\u2800", r"\u{3164}\u{2800}"),
        ("\u0378", r"\u{378}"),
        ("z\u0338", r"z\u{338}"),
        (" x ", r"\x20x\x20"),
        ("true" + " " * 5000 + "; rm", r"true\{5000 spaces}; rm"),
    ],
)
def test_what_cannot_be_seen_is_an_escape_and_flagged(text: str, expected: str) -> None:
    shown = show(text)
    assert shown.text == expected
    assert shown.escaped
    assert not shown.is_plain


def test_a_real_backslash_is_doubled_so_that_it_never_reads_as_an_escape() -> None:
    assert show(r"a\nb") == Shown(r"a\\nb", marks=((1, 3),))
    assert show("a\nb").text != show(r"a\nb").text
    assert show(r"a\\nb").text == r"a\\\\nb"


def test_bytes_that_are_not_utf_8_look_different_from_code_points() -> None:
    assert show(b"a\xff\xc3").text == r"a\xff\xc3"
    assert show("\xff").text == "ÿ"
    assert show("\udcff").text == r"\u{dcff}"
    assert show("é".encode()).text == "é"


def test_the_wire_form_of_bytes_is_shown_as_the_bytes() -> None:
    assert show(text_from_bytes(b"\xfe/x")).text == r"\xfe/x"
    assert show(Bytes64("!!")).text == "\ufffd!!"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g\u0456thub.com", r"g\u{456}thub.com"),
        ("\u0440\u0430\u0443.com", r"\u{440}\u{430}\u{443}.com"),
        ("\u0434ata", r"\u{434}ata"),
        ("\uff52\uff4d", r"\u{ff52}\u{ff4d}"),
        ("\U0001d42b", r"\u{1d42b}"),
        ("\u2215etc", r"\u{2215}etc"),
        ("\u037e", r"\u{37e}"),
        ("\u2013rf", r"\u{2013}rf"),
        ("\u0131d", r"\u{131}d"),
        ("g\u101dogle.com", r"g\u{101d}ogle.com"),
        ("g\u05e1ogle", r"g\u{5e1}ogle"),
        ("v\u0e51", r"v\u{e51}"),
        ("1\u0e500", r"1\u{e50}0"),
    ],
)
def test_look_alikes_of_ascii_are_marked(text: str, expected: str) -> None:
    shown = show(text)
    assert shown.text == expected
    assert shown.lookalike


@pytest.mark.parametrize(
    "text",
    [
        *("список файлов", "файл2", "ελληνικά", "a – b", "naïve", "x² + y²", "“q”"),
        *("日本語v2", "5µs", "ของ๕", "ملف٢", "한글a"),
    ],
)
def test_text_of_another_script_stays_readable(text: str) -> None:
    assert show(text) == Shown(text)


def test_a_pile_of_combining_marks_ends_after_the_second() -> None:
    assert show("e\u0301\u0323").is_plain
    assert show("a" + "\u0301" * 4).text == "a\u0301\u0301\\u{301}\\u{301}"
    assert show("\u0301a").text == r"\u{301}a"


def test_a_clip_counts_what_is_hidden_and_never_cuts_an_escape() -> None:
    shown = show("a" * 100_000, limit=10)
    assert (shown.text, shown.clipped) == ("a" * 10, 99_990)
    assert shown.line == r"aaaaaaaaaa\{99,990 more}"
    assert show("ab\x1bcd", limit=5).text == "ab"
    assert show("ab\x1bcd", limit=6) == Shown(r"ab\x1b", escaped=True, clipped=2, marks=((2, 6),))
    assert show("x" + " " * 50 + "y", limit=5) == Shown("x", clipped=51)


def test_marks_are_where_the_escapes_are() -> None:
    shown = show("a\x1b\x07b\\")
    assert [shown.text[start:end] for start, end in shown.marks] == [r"\x1b\x07", r"\\"]


def test_lines_of_a_script_come_one_by_one_with_their_breaks_visible() -> None:
    lines = [shown.text for shown in show_lines("#!/bin/sh\n\necho \x1b\n")]
    assert lines == [r"#!/bin/sh\n", r"\n", r"echo \x1b\n"]


def test_only_a_real_line_break_ends_a_line() -> None:
    assert show("a\n").ends_line
    assert show("\\\n").ends_line
    assert not show(r"a\n").ends_line
    assert not show("n").ends_line


def test_an_empty_text_is_one_visible_line() -> None:
    assert [shown.text for shown in show_lines("")] == [EMPTY]


def test_a_long_line_comes_in_pieces_that_say_the_same() -> None:
    text = "ab" * 10_000
    assert "".join(shown.text for shown in show_lines(text)) == text


def test_a_name_for_notifiers_has_no_other_characters() -> None:
    assert show_name("gh") == "gh"
    assert show_name("#(reboot)\x1b") == "__reboot__"
    assert show_name("") == "_"
    assert len(show_name("a" * 1000)) == 64
