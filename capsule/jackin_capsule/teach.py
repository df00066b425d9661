"""`jackin-capsule prompt`: the text that teaches an agent what there is and what answers mean.

It refuses to know the broker: names come from the environment that `launch` sets, and what
a denial asks for is `problems.py`'s. Invariant: it says nothing that is not so in this capsule.
"""

import os

from .problems import HINTS
from .wire import Fault

FORMATS = ("plain", "claude", "agents")

_WHAT = """\
You run in a capsule and hold no credentials. One command at a time can be run with credentials that
you never see, a listed program on the operator's machine, any other in the capsule: a person, the
operator, or a rule of theirs answers each request."""

_HOW = (
    "In a shell: jackin-exec --want NAME --reason 'why' -- COMMAND ARG…  (streams, exit status and "
    "signals are the command's own; see jackin-exec --help)",
    "As an MCP tool, where you have it: jackin_exec {command, args, cwd, stdin, reason, want, "
    "timeout_s}; no shell, one argument an item",
    "Would it be allowed? jackin-capsule ask -- COMMAND ARG…, or the tool jackin_exec_check. It "
    "asks nobody",
)
_WHEN = (
    "Use it only for commands that need one of these credentials or programs; run everything else "
    "yourself.",
    "Ask for the one command that you need, written out. Do not wrap it in a script or a shell: "
    "the operator decides on what they can read.",
    "Say why in one sentence (--reason). Name what it needs (--want). Then wait: a person answers.",
    "Never look for the credentials themselves. In the output a value is [redacted:NAME].",
)
_OUTCOMES = (
    "It ran: the exit status (exit_code) is the command's own, also when it is not 0.",
    "124: it was ended from outside (a time limit, the operator, or the broker's own end).",
    "126 (status denied): nothing was run. The code in parentheses says why, the hint what to do. "
    "It is an answer, not a glitch: do not send the same command again, and no variation of it, "
    "unless the hint says so.",
    "127: there is no such command there.",
    "status pending (the MCP tool): call jackin_exec_wait with its request_id; do not send the "
    "command again.",
)
# Those that an agent meets first; all of them are in the hints that come with a denial.
_SHOWN_CODES = ("operator_denied", "rule_denied", "not_allowed", "expired", "no_operator")


def prompt(words: "list[str]") -> int:
    """Print the block for `[--format claude|agents|plain]`; the exit status.

    Raises: Fault.
    """
    from .main import say

    kind = "plain"
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--format" and rest:
            kind = rest.pop(0)
        elif word.startswith("--format="):
            kind = word[len("--format=") :]
        else:
            raise Fault(f"unknown option {word}", "jackin-capsule prompt [--format plain]")
        if kind not in FORMATS:
            raise Fault(f"no such format: {kind}", "one of: " + ", ".join(FORMATS))
    return say(block(kind, names("JACKIN_EXEC_BINDINGS"), names("JACKIN_HOST_BINARIES")))


def names(variable: str) -> "list[str]":
    """The names in a comma-joined variable."""
    return [name for name in os.environ.get(variable, "").split(",") if name]


def block(kind: str, bindings: "list[str]", binaries: "list[str]") -> str:
    """The text, for a prompt (claude: in a tag), a file of instructions (agents), or as it is."""
    sections: list[tuple[str, list[str]]] = [
        ("What there is", _available(bindings, binaries)),
        ("How", list(_HOW)),
        ("When", list(_WHEN)),
        ("What the answers mean", [*_OUTCOMES, *_codes()]),
    ]
    if kind == "agents":
        body = "".join(f"\n### {title}\n\n" + _bullets(lines) for title, lines in sections)
        return f"## Commands with credentials: jackin-exec\n\n{_WHAT}\n{body}"
    body = "".join(f"\n{title}:\n" + _bullets(lines) for title, lines in sections)
    text = f"Commands with credentials: jackin-exec\n\n{_WHAT}\n{body}"
    return f"<jackin-exec>\n{text}</jackin-exec>\n" if kind == "claude" else text


def _available(bindings: "list[str]", binaries: "list[str]") -> "list[str]":
    lent = ", ".join(bindings) or "none in this capsule"
    lines = [f"Credentials that a command can be lent: {lent}."]
    if binaries:
        lines.append(
            f"Programs of the operator's machine: {', '.join(binaries)}. They are on your PATH "
            "under their own names, and go the same way."
        )
    else:
        lines.append("Programs of the operator's machine: none listed.")
    return lines


def _codes() -> "list[str]":
    return [f"{code}: {HINTS[code]}." for code in _SHOWN_CODES]


def _bullets(lines: "list[str]") -> str:
    return "".join(f"- {line}\n" for line in lines)
