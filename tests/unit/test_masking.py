"""Which values get needles, and what is remembered of the others. Whose rule: DESIGN §8."""

from __future__ import annotations

import secrets

import pytest

from jackin_broker.bindings import (
    Binding,
    Credential,
    Delivery,
    EnvSource,
    FileSource,
    Redact,
    Source,
    ValueSource,
)
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.masking import (
    Unredactable,
    check_redactable,
    known_needles,
    needles_of,
)
from jackin_broker.redact.stream import redact_all

STRONG = ("tok-" + secrets.token_hex(12)).encode()
WEAK = b"k9-x"
FILE = FileSource("/there/it/is")


def binding(
    name: str = "A",
    source: Source = FILE,
    *,
    redact: Redact = Redact.ON,
    delivery: Delivery = Delivery.ENV,
) -> Binding:
    return Binding(name, source, on_demand=True, redact=redact, delivery=delivery)


def test_what_was_seen_to_be_unredactable_is_remembered_until_it_is_not() -> None:
    known = Unredactable()
    assert known.words(binding()) == ""
    with pytest.raises(Refusal) as refused:
        check_redactable([Credential(binding(), WEAK)], known)
    assert refused.value.code is DenialCode.UNREDACTABLE
    assert known.words(binding()) == "is shorter than 8 characters"
    assert WEAK.decode() not in f"{refused.value} {refused.value.hint} {known.words(binding())}"
    check_redactable([Credential(binding(), STRONG)], known)
    assert known.words(binding()) == ""


def test_all_are_noted_and_the_first_is_named() -> None:
    known = Unredactable()
    credentials = [Credential(binding(name), WEAK) for name in ("A", "B")]
    with pytest.raises(Refusal, match="value of A cannot"):
        check_redactable([*credentials, Credential(binding("C"), STRONG)], known)
    assert [bool(known.words(binding(name))) for name in "ABC"] == [True, True, False]


def test_a_binding_that_is_configured_otherwise_is_not_known() -> None:
    known = Unredactable()
    known.note(binding(), "is a common word")
    assert known.words(binding(source=FileSource("/elsewhere"))) == ""
    assert known.words(binding(redact=Redact.OFF)) == ""
    known.forget()
    assert known.words(binding()) == ""


def test_what_stands_in_the_configuration_is_known_at_once() -> None:
    known = Unredactable()
    assert known.words(binding(source=ValueSource("none"))) == "is shorter than 8 characters"
    assert known.words(binding(source=ValueSource(STRONG.decode()))) == ""


@pytest.mark.parametrize(
    "one",
    [
        binding(source=ValueSource("none"), redact=Redact.OFF),
        binding(source=ValueSource("none"), delivery=Delivery.SSH_AGENT),
    ],
)
def test_what_needs_no_needle_is_neither_refused_nor_warned_of(one: Binding) -> None:
    """DESIGN §10: no needle for an agent's key, it never enters the command."""
    known = Unredactable()
    check_redactable([Credential(one, WEAK)], known)
    assert known.words(one) == ""
    assert len(needles_of([Credential(one, STRONG)])) == 0
    assert len(needles_of([Credential(binding(), STRONG)])) > 0


def test_what_stands_in_configuration_and_environment_is_known_without_asking() -> None:
    mine, theirs = secrets.token_hex(12), secrets.token_hex(12)
    bindings = [
        binding("A", ValueSource(mine)),
        binding("B", EnvSource("MINE")),
        binding("C", EnvSource("ABSENT")),
        binding("D", FileSource("/nobody/reads/this")),
        binding("E", ValueSource("k9-" + mine), redact=Redact.OFF),
        Binding("F", ValueSource(theirs)),  # the agent's own
    ]
    needles = known_needles(bindings, {"MINE": "x" + theirs[1:], "OTHER": "k9-Sup3rSecret!"})
    assert needles.names == ("A", "B")
    said = redact_all(needles, f"{mine} x{theirs[1:]} {theirs} k9-Sup3rSecret!".encode()).decode()
    assert said == f"[redacted:A] [redacted:B] {theirs} k9-Sup3rSecret!"
