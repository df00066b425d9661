"""Plain mode's guard (DESIGN §7): what a line must be to decide anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.operator_protocol import Decide, DenyAll
from jackin_picker.guard import ARM_S, Press
from jackin_picker.plain_prompt import PlainPrompt
from jackin_picker.plain_words import UNKNOWN, Order, Verb, order_in
from support.operator_playbook import a_request


def ready() -> PlainPrompt:
    """A prompt that was said and left alone for long enough."""
    prompt = PlainPrompt(a_request())
    prompt.draw(0.0)
    assert prompt.guard.poll(ARM_S)
    return prompt


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("run 123", Order(Verb.RUN, "123")),
        ("  run   123 ", Order(Verb.RUN, "123")),
        ("deny 123", Order(Verb.DENY, "123")),
        ("deny 123 not  now", Order(Verb.DENY, "123", reason="not now")),
        ("deny all 123 stop", Order(Verb.DENY_ALL, "123", reason="stop")),
        ("tick 1,2 3", Order(Verb.TICK, places=(1, 2, 3))),
        ("untick 1", Order(Verb.UNTICK, places=(1,))),
        ("term 2", Order(Verb.TERM, places=(2,))),
        ("kill 456", Order(Verb.KILL, "456")),
        ("", Order(Verb.NOTHING)),
        ("   ", Order(Verb.NOTHING)),
        ("?", Order(Verb.HELP)),
        ("g", Order(Verb.TERMS)),
    ],
)
def test_a_line_is_one_order(line: str, order: Order) -> None:
    assert order_in(line) == order


@pytest.mark.parametrize(
    "line",
    [
        *(
            "run",
            "run 1 2",
            "run all",
            "RUN 123",
            "run123",
            "run １２３",
            "run 1234567",
            "runn 123",
        ),
        *("deny", "deny it", "deny all", "tick", "tick x", "tick 1 x", "term 1 2", "help me"),
        *("run 123\x7f", "\x1b[200~run 123\x1b[201~", "run\t123", "run 123\u202e", "yes", "1 2p"),
    ],
)
def test_anything_else_is_none(line: str) -> None:
    assert order_in(line) == UNKNOWN


def test_with_its_number_it_runs_or_is_denied() -> None:
    for line, kind in (("run", Decide), ("deny", Decide), ("deny all", DenyAll)):
        prompt = ready()
        decision = prompt.decide(order_in(f"{line} {prompt.number}"), Press.ACTS)
        assert isinstance(decision, kind)
        assert prompt.decide(order_in(f"run {prompt.number}"), Press.ACTS) is None, "once"


@pytest.mark.parametrize("press", [Press.IGNORED, Press.ACTS_BUT_NEVER_DECIDES])
def test_too_early_or_together_with_another_it_decides_nothing(press: Press) -> None:
    prompt = ready()
    assert prompt.decide(order_in(f"run {prompt.number}"), press) is None


def test_said_again_it_has_another_number_and_is_not_ready() -> None:
    prompt = ready()
    numbers: set[int] = set()
    for _ in range(20):
        numbers.add(prompt.number)
        prompt.draw(1.0)
        assert not prompt.guard.is_armed
        assert prompt.decide(order_in(f"run {prompt.number}"), Press.ACTS) is None
    assert len(numbers) > 1


def test_a_denial_lends_nothing_whatever_is_ticked() -> None:
    prompt = ready()
    assert prompt.tick(order_in("tick 1 2"))
    decision = prompt.decide(order_in(f"deny {prompt.number}"), Press.ACTS)
    assert isinstance(decision, Decide)
    assert (decision.approve, decision.bindings) == (False, ())


@given(st.text(max_size=40))
def test_no_line_without_the_number_decides(line: str) -> None:
    prompt = ready()
    if str(prompt.number) not in line:
        assert prompt.decide(order_in(line), Press.ACTS) is None
