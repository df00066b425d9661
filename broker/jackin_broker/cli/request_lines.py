"""One request as lines of text, for `requests` and for those who answer with `decide`.

They say all that the picker's prompt says: nobody should have to decide on less. It refuses to
know where the request came from. Invariants: every text from a capsule goes through `display.py`;
one argument is one line.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..display import show
from ..operator_protocol import GrantKind, GrantOffer, RequestState, RequestView
from ..protocol import StdinKind

_ARGUMENT_MAX_CHARS: Final = 200
_REASON_MAX_CHARS: Final = 400
# As many of a digest's digits as the picker shows: enough to compare by eye.
_DIGEST_SHOWN_CHARS: Final = 12
_OPTIONS: Final = {
    GrantKind.ONCE: "",
    GrantKind.MINUTES: "--for {}m",
    GrantKind.USES: "--uses {}",
    GrantKind.ALWAYS: "--always {}d",
}


def request_lines(view: RequestView) -> str:
    """A line of facts, one argument a line, and while it waits all that it is decided on."""
    waits = view.state is RequestState.WAITING
    left = f", expires in {view.expires_in_s:.0f} s" if waits else ""
    ended = f" ({view.outcome})" if view.outcome else ""
    kind = f" ({view.capsule_kind})" if view.capsule_kind else ""
    head = f"{view.id}  {view.state.value}{ended}  capsule {show(view.capsule).line}{kind}{left}"
    argv = [show(part, limit=_ARGUMENT_MAX_CHARS).line for part in (view.command, *view.args)]
    lines = [head, *(f"  [{index}] {item}" for index, item in enumerate(argv))]
    lines += [f"  ! {show(notice).line}" for notice in view.notices]
    lines.append(f"  in {show(view.cwd).line}{', which the agent can write' * view.cwd_writable}")
    if waits:
        lines += _decided_on(view)
    return "\n".join(lines)


def _decided_on(view: RequestView) -> Iterator[str]:
    how = f", {show(view.confinement).line}" if view.confinement else ""
    yield f"  runs {show(view.binary_path).line} on the {view.target.value}{how}"
    for file in view.files:
        digest = file.sha256[:_DIGEST_SHOWN_CHARS]
        yield f"  reads {show(file.path).line}, which the agent can change, sha256 {digest}"
    yield f"  stdin: {_stdin(view)}"
    chain = " < ".join(f"{show(one.name).line} {one.pid}" for one in view.asked_by)
    yield f"  asked by: {chain or 'unknown'}"
    if view.reason:
        yield f"  the agent says: {show(view.reason, limit=_REASON_MAX_CHARS).line}"
    for line in view.differences:
        yield f"  unlike the last that was approved: {show(line).line}"
    if view.denied_before:
        yield f"  denied {view.denied_before} times in a row before"
    if answers := ", ".join(_answer(offer) for offer in view.offers):
        yield f"  may also be answered with: {answers} (the text of each: requests --json)"
    names = ", ".join(row.name + ("*" if row.wanted else "") for row in view.bindings)
    yield f"  may be lent (* wanted): {names or 'nothing'}"
    for row in view.bindings:
        yield from (f"  ! {row.name}: {show(warning).line}" for warning in row.warnings)


def _answer(offer: GrantOffer) -> str:
    """The options of `decide` that give this answer."""
    option = _OPTIONS[offer.term.kind].format(offer.term.amount)
    return f"--{'approve' if offer.approve else 'deny'} {option}"


def _stdin(view: RequestView) -> str:
    match view.stdin.kind:
        case StdinKind.NONE:
            return "nothing"
        case StdinKind.LIVE:
            return "live, the agent types into it while it runs"
        case StdinKind.CLOSED:
            digest = view.stdin.sha256[:_DIGEST_SHOWN_CHARS]
            return f"{view.stdin.size_bytes} bytes, sha256 {digest}"
