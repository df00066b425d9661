"""How an end is said: one phrase for the lists, the live output and plain mode."""

from __future__ import annotations

import pytest

from jackin_broker.operator_protocol import RequestState
from jackin_broker.protocol import EndedBy
from jackin_picker.ends import end_words
from jackin_picker.glimpse import words_of
from jackin_picker.plain_lines import over_line
from support.operator_playbook import a_request


@pytest.mark.parametrize(
    ("state", "outcome", "exit_code", "said"),
    [
        (RequestState.DONE, "exit", 0, "done, exit 0 after 1:12"),
        (RequestState.DONE, "exit", 3, "done, exit 3 after 1:12"),
        (RequestState.DONE, "operator", 124, "ended by the operator after 1:12"),
        (RequestState.DONE, "time_limit", 124, "ended at its time limit after 1:12"),
        (RequestState.DONE, "caller_gone", 124, "ended: its caller went away after 1:12"),
        (RequestState.DONE, "internal_error", None, "ended: the broker failed after 1:12"),
        (RequestState.DENIED, "operator_denied", None, "denied by the operator"),
        (RequestState.DENIED, "operator", None, "ended before it began"),
        (RequestState.DENIED, "source_failed", None, "denied: no credential came"),
        (RequestState.EXPIRED, "expired", None, "expired: nobody answered"),
        (RequestState.CANCELLED, "caller_gone", None, "cancelled: its caller went away"),
        (RequestState.DENIED, "", None, "denied"),
        (RequestState.DENIED, "a\x1b[2J", None, r"denied: a\x1b[2J"),
    ],
)
def test_an_end_is_said_in_words(
    state: RequestState, outcome: str, exit_code: int | None, said: str
) -> None:
    view = a_request(state=state, outcome=outcome, exit_code=exit_code, running_s=72)
    assert end_words(view).plain == said


@pytest.mark.parametrize("by", [one for one in EndedBy if one is not EndedBy.EXIT])
def test_no_code_of_what_ended_a_command_is_shown_raw(by: EndedBy) -> None:
    said = end_words(a_request(state=RequestState.DONE, outcome=by.value, exit_code=124)).plain
    assert said.startswith("ended")
    assert "_" not in said


def test_a_filter_finds_an_end_by_its_words_and_by_its_code() -> None:
    words = words_of(a_request(state=RequestState.DONE, outcome="operator", exit_code=124))
    assert "ended by the operator" in words
    assert "done operator" in words


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RequestState.RESOLVING, "It was approved elsewhere and goes on: "),
        (RequestState.RUNNING, "It was approved elsewhere and goes on: "),
        (RequestState.CANCELLED, "Over, cancelled: "),
    ],
)
def test_plain_mode_calls_over_only_what_is_over(state: RequestState, words: str) -> None:
    assert over_line(a_request(state=state), 80).plain.startswith(words)
