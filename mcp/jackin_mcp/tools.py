"""The tools, as they are listed: names, schemas, and descriptions that say what there is.

It refuses to know requests. Invariant: what is listed is what this capsule has, in names and
labels; where there is neither a binding nor a binary there is no tool.
"""

from __future__ import annotations

from typing import Any, Final

from mcp_types import Tool, ToolAnnotations

from jackin_broker.client import Facts
from jackin_broker.errors import DenialCode
from jackin_broker.protocol import EndedBy, Outcome

EXEC: Final = "jackin_exec"
WAIT: Final = "jackin_exec_wait"
CHECK: Final = "jackin_exec_check"

_COMMAND: Final[dict[str, Any]] = {
    "command": {
        "type": "string",
        "minLength": 1,
        "description": "The program's name alone, such as gh. No shell looks at it",
    },
    "args": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Its arguments, one an item; passed as they are",
    },
    "cwd": {
        "type": "string",
        "description": "The directory to run in, as you see it; your own where it is left out",
    },
    "want": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Names of the bindings that the command needs; shown to the operator "
        "first, never ticked for them",
    },
}
_EXEC_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        **_COMMAND,
        "stdin": {"type": "string", "description": "What the command reads; none if left out"},
        "reason": {
            "type": "string",
            "description": "One sentence for the operator: why you need this",
        },
        "timeout_s": {
            "type": "number",
            "minimum": 0,
            "description": "Seconds that the command may run. Waiting for the operator does not "
            "count",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}
_CHECK_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": _COMMAND,
    "required": ["command"],
    "additionalProperties": False,
}
_WAIT_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "request_id": {"type": "string", "description": "From a result with status pending"}
    },
    "required": ["request_id"],
    "additionalProperties": False,
}
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_EXEC_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": ["completed", "pending", "denied", "lost"],
            "description": "completed: it ran, see exit_code. pending: collect it with "
            f"{WAIT}. denied: nothing was run. lost: it ran, its end is not known",
        },
        "request_id": _TEXT,
        "state": {"type": "string", "enum": ["waiting", "running"]},
        "exit_code": {"type": "integer"},
        "signal": {"type": ["integer", "null"]},
        "ended_by": {"type": "string", "enum": [one.value for one in EndedBy]},
        "stdout": _TEXT,
        "stderr": _TEXT,
        "stdout_bytes": {**_COUNT, "description": "Its true size"},
        "stderr_bytes": {**_COUNT, "description": "Its true size"},
        "truncated": {"type": "boolean", "description": "stdout or stderr has a part left out"},
        "redacted_count": _COUNT,
        "duration_s": {"type": "number"},
        "bindings": {"type": "array", "items": _TEXT, "description": "What the command was lent"},
        "denied": {
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "description": "Stable; such as "
                    + ", ".join(one.value for one in list(DenialCode)[:5]),
                },
                "reason": _TEXT,
                "hint": {"type": "string", "description": "What to do now"},
            },
            "required": ["code", "reason", "hint"],
        },
    },
    "required": ["status", "request_id"],
}
_CHECK_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "outcome": {"type": "string", "enum": [one.value for one in Outcome]},
        "code": _TEXT,
        "reason": _TEXT,
    },
    "required": ["outcome", "code", "reason"],
}


def tools_for(facts: Facts) -> list[Tool]:
    """The tools of this capsule, none where there is nothing to run or to lend."""
    if not facts.bindings and not facts.binaries and not facts.left_out:
        return []
    return [_exec_tool(facts), _wait_tool(), _check_tool()]


def _exec_tool(facts: Facts) -> Tool:
    return Tool(
        name=EXEC,
        title="Run a command with credentials",
        description=describe(facts),
        input_schema=_EXEC_INPUT,
        output_schema=_EXEC_OUTPUT,
        annotations=ToolAnnotations(
            title="Run a command with credentials",
            read_only_hint=False,
            destructive_hint=True,
            idempotent_hint=False,
            open_world_hint=True,
        ),
    )


def _wait_tool() -> Tool:
    return Tool(
        name=WAIT,
        title="Collect a pending command",
        description=f"Waits for a command that {EXEC} answered with status pending, and returns "
        "its result, or pending again. Asking again for the same request is harmless. Cancelling "
        "this call takes the request back.",
        input_schema=_WAIT_INPUT,
        output_schema=_EXEC_OUTPUT,
        annotations=ToolAnnotations(
            title="Collect a pending command",
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _check_tool() -> Tool:
    return Tool(
        name=CHECK,
        title="Would a command be allowed",
        description=f"Says whether {EXEC} would run a command without a question (allow), ask "
        "the operator (ask) or refuse it (deny), by rules alone. Asks nobody, runs nothing.",
        input_schema=_CHECK_INPUT,
        output_schema=_CHECK_OUTPUT,
        annotations=ToolAnnotations(
            title="Would a command be allowed",
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def describe(facts: Facts) -> str:
    """What `jackin_exec` is for, and what there is in this capsule."""
    lines = [
        "Runs one command outside this sandbox, after the operator, or a rule of theirs, said "
        "yes, with the credentials that the operator ticked for it. Use it for what needs a "
        "credential or a listed program; you never see a value, in the output it is "
        "[redacted:NAME]. A person answers: say in `reason` why, and expect to wait.",
        "",
        _binding_lines(facts),
        _binary_line(facts),
    ]
    if facts.left_out:
        lines.append(f"{facts.left_out} more name(s) are not listed here.")
    lines += [
        "",
        "status completed: it ran; an exit code other than 0 is the command's own. "
        f"status pending: call {WAIT} with the request_id. status denied: nothing was run, and "
        "denied.code says why; do not send the same command again unless denied.hint says so.",
    ]
    return "\n".join(lines)


def _binding_lines(facts: Facts) -> str:
    if not facts.bindings:
        return "No credentials can be lent here."
    rows = [f"- {one.name}" + (f": {one.label}" if one.label else "") for one in facts.bindings]
    return "Credentials that can be lent (`want` takes these names):\n" + "\n".join(rows)


def _binary_line(facts: Facts) -> str:
    if not facts.binaries:
        return "No programs of the operator's machine are listed."
    return "Programs of the operator's machine: " + ", ".join(facts.binaries)
