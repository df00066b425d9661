"""Argument patterns against a second, slower reading of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.patterns import compile_argv, escape

# Few characters, so that patterns meet arguments often.
WORDS = st.text("ab-*", max_size=5)
ARGS = st.lists(st.binary(max_size=4) | st.text("ab-*.\\", max_size=5).map(str.encode), max_size=4)
TEXTS = st.tuples(
    st.lists(WORDS.filter(lambda word: word != "**"), min_size=1, max_size=4),
    st.sampled_from([[], ["**"], ["..."]]),
).map(lambda parts: tuple(parts[0] + parts[1]))


def element_names(text: str, element: bytes) -> bool:
    """One element, by a regular expression made character by character."""
    if "*" not in text:
        return element == text.encode()
    if element.startswith(b"-") and not text.startswith("-"):
        return False
    expression = b"".join(b".*" if c == "*" else re.escape(c.encode()) for c in text)
    return re.fullmatch(expression, element, re.DOTALL) is not None


def argv_names(texts: Sequence[str], argv: Sequence[bytes]) -> bool:
    rest = texts[-1] if texts[-1] in ("**", "...") else ""
    named = texts[:-1] if rest else texts
    if len(argv) < len(named) or (not rest and len(argv) != len(named)):
        return False
    if not all(element_names(t, a) for t, a in zip(named, argv, strict=False)):
        return False
    return rest != "**" or not any(a.startswith(b"-") for a in argv[len(named) :])


@given(TEXTS, ARGS)
def test_matching_agrees_with_the_slow_reading(texts: tuple[str, ...], argv: list[bytes]) -> None:
    """DESIGN §6: no argv is named but element by element."""
    assert compile_argv(texts).matches(argv) is argv_names(texts, argv)


@given(TEXTS, ARGS)
def test_wider_reading_names_all_that_the_narrow_one_does(
    texts: tuple[str, ...], argv: list[bytes]
) -> None:
    """What restricts reads wider, never otherwise."""
    pattern = compile_argv(texts)
    assert pattern.matches(argv, with_options=True) or not pattern.matches(argv)


@given(TEXTS, ARGS)
def test_no_wildcard_admits_an_option(texts: tuple[str, ...], argv: list[bytes]) -> None:
    """DESIGN §6: an element that begins with `-` is met by a pattern that does, or by `...`."""
    pattern = compile_argv(texts)
    if not pattern.matches(argv) or texts[-1] == "...":
        return
    named = texts[:-1] if texts[-1] == "**" else texts
    for place, element in enumerate(argv):
        if element.startswith(b"-"):
            assert place < len(named)
            assert named[place].startswith("-")


@given(st.lists(st.binary(max_size=8).filter(lambda raw: b"\0" not in raw), min_size=1), ARGS)
def test_escaped_argv_names_itself_and_nothing_else(argv: list[bytes], other: list[bytes]) -> None:
    """A stored literal is that command, byte for byte, wildcards in it or not."""
    pattern = compile_argv(tuple(escape(element) for element in argv))
    assert pattern.matches(argv)
    assert pattern.matches(other, with_options=True) is (other == argv)
