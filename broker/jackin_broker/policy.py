"""Policy: what the rules say of one request (DESIGN §6).

It refuses to know clocks, files, grants and prompts: the day is passed in, the shape and the
permit of a grant are made by others. The array that is matched is the array that is executed;
there is no shell.

Invariants:
* order: deny rules, ask rules, a live grant, allow rules, else ask; the first rule of a kind
  that matches decides;
* deny and ask rules restrict, so they read wider: their wildcards match options too, and
  `bindings`, `stdin`, `tty` and `trust_cwd` do not narrow them. An agent cannot step out of
  one by adding an option or a pipe;
* an allow rule matches only what it names, element by element, and never a program that has
  changed since the broker started;
* an allow rule that delivers credentials does not match where the agent can write (the
  working directory, or a file among the arguments) unless it says `trust_cwd = true`;
* a rule that an approval wrote (it has an `id`) matches what was approved and nothing else:
  program, stdin and files by digest, terminal as it was;
* where the agent could read what a command is given, no rule and no grant gives it anything.
Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from enum import Enum
from typing import Final

import msgspec

from .errors import DenialCode
from .patterns import compile_argv, compile_name
from .protocol import Outcome, StdinKind, Target

_STDIN_ORDER: Final = {StdinKind.NONE: 0, StdinKind.CLOSED: 1, StdinKind.LIVE: 2}
_BELOW: Final = "/**"


class Action(str, Enum):
    """What a rule says."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


class ApprovedFile(msgspec.Struct, frozen=True):
    """A file among the arguments, as it was approved: the text that names it, its digest."""

    path: bytes
    sha256: str


class Rule(msgspec.Struct, frozen=True):
    """One configured rule. `number` is its place in the configuration, counting from one.

    `argv` is as `patterns.py` reads it. `cwd` is a host directory, with `/**` at its end also
    what is below it, empty for any. `target` None: the host for allow, any for deny and ask.
    `expires`: a date is the last day on which the rule holds, a date-time the end itself.
    `id` names a rule that an approval wrote. Of an allow rule `binary_sha256`, `stdin_sha256`
    and `files` (None: any) narrow it to those bytes; empty, they narrow nothing.
    """

    action: Action
    argv: tuple[str, ...]
    capsule: str = "*"
    cwd: str = ""
    bindings: tuple[str, ...] = ()
    target: Target | None = None
    stdin: StdinKind = StdinKind.NONE
    tty: bool = False
    trust_cwd: bool = False
    expires: date | datetime | None = None
    number: int = 0
    id: str = ""
    binary_sha256: str = ""
    stdin_sha256: str = ""
    files: tuple[ApprovedFile, ...] | None = None


class Shape(msgspec.Struct, frozen=True):
    """What policy sees of a request.

    `argv` begins with the command's name as the agent gave it; `cwd` is the host directory;
    `available` are the on-demand bindings of the capsule, `suspended` those of them that
    somebody guesses at; `has_writable_files`: an argument names a place that the agent can
    write, or may. `files` are those that were digested, None where not all could be.
    `are_values_readable`: the agent can read what the command is given.
    """

    capsule: str
    argv: tuple[bytes, ...]
    cwd: bytes
    is_cwd_writable: bool
    available: frozenset[str]
    want: tuple[str, ...] = ()
    target: Target = Target.HOST
    stdin: StdinKind = StdinKind.NONE
    has_tty: bool = False
    has_writable_files: bool = False
    is_binary_changed: bool = False
    suspended: frozenset[str] = frozenset()
    binary_sha256: str = ""
    stdin_sha256: str = ""
    files: tuple[ApprovedFile, ...] | None = ()
    are_values_readable: bool = False


class Permit(msgspec.Struct, frozen=True):
    """A live grant of this very request: which one, and the bindings that it gives."""

    grant_id: str
    bindings: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """What the rules say, and why. `bindings` are what an allow rule or a grant delivers."""

    outcome: Outcome
    reason: str
    code: DenialCode | None = None
    bindings: tuple[str, ...] = ()
    rule: Rule | None = None
    grant_id: str = ""


def decide(
    shape: Shape, rules: Sequence[Rule], *, today: date, permit: Permit | None = None
) -> Verdict:
    """What the rules say of this request, and a grant between them if there is one.

    Shape: pass an aware `datetime` as `today` where rules end at a time of day; a plain date
    counts a rule with a time as ended on that day.
    """
    denied = _first(Action.DENY, shape, rules, today)
    if denied is not None:
        reason = f"{describe(denied)} denies it"
        return Verdict(Outcome.DENY, reason, DenialCode.RULE_DENIED, rule=denied)
    asked = _first(Action.ASK, shape, rules, today)
    if asked is not None:
        return Verdict(Outcome.ASK, f"{describe(asked)} wants it asked", rule=asked)
    if shape.is_binary_changed:
        return Verdict(Outcome.ASK, "the program has changed since the broker started")
    if permit is not None and _may_permit(permit, shape):
        reason = f"grant {permit.grant_id} allows it"
        return Verdict(Outcome.ALLOW, reason, bindings=permit.bindings, grant_id=permit.grant_id)
    return _allowed(shape, rules, today)


