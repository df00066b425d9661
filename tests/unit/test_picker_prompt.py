"""Keys in, decisions out: one prompt as the operator meets it, without a screen."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.operator_protocol import (
    ONCE,
    Decide,
    DenyAll,
    GrantKind,
    GrantOffer,
    GrantTerm,
    RequestView,
    view_digest,
)
from jackin_picker.choices import Place
from jackin_picker.prompt import Key, OpenPrompt, Outcome, Wish
from support.operator_playbook import a_request

EDITING = ("backspace", "delete", "ctrl+u", "ctrl+k", "ctrl+w", "left", "right", "home", "end")


class Operator:
    """Presses keys at a person's pace on an armed prompt."""

    def __init__(self, view: RequestView | None = None, *, armed: bool = True) -> None:
        self.prompt = OpenPrompt(view or a_request())
        self.now_s = 100.0
        self.prompt.guard.drawn(self.prompt.digest, self.now_s)
        if armed:
            self.now_s += 1
            assert self.prompt.guard.poll(self.now_s)

    def press(self, *names: str, gap_s: float = 0.1) -> Outcome:
        """What the last of these keys led to."""
        outcome: Outcome = Wish.NOTHING
        for name in names:
            self.now_s += gap_s
            character = name if len(name) == 1 else {"space": " ", "slash": "/"}.get(name)
            outcome = self.prompt.press(Key(name, character, self.now_s))
        return outcome

    def type(self, text: str, gap_s: float = 0.05) -> list[Outcome]:
        """What each of these characters led to."""
        names = {" ": "space", "\r": "enter", "/": "slash", "\x1b": "escape"}
        return [self.press(names.get(char, char), gap_s=gap_s) for char in text]


def test_a_tick_and_enter_run_with_the_ticked_credential_and_what_was_displayed() -> None:
    view = a_request()
    assert Operator(view).press("space", "enter") == Decide(
        seq=0, id="r1", digest=view_digest(view), approve=True, bindings=("GH_TOKEN",)
    )


def test_escape_denies() -> None:
    decision = Operator().press("escape")
    assert isinstance(decision, Decide)
    assert not decision.approve
    assert decision.bindings == ()


def test_a_fresh_enter_does_nothing() -> None:
    operator = Operator()
    assert operator.press("enter", "enter", "enter") is Wish.NOTHING
    assert not operator.prompt.is_decided


def test_a_fresh_enter_does_nothing_where_there_is_nothing_to_tick() -> None:
    operator = Operator(a_request(bindings=()))
    assert operator.press("enter") is Wish.NOTHING
    decision = operator.press("down", "enter")
    assert isinstance(decision, Decide)
    assert decision.approve


def test_moving_among_the_rows_is_not_deliberate_moving_to_run_is() -> None:
    operator = Operator()
    assert operator.press("down", "down", "enter") is Wish.NOTHING
    decision = operator.press("down", "enter")
    assert isinstance(decision, Decide)
    assert decision.approve
    assert decision.bindings == ()


def test_leaving_run_again_takes_it_back() -> None:
    assert Operator().press("down", "down", "down", "up", "enter") is Wish.NOTHING


def test_unticking_the_only_credential_takes_it_back() -> None:
    assert Operator().press("space", "space", "enter") is Wish.NOTHING


def test_enter_on_deny_denies() -> None:
    operator = Operator(a_request(bindings=()))
    decision = operator.press("down", "down", "enter")
    assert isinstance(decision, Decide)
    assert not decision.approve


def test_before_arming_no_key_acts_but_help() -> None:
    operator = Operator(armed=False)
    for key in ("space", "enter", "escape", "d", "v", "q", "down", "slash", "ctrl+c"):
        assert operator.press(key) is Wish.NOTHING
    assert operator.prompt.choices.ticked == ()
    assert operator.press("?") is Wish.HELP


def test_typing_for_another_window_leaves_the_request_waiting() -> None:
    operator = Operator(armed=False)
    assert operator.type("yes\r1 2p", gap_s=0.03) == [Wish.NOTHING] * 8
    assert operator.prompt.choices.ticked == ()


def test_a_shell_command_typed_into_an_armed_prompt_decides_nothing() -> None:
    for line in ("make test\r", "ls -la\r", "cat a b\r", "yes\r1 2p\r"):
        operator = Operator()
        assert not any(isinstance(outcome, Decide) for outcome in operator.type(line)), line


def test_keys_that_come_in_one_piece_run_and_deny_nothing() -> None:
    """An unbracketed paste of a space and a line break."""
    operator = Operator()
    assert operator.press("space", "enter", gap_s=0.0001) is Wish.NOTHING
    assert not operator.prompt.is_decided
    assert "press it again" in operator.prompt.note.plain
    assert isinstance(operator.press("enter"), Decide)
    operator = Operator()
    assert operator.press("x", "escape", gap_s=0.0001) is Wish.NOTHING
    assert not operator.prompt.is_decided


def test_a_paste_is_no_key() -> None:
    operator = Operator()
    operator.press("space")
    operator.prompt.paste("y\r", operator.now_s + 0.1)
    operator.now_s += 0.1
    assert operator.press("enter") is Wish.NOTHING


def test_a_click_ticks_but_a_key_is_still_needed() -> None:
    operator = Operator()
    operator.prompt.click(Place.ROW, 1)
    assert operator.prompt.choices.ticked == ("NPM_TOKEN",)
    assert operator.press("enter") is Wish.NOTHING
    operator.prompt.click(Place.RUN, 0)
    assert operator.press("enter") is Wish.NOTHING


