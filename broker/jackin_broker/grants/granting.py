"""What an operator does with grants and rules: keep an answer, look at what is kept, end it.

It refuses to know sockets and screens. Invariants: what is stored is the text that was offered,
with the bindings that were ticked; it is on record before it is in force; a new grant or rule
releases nothing that waits already; where storing fails, the answer counts for once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Container
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from ..audit import Audit
from ..config import edits, rule_warnings
from ..config.load import read_trusted
from ..config.rule_edits import append_rule, remove_rules, rule_texts
from ..desk import Decision, Entry
from ..errors import DenialCode, JackinError, Refusal
from ..operator_views import (
    CredentialView,
    GrantKind,
    GrantView,
    RuleView,
    stored_text,
)
from ..policy import Action, Rule
from ..protocol import EndedBy
from ..services import Services
from ..views import credential_view
from .ledger import USES_LIFETIME_S, Basis, Grant, check_term
from .offers import offered_text
from .views import always_view, grant_view, rule_view

# Names a grant on a command line; unguessable is no aim, the caller cannot name one.
GRANT_ID_BYTES: Final = 4
_MINUTE_S: Final = 60.0


class Keeping(msgspec.Struct, frozen=True):
    """What is to be stored with an answer, checked before the answer is taken."""

    decision: Decision
    basis: Basis
    text: str


class Kept(msgspec.Struct, frozen=True):
    """What became of it: the grant's id, or why there is none."""

    grant_id: str = ""
    code: str = ""
    reason: str = ""


