"""Grants: approvals that may be used again, for this very command and nothing else (DESIGN §6).

A grant stores literals, never patterns: its key is the digest of everything that would run, and a
request has the same digest or it has no grant. It refuses to know clocks, files, rules and
prompts; "always" is a rule in the configuration (`offers.py`), not a grant here.

Invariants: nothing decorative is part of a key (no reason, no label, no caller's process); a
live stdin, a changed program and files that could not be digested have no key at all; every
grant ends; a grant gives the bindings that were ticked, as they were configured then.
Pure: no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import msgspec

from ..errors import JackinError
from ..operator_views import GrantKind, GrantTerm
from ..policy import ApprovedFile, Permit, Shape
from ..protocol import StdinKind, Target

# A working day: a command that is to run unasked for longer is a rule's business.
MINUTES_MAX: Final = 24 * 60
# More than a script's loop; a larger number is a slip of the pen.
USES_MAX: Final = 1000
# A year; DESIGN's own example of an "always" is 90 days.
DAYS_MAX: Final = 366
# Counted uses end with the working day too: a forgotten grant is nobody's decision any more.
USES_LIFETIME_S: Final = 8 * 3600.0
# More live grants than anybody reviews; each is a kilobyte or a few.
GRANTS_MAX: Final = 1000

_MAXIMA: Final = {
    GrantKind.MINUTES: MINUTES_MAX,
    GrantKind.USES: USES_MAX,
    GrantKind.ALWAYS: DAYS_MAX,
}


class Moment(msgspec.Struct, frozen=True):
    """Now, by two clocks. Units: seconds.

    `wall_s` since the epoch counts sleep and can be set back; `steady_s` cannot be set back and
    may not count sleep. A grant has ended when either says so.
    """

    wall_s: float
    steady_s: float


class _Key(msgspec.Struct, frozen=True):
    """All that makes two requests the same."""

    capsule: str
    session_id: str
    argv: tuple[bytes, ...]
    cwd: bytes
    files: tuple[ApprovedFile, ...]
    target: Target
    stdin: StdinKind
    stdin_sha256: str
    has_tty: bool
    binary_sha256: str


class Basis(msgspec.Struct, frozen=True):
    """What an approval of one request could be stored from, fixed when it was asked.

    `rule_id` names the rule that an "always" becomes, `traits` how each of the capsule's bindings
    is configured. `key_sha256` is empty where the request may be approved only once.
    """

    shape: Shape
    session_id: str
    rule_id: str
    today: date
    traits: dict[str, str]

    @property
    def key_sha256(self) -> str:
        return key_of(self.shape, self.session_id)


class Grant(msgspec.Struct, frozen=True):
    """One grant. `text` is what was offered, `command` the listed name.

    `traits` say how its bindings were configured when they were ticked. `steady_end_s` is by the
    clock of the broker that holds it; 0 in the file, where it means nothing.
    """

    id: str
    capsule: str
    command: str
    session_id: str
    key_sha256: str
    want: tuple[str, ...]
    bindings: tuple[str, ...]
    traits: dict[str, str]
    text: str
    made_at: float
    expires_at: float
    steady_end_s: float
    uses_left: int | None = None
    last_used_at: float | None = None

    def is_live(self, now: Moment) -> bool:
        """Whether it has neither ended nor been used up."""
        if now.wall_s >= self.expires_at or self.uses_left == 0:
            return False
        return not self.steady_end_s or now.steady_s < self.steady_end_s


def key_of(shape: Shape, session_id: str) -> str:
    """The digest that a grant for this request has; empty where it may be approved only once."""
    if shape.stdin is StdinKind.LIVE or shape.files is None:
        return ""
    if shape.is_binary_changed or not shape.binary_sha256:
        return ""
    key = _Key(
        shape.capsule,
        session_id,
        shape.argv,
        shape.cwd,
        shape.files,
        shape.target,
        shape.stdin,
        shape.stdin_sha256,
        shape.has_tty,
        shape.binary_sha256,
    )
    return hashlib.sha256(msgspec.json.encode(key)).hexdigest()


def check_term(term: GrantTerm) -> None:
    """Return when this is a term that can be granted.

    Raises: JackinError that says what can be.
    """
    most = _MAXIMA.get(term.kind)
    if most is None:
        return
    if not 1 <= term.amount <= most:
        unit = {GrantKind.MINUTES: "minutes", GrantKind.USES: "uses", GrantKind.ALWAYS: "days"}
        raise JackinError(
            f"a grant of {term.amount} {unit[term.kind]} is not given",
            hint=f"from 1 to {most} {unit[term.kind]}",
        )


@dataclass
class Ledger:
    """The live grants of one broker, oldest first."""

    _grants: dict[str, Grant] = field(default_factory=dict[str, Grant])

    def add(self, grant: Grant, now: Moment) -> None:
        """Put a grant in force.

        Raises: JackinError when there are too many already.
        """
        if len(self.live(now)) >= GRANTS_MAX:
            raise JackinError(
                f"{GRANTS_MAX} grants are in force already",
                hint="end some of them: jackin-broker grants revoke --all",
            )
        self._grants[grant.id] = grant

    def live(self, now: Moment) -> tuple[Grant, ...]:
        """What is in force; what has ended is forgotten."""
        self._grants = {one.id: one for one in self._grants.values() if one.is_live(now)}
        return tuple(self._grants.values())

    def find(
        self, key_sha256: str, want: Iterable[str], traits: Mapping[str, str], now: Moment
    ) -> Permit | None:
        """The permit of a live grant for the request with this key, if there is one.

        `want` is what the agent says it needs: no more than the grant gives, or the very names
        that the operator saw. `traits` are those of the capsule's bindings now.
        """
        if not key_sha256:
            return None
        wanted = set(want)
        for grant in self.live(now):
            if grant.key_sha256 != key_sha256:
                continue
            if not wanted <= set(grant.bindings) and wanted != set(grant.want):
                continue
            if all(traits.get(name) == trait for name, trait in grant.traits.items()):
                return Permit(grant.id, grant.bindings)
        return None

    def use(self, grant_id: str, now: Moment) -> None:
        """Note a use, and count it where uses are counted."""
        grant = self._grants[grant_id]
        left = None if grant.uses_left is None else grant.uses_left - 1
        self._grants[grant_id] = msgspec.structs.replace(
            grant, uses_left=left, last_used_at=now.wall_s
        )

    def revoke(self, grant_id: str) -> bool:
        """End a grant; whether there was one."""
        return self._grants.pop(grant_id, None) is not None

    def revoke_all(self) -> int:
        """End every grant; how many there were."""
        count = len(self._grants)
        self._grants.clear()
        return count

    def end_session(self, capsule: str, session_id: str) -> None:
        """A session of a capsule is over, and so are its grants."""
        self._grants = {
            one.id: one
            for one in self._grants.values()
            if (one.capsule, one.session_id) != (capsule, session_id)
        }
