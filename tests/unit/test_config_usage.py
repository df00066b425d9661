"""The optional limits of a command: one for all, and a binary's own over it."""

from __future__ import annotations

import pytest

from jackin_broker import config
from jackin_broker.config import Allowance, InvalidConfig

HEAD = """schema = 1
[capsules.web]
kind = "none"
host_binaries = ["make", "cat"]
"""


def allowance(text: str, binary: str) -> Allowance:
    loaded = config.parse(HEAD + text, origin="test")
    return loaded.limits.allowance(loaded.capsules["web"].binary(binary))


def test_without_a_word_nothing_is_limited() -> None:
    assert allowance("", "cat") == Allowance(0, 0, 0)


def test_a_binary_has_its_own_limit_and_zero_lifts_it() -> None:
    text = """
        [capsules.web.binaries.make]
        output_bytes = 0
        processes = 50
        [limits]
        output_bytes = 1000
        address_space_bytes = 100000000
        processes = 9
    """
    assert allowance(text, "cat") == Allowance(1000, 100_000_000, 9)
    assert allowance(text, "make") == Allowance(0, 100_000_000, 50)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("output_bytes = -1", "limits.output_bytes"),
        ("output_bytes = '2G'", "expected an integer"),
        ("address_space_bytes = 1000", "0 for none, or at least 67108864"),
        ("processes = 99999999", "limits.processes"),
    ],
)
def test_what_cannot_be_meant_is_a_problem_with_its_key(line: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config.parse(f"{HEAD}[limits]\n{line}\n", origin="test")
    assert words in str(caught.value)


def test_processes_of_what_is_not_confined_cannot_be_told_from_the_operators() -> None:
    text = "[capsules.web.binaries.make]\nconfine = false\nprocesses = 9\n"
    with pytest.raises(InvalidConfig) as caught:
        config.parse(HEAD + text, origin="test")
    assert "means nothing with confine = false" in str(caught.value)
