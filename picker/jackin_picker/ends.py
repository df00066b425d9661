"""What became of a request, in words: for the lists, the live output and plain mode.

It refuses to know why the broker ended anything; it has the broker's own codes. Invariants: the
words say who or what ended it; a code that is not known here is shown as it is, never left out.
Pure.
"""

from __future__ import annotations

from typing import Final, LiteralString

from textual.content import Content

from jackin_broker.operator_protocol import RequestState, RequestView

from .text import (
    BAD,
    CAREFUL,
    NOTHING,
    PLAIN,
    QUIET,
    clock,
    literal,
    own,
    process_id,
    row,
)

_CODE_CHARS: Final = 24
# What ended a command that had started (`protocol.EndedBy`).
_ENDED: Final[dict[str, LiteralString]] = {
    "signal": "by a signal",
    "time_limit": "at its time limit",
    "caller_gone": "its caller went away",
    "cancelled": "by its caller",
    "operator": "by the operator",
    "broker_stopping": "with the broker",
    "guessing": "it guessed at values",
    "internal_error": "the broker failed",
}
# What ended one that had not (`errors.DenialCode`; `operator`: approved, ended before it began).
_NOT_RUN: Final[dict[str, LiteralString]] = {
    "operator": "before it began",
    "operator_denied": "by the operator",
    "denied": "by the operator",
    "expired": "nobody answered",
    "no_operator": "nobody was there",
    "source_failed": "no credential came",
    "source_locked": "its source is locked",
    "unredactable": "cannot be redacted",
    "changed_since_approval": "it had changed",
    "workdir_rejected": "its folder is not shared",
    "caller_gone": "its caller went away",
    "cancelled": "its caller went away",
    "audit_failed": "the record failed",
    "spawn_failed": "it could not start",
    "guessing": "it guessed at values",
    "broker_stopping": "with the broker",
    "internal_error": "the broker failed",
}
_EXIT: Final = "exit"
# These say who or when; the others are a clause of their own.
_JOINED: Final = ("by ", "at ", "with ", "before ")


def end_state(view: RequestView) -> Content:
    """One word: how it ended."""
    match view.state:
        case RequestState.DONE:
            return own("done") if view.outcome in ("", _EXIT) else own("ended", CAREFUL)
        case RequestState.DENIED:
            return own("ended", CAREFUL) if view.outcome == "operator" else own("denied", BAD)
        case RequestState.EXPIRED:
            return own("expired", CAREFUL)
        case _:
            return own("cancelled", QUIET)


def end_tail(view: RequestView) -> Content:
    """The rest of it, for the end of a line: by whom, with which status, after how long."""
    if view.state is not RequestState.DONE:
        return _said(view.outcome, _NOT_RUN, QUIET)
    took = row(own(" after ", QUIET), clock(view.running_s, QUIET))
    if view.outcome not in ("", _EXIT):
        return row(_said(view.outcome, _ENDED, CAREFUL), took)
    if view.exit_code is None:
        return NOTHING
    style = CAREFUL if view.exit_code else QUIET
    return row(own("exit ", style), process_id(view.exit_code, style), took)


def end_words(view: RequestView) -> Content:
    """Both, as one phrase: `done, exit 0 after 0:03`, `ended by the operator after 1:12`."""
    state, tail = end_state(view), end_tail(view)
    if not tail:
        return state
    if view.state is RequestState.DONE and view.outcome in ("", _EXIT):
        return row(state, own(", "), tail)
    return row(state, own(" ") if tail.plain.startswith(_JOINED) else own(": "), tail)


def _said(code: str, words: dict[str, LiteralString], style: LiteralString = PLAIN) -> Content:
    known = words.get(code)
    if known is not None:
        return own(known, style)
    return literal(code, style, limit=_CODE_CHARS) if code else NOTHING
