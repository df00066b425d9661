"""The grants of one broker: in force, by two clocks, and kept over a restart only if chosen.

It refuses to know prompts, rules' patterns and the configuration's file. Invariants: the file has
names and digests, never an argument or a value, and nobody else can read it; what cannot be read
back grants nothing; a counted use is on the disk before it is given, where grants are kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ..atomic import PRIVATE_FILE_MODE, replace_file
from ..errors import DenialCode, Refusal
from ..policy import Permit, Verdict
from .ledger import GRANTS_MAX, Basis, Grant, Ledger, Moment

_log = logging.getLogger(__name__)

# As many grants as there may be, with names of the longest.
BOOK_MAX_BYTES: Final = 4 * 1024 * 1024
# A rule's last use is noted for people: a loop of commands writes it once a second at most.
NOTE_DELAY_S: Final = 1.0
# Rules that an approval wrote and that are long gone from the configuration.
RULES_MAX: Final = 1000
_VERSION: Final = 1


class RuleUse(msgspec.Struct, frozen=True):
    """When an "always" was approved, and when it last allowed something: epoch seconds."""

    made_at: float = 0.0
    last_used_at: float | None = None


class _Page(msgspec.Struct, frozen=True):
    """What the file holds."""

    v: int = _VERSION
    grants: tuple[Grant, ...] = ()
    rules: dict[str, RuleUse] = {}


class GrantBook:
    """The ledger, the clocks and the file. One a broker, used from its loop alone."""

    def __init__(self, path: Path, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self._path: Final = path
        self._ledger = Ledger()
        self._rules: dict[str, RuleUse] = {}
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._load()

    def now(self) -> Moment:
        """Now, by both clocks."""
        return Moment(time.time(), time.monotonic())

    # --- what a request is told ---------------------------------------------------------

    def permit(self, basis: Basis) -> Permit | None:
        """The permit of a live grant for this very request."""
        now = self.now()
        if not self._ledger.live(now):  # a key costs time where arguments are long
            return None
        return self._ledger.find(basis.key_sha256, basis.shape.want, basis.traits, now)

    async def note_use(self, verdict: Verdict) -> None:
        """A grant, or a rule that an approval wrote, is about to allow something.

        Raises: Refusal when a kept grant's use cannot be written.
        """
        if verdict.grant_id:
            self._ledger.use(verdict.grant_id, self.now())
            if self.is_kept:
                await self._save_or_refuse(verdict.grant_id)
        elif verdict.rule is not None and verdict.rule.id:
            rule_id = verdict.rule.id
            known = self._rules.get(rule_id, RuleUse())
            self._rules[rule_id] = RuleUse(known.made_at, self.now().wall_s)
            self._save_soon()

    # --- what an operator does ----------------------------------------------------------

    def live(self) -> tuple[Grant, ...]:
        """The grants in force, oldest first."""
        return self._ledger.live(self.now())

    def rule_use(self, rule_id: str) -> RuleUse:
        """What is known of a rule that an approval wrote."""
        return self._rules.get(rule_id, RuleUse())

    async def add(self, grant: Grant) -> None:
        """Put a grant in force.

        Raises: JackinError when there are too many.
        """
        self._ledger.add(grant, self.now())
        await self.save()

    async def note_rule(self, rule_id: str) -> None:
        """A rule was written by an approval."""
        while len(self._rules) >= RULES_MAX:
            del self._rules[next(iter(self._rules))]
        self._rules[rule_id] = RuleUse(self.now().wall_s)
        await self.save()

    async def revoke(self, grant_id: str) -> bool:
        """End one; whether there was one."""
        was_there = self._ledger.revoke(grant_id)
        self._rules.pop(grant_id, None)
        await self.save()
        return was_there

    async def revoke_all(self) -> int:
        """End every one, at once; how many there were."""
        count = self._ledger.revoke_all()
        await self.save()
        return count

    def end_session(self, capsule: str, session_id: str) -> None:
        """A launch ended, and its grants with it."""
        self._ledger.end_session(capsule, session_id)
        self._save_soon()

    # --- the file -----------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._timer is not None:
            self._timer.cancel()
            await self.save()
        if self._saving is not None:
            await self._saving

    async def save(self) -> None:
        """Write the file; what fails is logged, and stays in force for this broker."""
        try:
            await self._save()
        except OSError as error:
            _log.error("%s cannot be written: %s", self._path, error.strerror)

    async def _save_or_refuse(self, grant_id: str) -> None:
        try:
            await self._save()
        except OSError as error:
            _log.error("%s cannot be written: %s", self._path, error.strerror)
            raise Refusal(
                DenialCode.INTERNAL_ERROR,
                f"the use of grant {grant_id} cannot be put on record",
                hint="the operator finds the cause in the log: jackin-broker doctor",
            ) from error

    async def _save(self) -> None:
        async with self._lock:
            kept = self.live() if self.is_kept else ()
            page = _Page(grants=tuple(_without_text(grant) for grant in kept), rules=self._rules)
            if page == _Page() and not self._path.exists():
                return
            content = msgspec.json.encode(page)
            await asyncio.to_thread(replace_file, self._path, content, mode=PRIVATE_FILE_MODE)

    def _save_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(NOTE_DELAY_S, self._begin_to_save)

    def _begin_to_save(self) -> None:
        self._timer = None
        self._saving = asyncio.get_running_loop().create_task(self.save())

    def _load(self) -> None:
        page = _read(self._path)
        self._rules = dict(page.rules)
        if self.is_kept:
            now = self.now()
            for grant in page.grants[:GRANTS_MAX]:
                if grant.is_live(now):
                    self._ledger.add(_by_this_clock(grant, now), now)


def _without_text(grant: Grant) -> Grant:
    """The grant as it is kept: its text quotes arguments, and another broker's clock is none."""
    text = f"# made before the broker was started again\n# {grant.command}, by its digest\n"
    text += f'capsule = "{grant.capsule}"\nkey_sha256 = "{grant.key_sha256}"'
    return msgspec.structs.replace(grant, text=text, steady_end_s=0.0)


def _by_this_clock(grant: Grant, now: Moment) -> Grant:
    """The grant with an end by this broker's clock: never longer than it was given for."""
    given_s = max(0.0, grant.expires_at - grant.made_at)
    left_s = min(grant.expires_at - now.wall_s, given_s)
    return msgspec.structs.replace(grant, steady_end_s=now.steady_s + left_s)


def _read(path: Path) -> _Page:
    """What the file says; nothing where there is none, or where it is not to be trusted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Page()
    except OSError as error:
        _log.warning("%s is not read: %s", path, error.strerror)
        return _Page()
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        is_ours = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
        if not stat.S_ISREG(found.st_mode) or not is_ours:
            _log.warning("%s is not read: others can open it", path)
            return _Page()
        raw = file.read(BOOK_MAX_BYTES + 1)
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        page = msgspec.json.decode(raw, type=_Page)
        if page.v == _VERSION:
            return page
    _log.warning("%s is not read: it is damaged, or another version's", path)
    return _Page()