def test_a_click_before_arming_does_nothing() -> None:
    operator = Operator(armed=False)
    operator.prompt.click(Place.ROW, 1)
    assert operator.prompt.choices.ticked == ()


def test_a_denial_with_a_reason_carries_the_words() -> None:
    operator = Operator()
    operator.press("d")
    operator.type("not now")
    decision = operator.press("enter")
    assert isinstance(decision, Decide)
    assert (decision.approve, decision.reason) == (False, "not now")


def test_escape_leaves_the_reason_and_denies_nothing() -> None:
    operator = Operator()
    assert operator.press("d", "n", "o", "escape") is Wish.NOTHING
    assert operator.press("enter") is Wish.NOTHING
    assert not operator.prompt.is_decided


@given(
    st.sampled_from(["d", "D", "slash"]), st.lists(st.sampled_from([*EDITING, "a", " ", "?", "q"]))
)
def test_editing_keys_never_decide(entry: str, keys: list[str]) -> None:
    operator = Operator()
    assert operator.press(entry, *keys) is Wish.NOTHING
    assert not operator.prompt.is_decided


def test_enter_in_the_filter_keeps_it_and_does_not_run() -> None:
    operator = Operator()
    operator.press("space", "slash")
    operator.type("npm")
    assert operator.press("enter") is Wish.NOTHING
    assert operator.press("enter") is Wish.NOTHING
    rows = [row.name for row in operator.prompt.choices.rows]
    assert rows == ["GH_TOKEN", "NPM_TOKEN"]


def test_one_prompt_decides_once() -> None:
    operator = Operator()
    assert isinstance(operator.press("escape"), Decide)
    assert operator.press("escape", "space", "enter") is Wish.NOTHING


def test_a_command_that_is_not_plain_starts_on_the_command() -> None:
    for view in (
        a_request(args=("a\u202eb",)),
        a_request(args=("x" * 5000,)),
        a_request(args=("a",) * 1000),
        a_request(cwd="/tmp/\n"),
    ):
        assert OpenPrompt(view).choices.place is Place.COMMAND
    assert OpenPrompt(a_request()).choices.place is Place.ROW


def test_nothing_is_ticked_at_the_start_and_wanted_rows_come_first() -> None:
    choices = OpenPrompt(a_request()).choices
    assert choices.ticked == ()
    assert [row.name for row in choices.rows] == ["GH_TOKEN", "NPM_TOKEN", "PGPASSWORD"]


FIFTEEN: Final = GrantOffer(GrantTerm(GrantKind.MINUTES, 15), "bindings = []")
NEVER: Final = GrantOffer(GrantTerm(GrantKind.ALWAYS, 30), 'action = "deny"', approve=False)


def test_a_yes_holds_once_unless_it_was_chosen_for_this_very_prompt() -> None:
    decision = Operator(a_request(offers=(FIFTEEN,))).press("space", "enter")
    assert isinstance(decision, Decide)
    assert decision.grant == ONCE


def test_the_chosen_term_goes_with_the_yes_and_takes_a_deliberate_key_after_it() -> None:
    operator = Operator(a_request(offers=(FIFTEEN,)))
    assert operator.press("space", "g") is Wish.TERMS
    operator.prompt.choose(FIFTEEN)
    assert operator.press("enter") is Wish.NOTHING
    decision = operator.press("down", "down", "down", "enter")
    assert isinstance(decision, Decide)
    assert (decision.approve, decision.grant) == (True, FIFTEEN.term)


def test_other_ticks_than_the_ones_it_was_chosen_with_take_the_term_back() -> None:
    """What would be stored names the ticked credentials, and was shown with those."""
    operator = Operator(a_request(offers=(FIFTEEN,)))
    operator.press("space")
    operator.prompt.choose(FIFTEEN)
    operator.press("down", "space")
    assert "holds once" in operator.prompt.note.plain
    decision = operator.press("enter")
    assert isinstance(decision, Decide)
    assert decision.grant == ONCE


def test_a_term_for_a_yes_goes_with_no_denial_and_the_other_way_round() -> None:
    for offer, keys, approve in (
        (FIFTEEN, ("escape",), False),
        (NEVER, ("down", "down", "down", "enter"), True),
    ):
        operator = Operator(a_request(offers=(FIFTEEN, NEVER)))
        operator.prompt.choose(offer)
        decision = operator.press(*keys)
        assert isinstance(decision, Decide)
        assert (decision.approve, decision.grant) == (approve, ONCE)


def test_a_denial_from_now_on_carries_its_term() -> None:
    operator = Operator(a_request(offers=(NEVER,), denied_before=3))
    operator.prompt.choose(NEVER)
    decision = operator.press("escape")
    assert isinstance(decision, Decide)
    assert (decision.approve, decision.grant) == (False, NEVER.term)


def test_all_of_a_capsule_is_denied_after_enter_and_never_by_a_burst() -> None:
    operator = Operator()
    assert operator.press("D", "n", "o") is Wish.NOTHING
    assert operator.press("!", "enter", gap_s=0.0001) is Wish.NOTHING
    outcome = operator.press("enter")
    assert outcome == DenyAll(seq=0, capsule="web", reason="no!")
    assert operator.press("space", "enter") is Wish.NOTHING


def test_a_key_that_leads_elsewhere_takes_a_deliberate_one_back() -> None:
    for key, wish in (("v", Wish.READ), ("g", Wish.TERMS), ("n", Wish.NEXT)):
        operator = Operator()
        operator.press("space")
        assert operator.press(key) is wish
        assert not operator.prompt.guard.may_run