def describe(rule: Rule) -> str:
    """The rule in a few words, as reasons name it. Raw text: `display.py` shows it."""
    return f"rule {rule.number} ({rule.action.value} {' '.join(rule.argv)})"


def has_ended(expires: date | datetime | None, today: date) -> bool:
    """Whether a rule with this end is over."""
    if expires is None:
        return False
    if not isinstance(expires, datetime):
        day = today.date() if isinstance(today, datetime) else today
        return day > expires
    if not isinstance(today, datetime):
        return today >= expires.date()
    return instant_of(today) >= instant_of(expires)


def instant_of(moment: datetime) -> datetime:
    """A time in UTC. Without an offset it is local; beyond the calendar's ends, the end of it."""
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):  # the year 1 or 9999, and a zone that leads out of it
        end = datetime.min if moment.year <= 1 else datetime.max
        return end.replace(tzinfo=UTC)


def _first(action: Action, shape: Shape, rules: Sequence[Rule], today: date) -> Rule | None:
    """The first restricting rule of this kind that names the shape."""
    for rule in rules:
        if rule.action is action and names(rule, shape) and not has_ended(rule.expires, today):
            return rule
    return None


def _may_permit(permit: Permit, shape: Shape) -> bool:
    """Whether a grant's bindings may be given without a prompt now."""
    if not set(permit.bindings) <= shape.available - shape.suspended:
        return False
    return not (permit.bindings and shape.are_values_readable)


def _allowed(shape: Shape, rules: Sequence[Rule], today: date) -> Verdict:
    near = ""
    for rule in rules:
        if rule.action is not Action.ALLOW or not names(rule, shape):
            continue
        obstacle = obstacle_to(rule, shape, today)
        if not obstacle:
            reason = f"{describe(rule)} allows it"
            return Verdict(Outcome.ALLOW, reason, bindings=rule.bindings, rule=rule)
        near = near or f"{describe(rule)} would allow it, but {obstacle}"
    return Verdict(Outcome.ASK, near or "no rule names this command")


def names(rule: Rule, shape: Shape) -> bool:
    """Whether capsule, argv, directory and target are what the rule names."""
    restricts = rule.action is not Action.ALLOW
    if not compile_name(rule.capsule).matches(shape.capsule.encode(), with_options=True):
        return False
    if not shape.argv or not compile_argv(rule.argv).matches(shape.argv, with_options=restricts):
        return False
    return names_target(rule, shape.target) and names_directory(rule.cwd, shape.cwd)


def names_target(rule: Rule, target: Target) -> bool:
    """Whether the rule is about commands that run there."""
    if rule.target is None:
        return rule.action is not Action.ALLOW or target is Target.HOST
    return rule.target is target


def names_directory(pattern: str, cwd: bytes) -> bool:
    """Whether a rule's `cwd` names this host directory."""
    if not pattern:
        return True
    raw = pattern.encode("utf-8", "surrogateescape")
    if not pattern.endswith(_BELOW):
        return cwd == raw
    root = raw[: -len(_BELOW)]
    return cwd == (root or b"/") or cwd.startswith(root + b"/")


def obstacle_to(rule: Rule, shape: Shape, today: date) -> str:
    """Why an allow rule that names the command still does not match, or empty."""
    if has_ended(rule.expires, today):
        return "it has ended"
    if guessed := shape.suspended.intersection(rule.bindings):
        return f"somebody guesses at {min(guessed)}, until it is approved again"
    if not set(rule.bindings) <= shape.available:
        return "this capsule does not have its bindings"
    if not set(shape.want) <= set(rule.bindings):
        return "the agent wants bindings that it does not deliver"
    if _STDIN_ORDER[shape.stdin] > _STDIN_ORDER[rule.stdin]:
        return f"stdin is {shape.stdin.value} and it admits {rule.stdin.value}"
    if shape.has_tty and not rule.tty:
        return "the caller has a terminal and it does not admit one"
    if rule.bindings and not rule.trust_cwd:
        if shape.is_cwd_writable:
            return "the agent can write the working directory (trust_cwd)"
        if shape.has_writable_files:
            return "the agent can write a file among the arguments (trust_cwd)"
    if rule.bindings and shape.are_values_readable:
        return "the agent could read what the command is given"
    return _difference(rule, shape)


def _difference(rule: Rule, shape: Shape) -> str:
    """How the request differs from the one whose approval wrote the rule, or empty."""
    if rule.binary_sha256 and rule.binary_sha256 != shape.binary_sha256:
        return "the program is not the one that was approved"
    if rule.files is not None:
        if shape.files is None:
            return "not every file among the arguments could be digested"
        if rule.files != shape.files:
            return "the files among the arguments are not those that were approved"
    if not rule.id:
        return _other_stdin(rule, shape) if rule.stdin_sha256 else ""
    if rule.tty != shape.has_tty:
        return "it was approved with a terminal" if rule.tty else "it was approved without one"
    if rule.stdin is not shape.stdin:
        return f"stdin is {shape.stdin.value}, and it was approved with {rule.stdin.value}"
    return _other_stdin(rule, shape)


def _other_stdin(rule: Rule, shape: Shape) -> str:
    return "" if rule.stdin_sha256 == shape.stdin_sha256 else "stdin is not what was approved"
