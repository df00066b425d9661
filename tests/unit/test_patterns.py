"""Argument patterns: what they name, and what means nothing."""

from __future__ import annotations

import pytest

from jackin_broker.patterns import PatternError, compile_argv, compile_name, escape


def names(texts: list[str], *argv: str, with_options: bool = False) -> bool:
    raw = tuple(arg.encode("utf-8", "surrogateescape") for arg in argv)
    return compile_argv(tuple(texts)).matches(raw, with_options=with_options)


@pytest.mark.parametrize(
    ("texts", "argv", "expected"),
    [
        (["gh", "pr", "list"], ["gh", "pr", "list"], True),
        (["gh", "pr", "list"], ["gh", "pr", "list", ""], False),
        (["gh", "pr", "list"], ["gh", "pr"], False),
        (["gh", "pr list"], ["gh", "pr", "list"], False),
        (["ls;id"], ["ls;id"], True),
        (["ls"], ["ls;id"], False),
        # a star: one element, any bytes, never an option
        (["gh", "*"], ["gh", "pr"], True),
        (["gh", "*"], ["gh", ""], True),
        (["gh", "*"], ["gh", "a\nb"], True),
        (["gh", "*"], ["gh", "../../etc"], True),
        (["gh", "*"], ["gh", "-x"], False),
        (["gh", "*"], ["gh", "-"], False),
        (["gh", "*"], ["gh"], False),
        (["gh", "*"], ["gh", "a", "b"], False),
        (["gh", "--limit=*"], ["gh", "--limit=3"], True),
        (["gh", "--limit=*"], ["gh", "--limit"], False),
        (["gh", "-*"], ["gh", "--delete"], True),
        (["gh", "*-x"], ["gh", "-x"], False),
        (["gh", "a*b*c"], ["gh", "a-b-c"], True),
        (["gh", "a*b*c"], ["gh", "abxc"], True),
        (["gh", "a*b*c"], ["gh", "acb"], False),
        (["gh", "aa*aa"], ["gh", "aaa"], False),
        (["gh", "*ab*ab*"], ["gh", "xab"], False),
        (["gh", "ab*b*"], ["gh", "ab"], False),
        (["gh", "*b*ba"], ["gh", "ba"], False),
        # the rest
        (["gh", "**"], ["gh"], True),
        (["gh", "**"], ["gh", "a", "b"], True),
        (["gh", "**"], ["gh", "a", "-b"], False),
        (["gh", "..."], ["gh", "a", "-b"], True),
        (["gh", "..."], ["gh"], True),
        (["..."], ["anything", "-x"], True),
        # nothing else is special
        (["gh", "[ab]?"], ["gh", "ax"], False),
        (["gh", "[ab]?"], ["gh", "[ab]?"], True),
        (["gh", "api *"], ["gh", "api -XDELETE/x"], True),
        (["gh", "api", "*"], ["gh", "api", "-XDELETE/x"], False),
        # escapes
        (["gh", r"\*"], ["gh", "*"], True),
        (["gh", r"\*"], ["gh", "x"], False),
        (["gh", r"\..."], ["gh", "..."], True),
        (["gh", r"\..."], ["gh", "x"], False),
        (["gh", r"a\\b"], ["gh", r"a\b"], True),
        (["gh", r"\xff*"], ["gh", "\udcffz"], True),
        (["gh", r"\x2dx*"], ["gh", "-xy"], True),
    ],
)
def test_pattern_names_exactly_what_it_says(
    texts: list[str], argv: list[str], expected: bool
) -> None:
    """DESIGN §6: one pattern an element."""
    assert names(texts, *argv) is expected


def test_wider_reading_lets_wildcards_meet_options() -> None:
    """What restricts must not be stepped out of by adding an option."""
    assert names(["git", "push", "**"], "git", "push", "--force", with_options=True)
    assert names(["git", "*", "x"], "git", "-f", "x", with_options=True)
    assert not names(["git", "push"], "git", "push", "--force", with_options=True)


@pytest.mark.parametrize(
    ("texts", "index"),
    [
        ([], 0),
        (["gh", "**", "x"], 1),
        (["gh", "...", "**"], 1),
        (["gh", "a", r"\d"], 2),
        (["gh", "\\"], 1),
        (["gh", r"\x4"], 1),
        (["gh", r"\xgg"], 1),
        (["gh", r"\x00"], 1),
        (["gh", "\udc80"], 1),
    ],
)
def test_pattern_that_means_nothing_is_refused_at_its_element(texts: list[str], index: int) -> None:
    """A rule is either understood or refused, never half read."""
    with pytest.raises(PatternError) as caught:
        compile_argv(tuple(texts))
    assert caught.value.index == index


def test_escape_writes_literals() -> None:
    """An "always" rule stores literals; these are the awkward ones."""
    assert escape(b"...") == r"\..."
    assert escape(b"**") == r"\*\*"
    assert escape("grün".encode()) == "grün"
    assert escape(b"a\n\xff\\") == r"a\x0a\xff" + "\\\\"


def test_glob_over_names_knows_the_star_alone() -> None:
    """DESIGN §6: capsule (glob)."""
    assert compile_name("web-*").matches(b"web-1")
    assert not compile_name("web-?").matches(b"web-1")
    assert compile_name("*").matches(b"anything")
