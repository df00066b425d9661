"""What a tool answers: the structured result, and the same in words.

It refuses to know how a request came to its end. Invariants: every result fits the tool's output
schema; a command that failed is a result, a refusal is an error that says not to send it again.
"""

from __future__ import annotations

import time
from typing import Any, Final

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent

from jackin_broker.protocol import AskResult, EndedBy, ExecResult

from .request import Denied, Request, State
from .transcript import Transcript

STREAMS: Final = ("stdout", "stderr")
_MIME: Final = "text/plain"
# The first protocol version that knows resource links in a result.
RESOURCE_LINKS_SINCE: Final = "2025-06-18"

_ENDINGS: Final = {
    EndedBy.TIME_LIMIT: "it reached its time limit and was ended",
    EndedBy.OPERATOR: "the operator ended it: do not start it again, ask them",
    EndedBy.GUESSING: "it was ended, for its output came too close to a credential too often: "
    "stop, and ask the operator",
    EndedBy.BROKER_STOPPING: "the broker stopped and ended it",
}


def uri_of(request: Request, stream: str) -> str:
    """Where the whole of a stream can be read."""
    return f"jackin://requests/{request.id}/{stream}"


def transcript_of(request: Request, stream: str) -> Transcript:
    """The stream of that name."""
    return request.stdout if stream == "stdout" else request.stderr


def result_of(request: Request, protocol_version: str) -> CallToolResult:
    """The answer to a call: what came of the request, or that it is pending."""
    match request.outcome:
        case None:
            return _pending(request)
        case Denied() as denied if not denied.has_run:
            return denied_result(denied, request.id)
        case outcome:
            return _ended(request, outcome, protocol_version)


def denied_result(denied: Denied, request_id: str = "") -> CallToolResult:
    """Nothing was run, and why."""
    hint = denied.hint or "do not send it again unchanged: ask the operator"
    structured: dict[str, Any] = {
        "status": "denied",
        "denied": {"code": denied.code, "reason": denied.reason, "hint": hint},
        "request_id": request_id,
    }
    words = (
        f"denied ({denied.code}): {denied.reason}\n{hint}\n"
        "Nothing was run. This is an answer, not a glitch."
    )
    return CallToolResult(content=[_text(words)], structured_content=structured, is_error=True)


def check_result(answer: AskResult) -> CallToolResult:
    """What rules alone say."""
    words = {
        "allow": "allowed: it would run without a question",
        "ask": "asked: the operator would be asked",
        "deny": "denied: it would not run",
    }[answer.outcome.value]
    detail = f" ({answer.code})" if answer.code else ""
    return CallToolResult(
        content=[_text(f"{words}{detail}; {answer.reason}")],
        structured_content={
            "outcome": answer.outcome.value,
            "code": answer.code,
            "reason": answer.reason,
        },
    )


def progress_words(request: Request) -> str:
    """How far a request is, for a progress message."""
    since_s = time.monotonic() - request.since
    if request.state is State.RUNNING:
        return f"running for {since_s:.0f} s"
    if request.state is State.WAITING and request.pending is not None:
        left_s = max(0.0, request.pending.expires_in_s - since_s)
        place = request.pending.position
        queue = "" if place == 1 else f", number {place} in the queue"
        return f"waiting for the operator{queue}; expires in {left_s:.0f} s"
    return "waiting for the broker"


def _pending(request: Request) -> CallToolResult:
    state = "running" if request.state is State.RUNNING else "waiting"
    words = (
        f"pending: {progress_words(request)}.\nCollect the result with jackin_exec_wait and "
        f"request_id {request.id}; do not send the command again."
    )
    structured = {"status": "pending", "state": state, "request_id": request.id}
    return CallToolResult(content=[_text(words)], structured_content=structured)


def _ended(request: Request, outcome: ExecResult | Denied, version: str) -> CallToolResult:
    long = [name for name in STREAMS if transcript_of(request, name).is_long]
    structured: dict[str, Any] = {
        "status": "completed",
        "request_id": request.id,
        "bindings": list(request.bindings),
        "truncated": bool(long),
    }
    for name in STREAMS:
        stream = transcript_of(request, name)
        structured[name] = stream.inline(f"read all of it at {uri_of(request, name)}")
        structured[f"{name}_bytes"] = stream.size
    if isinstance(outcome, ExecResult) and outcome.truncated:
        structured |= {
            "truncated": True,
            "stdout_bytes": outcome.stdout_bytes,
            "stderr_bytes": outcome.stderr_bytes,
        }
    structured |= _ending(outcome)
    content: list[ContentBlock] = [_text(_ended_words(structured, request))]
    if version >= RESOURCE_LINKS_SINCE:
        content += [_link(request, name) for name in long]
    is_error = structured["status"] != "completed"
    return CallToolResult(content=content, structured_content=structured, is_error=is_error)


def _ending(outcome: ExecResult | Denied) -> dict[str, Any]:
    if isinstance(outcome, Denied):  # it ran, and how it ended is not known
        return {
            "status": "lost",
            "denied": {
                "code": outcome.code,
                "reason": outcome.reason,
                "hint": "it may have done a part of its work: look before sending it again",
            },
        }
    return {
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "ended_by": outcome.ended_by.value,
        "redacted_count": outcome.redacted_count,
        "duration_s": outcome.duration_s,
    }


def _ended_words(structured: dict[str, Any], request: Request) -> str:
    if isinstance(request.outcome, ExecResult):
        lines = [f"exit code {request.outcome.exit_code}"]
        if request.outcome.signal is not None:
            lines[0] += f", ended by signal {request.outcome.signal}"
        if request.outcome.ended_by in _ENDINGS:
            lines.append(_ENDINGS[request.outcome.ended_by])
        if request.outcome.truncated:
            lines.append("the operator's limit kept a part of the output back")
        if request.outcome.redacted_count:
            lines.append(
                f"{request.outcome.redacted_count} value(s) of credentials were taken out: "
                "[redacted:NAME]"
            )
    else:
        denied = structured["denied"]
        lines = [f"lost ({denied['code']}): {denied['reason']}", denied["hint"]]
    for name in STREAMS:
        size, text = structured[f"{name}_bytes"], structured[name]
        if size:
            lines.append(f"--- {name} ({size} bytes)\n{text.removesuffix(chr(10))}")
    if len(lines) == 1 and not structured["stdout_bytes"] + structured["stderr_bytes"]:
        lines.append("no output")
    return "\n".join(lines)


def _link(request: Request, name: str) -> ResourceLink:
    stream = transcript_of(request, name)
    return ResourceLink(
        uri=uri_of(request, name),
        name=f"{name} of request {request.id}",
        description="the whole output" if stream.is_whole else "the output, as far as it is kept",
        mime_type=_MIME,
        size=stream.size,
    )


def _text(words: str) -> TextContent:
    return TextContent(text=words)