class Granting:
    """The operator's side of grants and rules; one a broker."""

    def __init__(self, services: Services, config_file: Path, config_lock: Path) -> None:
        self._services: Final = services
        self._config_file: Final = config_file
        self._config_lock: Final = config_lock
        self._editing = asyncio.Lock()
        self._era = 0  # how often everything was revoked
        self._ended: set[str] = set()  # rules that may still stand in the file

    # --- keeping an answer --------------------------------------------------------------

    def prepare(self, decision: Decision, entry: Entry | None) -> Keeping | None:
        """What is to be stored with this answer; None for once, and where the desk will refuse.

        Raises: JackinError for a term that is not given.
        """
        term = decision.grant
        if term.kind is GrantKind.ONCE or entry is None or entry.basis is None:
            return None
        check_term(term)
        offered = {(offer.term, offer.approve): offer.text for offer in entry.view.offers}
        text = offered.get((term, decision.approve)) or offered_text(
            entry.basis, term, approve=decision.approve
        )
        if not text:
            raise JackinError(
                "this request cannot be put into such a rule", hint="answer it for once"
            )
        return Keeping(decision, entry.basis, stored_text(text, decision.bindings))

    async def keep(self, keeping: Keeping) -> Kept:
        """Store what was prepared, once its answer was taken."""
        try:
            if keeping.decision.grant.kind is GrantKind.ALWAYS:
                return Kept(await self._keep_rule(keeping))
            return Kept(await self._keep_grant(keeping))
        except Refusal as refusal:
            return Kept(code=refusal.code.value, reason=str(refusal))
        except JackinError as error:
            return Kept(code="failed", reason=str(error))

    async def _keep_grant(self, keeping: Keeping) -> str:
        decision, basis, book = keeping.decision, keeping.basis, self._services.grants
        is_counted = decision.grant.kind is GrantKind.USES
        lifetime_s = USES_LIFETIME_S if is_counted else decision.grant.amount * _MINUTE_S
        now = book.now()
        grant = Grant(
            id=secrets.token_hex(GRANT_ID_BYTES),
            capsule=basis.shape.capsule,
            command=basis.shape.argv[0].decode("utf-8", "backslashreplace"),
            session_id=basis.session_id,
            key_sha256=basis.key_sha256,
            want=basis.shape.want,
            bindings=decision.bindings,
            traits={name: basis.traits.get(name, "") for name in ("", *decision.bindings)},
            text=keeping.text,
            made_at=now.wall_s,
            expires_at=now.wall_s + lifetime_s,
            steady_end_s=now.steady_s + lifetime_s,
            uses_left=decision.grant.amount if is_counted else None,
        )
        era = self._era
        await self._record(keeping, grant.id)
        await self._check_era(era, grant.id)
        await book.add(grant)
        return grant.id

    async def _keep_rule(self, keeping: Keeping) -> str:
        rule_id, era = keeping.basis.rule_id, self._era
        await self._record(keeping, rule_id)
        await self._check_era(era, rule_id)
        try:
            await self._edit(lambda text: append_rule(text, keeping.text))
        except JackinError as error:
            await self._audit.record("revoked", grant=rule_id, by="broker", reason=str(error))
            raise
        if era != self._era:
            self._disarm([rule_id])
            await self._take_out([rule_id])
        await self._check_era(era, rule_id)
        await self._services.grants.note_rule(rule_id)
        return rule_id

    async def _check_era(self, era: int, grant_id: str) -> None:
        """Return when nobody revoked all while this one was written to the record.

        Raises: JackinError.
        """
        if era != self._era:
            await self._audit.record("revoked", grant=grant_id, by="operator")
            raise JackinError(
                "every grant was revoked meanwhile, and this one with them",
                hint="the command runs this once; approve the next one for longer",
            )

    async def _record(self, keeping: Keeping, grant_id: str) -> None:
        decision = keeping.decision
        await self._audit.record(
            "granted",
            flush=True,
            id=decision.id,
            grant=grant_id,
            capsule=keeping.basis.shape.capsule,
            outcome="approved" if decision.approve else "denied",
            kind=decision.grant.kind.value,
            amount=decision.grant.amount,
            bindings=list(decision.bindings),
            key_sha256=keeping.basis.key_sha256,
        )

    # --- looking ------------------------------------------------------------------------

    async def grants(self) -> tuple[GrantView, ...]:
        """Every live grant, and every rule that an approval wrote.

        Raises: ConfigError when the configuration cannot be read.
        """
        kept = [rule for rule in self._services.config.rules if _is_always(rule)]
        texts = await asyncio.to_thread(_texts_in, self._config_file) if kept else {}
        book, now = self._services.grants, _now()
        made = tuple(grant_view(grant) for grant in book.live())
        always = (
            always_view(rule, book.rule_use(rule.id), texts.get(rule.id, ""), now) for rule in kept
        )
        return (*made, *always)

    def rules(self) -> tuple[RuleView, ...]:
        """The rules in force, with what is unwise in them."""
        now, book = _now(), self._services.grants
        warnings = rule_warnings(self._services.config, now)
        return tuple(
            rule_view(rule, book.rule_use(rule.id), warnings.get(rule.number, ()), now)
            for rule in self._services.config.rules
        )

    def credentials(self) -> tuple[CredentialView, ...]:
        """The `[env]` entries, the shared ones first."""
        config = self._services.config
        known = (self._services.suspicion.suspended, self._services.unredactable)
        shared = [credential_view(one, "", *known) for one in config.bindings.values()]
        own = [
            credential_view(one, capsule.name, *known)
            for capsule in config.capsules.values()
            for one in capsule.env.values()
        ]
        return (*shared, *own)

    # --- ending -------------------------------------------------------------------------

    async def revoke(self, grant_id: str) -> None:
        """End one grant, or take its rule out of the configuration.

        Raises: JackinError when there is none of that id, or its rule cannot be taken out.
        """
        is_rule = bool(grant_id) and self._disarm({grant_id}) > 0
        was_live = await self._services.grants.revoke(grant_id)
        if is_rule:
            await self._take_out([grant_id])
        if not was_live and not is_rule:
            raise Refusal(
                DenialCode.BAD_REQUEST,
                "there is no grant of that id",
                hint="list them with: jackin-broker grants list",
            )
        await self._audit.record("revoked", grant=grant_id, by="operator")

    async def revoke_all(self, *, kill: bool) -> tuple[str, ...]:
        """End every grant, and with `kill` what was approved and has not ended; in words.

        Raises: JackinError when a rule cannot be taken out; all else has ended then.
        """
        self._era += 1
        ended = self._kill_all() if kill else 0
        always = [rule.id for rule in self._services.config.rules if _is_always(rule)]
        self._disarm(always)
        count = await self._services.grants.revoke_all() + len(always)
        await self._take_out(always)
        await self._audit.record("revoked", grant="all", by="operator", count=count, ended=ended)
        words = [f"ended {count} {'grant' if count == 1 else 'grants'}"]
        if kill:
            words.append(f"ended {ended} {'command' if ended == 1 else 'commands'}")
        return tuple(words)

    def _kill_all(self) -> int:
        """End what was approved, running or not yet; how many there were."""
        approvals, running = self._services.approvals, self._services.running
        stopped = sum(approvals.stop(entry) for entry in approvals.desk.running())
        for one in list(running.values()):
            one.end(EndedBy.OPERATOR)
        return stopped + len(running)

    # --- the configuration --------------------------------------------------------------

    def _disarm(self, rule_ids: Container[str]) -> int:
        """Put rules out of force at once, whatever the file says; how many there were."""
        config = self._services.config
        left = tuple(rule for rule in config.rules if rule.id not in rule_ids)
        self._ended.update(rule.id for rule in config.rules if rule not in left)
        self._services.config = msgspec.structs.replace(config, rules=left)
        return len(config.rules) - len(left)

    async def _take_out(self, rule_ids: list[str]) -> None:
        """Take rules out of the file, which are out of force already.

        Raises: JackinError that says that they would come back.
        """
        if not rule_ids:
            return
        try:
            await self._edit(lambda text: remove_rules(text, rule_ids))
        except JackinError as error:
            raise JackinError(
                f"ended until the configuration is read again, where it still stands: {error}",
                hint=error.hint or "take it out with an editor, then: jackin-broker reload",
            ) from error

    async def _edit(self, change: edits.Change) -> None:
        """Change the configuration's rules, on the disk and in force; nothing else of it."""
        async with self._editing:
            config = await asyncio.to_thread(
                edits.write, self._config_file, change, lock=self._config_lock
            )
            in_force = self._services.config
            # Not what was ended meanwhile; a reload alone brings back what still stands there.
            ended = self._ended - {rule.id for rule in in_force.rules}
            rules = tuple(rule for rule in config.rules if rule.id not in ended)
            self._services.config = msgspec.structs.replace(in_force, rules=rules)

    @property
    def _audit(self) -> Audit:
        return self._services.audit


def _texts_in(config_file: Path) -> dict[str, str]:
    return rule_texts(read_trusted(config_file) or "")


def _is_always(rule: Rule) -> bool:
    return bool(rule.id) and rule.action is Action.ALLOW


def _now() -> datetime:
    return datetime.now().astimezone()
