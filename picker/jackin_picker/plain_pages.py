"""Plain mode's pages: what waits, runs, ran; grants, rules, credentials; ending and revoking.

It refuses to know lines and keys. Invariants: nothing here answers a request; what ends or revokes
something takes the number that was said with it last, once; a number that was not said does
nothing and makes the others worthless; what the broker refuses is said in its words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Final, Protocol

from textual.content import Content

from jackin_broker.errors import JackinError
from jackin_broker.operator_protocol import (
    Credentials,
    Done,
    Grants,
    GrantView,
    KillRequest,
    ListCredentials,
    ListGrants,
    ListHistory,
    ListRules,
    Requests,
    RequestView,
    RevokeAll,
    RevokeGrant,
    Rules,
    RuleView,
)

from .inbox import Inbox
from .link import Link
from .plain_output import PlainOutput, refusal_line
from .plain_page_lines import (
    HISTORY_SAID,
    SAID_MAX,
    credential_page_lines,
    ended_lines,
    grant_lines,
    revoke_all_line,
    rule_lines,
    running_line,
    waiting_line,
)
from .plain_prompt import new_number
from .plain_words import Order, Verb
from .terms import text_lines
from .text import literal, own, row
from .whole import request_lines

VERBS: Final = frozenset(
    {
        *(Verb.LIST, Verb.KILL, Verb.OUTPUT, Verb.SILENT, Verb.HISTORY),
        *(Verb.GRANTS, Verb.REVOKE, Verb.REVOKE_ALL, Verb.RULES, Verb.CREDENTIALS),
    }
)
_ALL: Final = ""


class Room(Protocol):
    """Where pages are said."""

    @property
    def inbox(self) -> Inbox: ...

    @property
    def width(self) -> int: ...

    @property
    def is_asking(self) -> bool: ...

    def say(self, lines: Iterable[Content]) -> None: ...

    def tell(self, line: Content) -> None: ...

    def now_s(self) -> float: ...


class PlainPages:
    """Obeys the orders of VERBS. `start` runs a job beside what is typed."""

    def __init__(
        self, room: Room, link: Link, start: Callable[[Coroutine[None, None, None]], None]
    ) -> None:
        self._room: Final = room
        self._link: Final = link
        self._start: Final = start
        self.output: Final = PlainOutput(room, link.call)
        self._running: dict[str, str] = {}  # the number that was said → the request
        self._revocable: dict[str, str] = {}  # → the grant; _ALL: every one
        self._grants: tuple[GrantView, ...] = ()
        self._rules: tuple[RuleView, ...] = ()
        self._ended: tuple[RequestView, ...] = ()

    def obey(self, order: Order) -> None:
        """Do what the line asks for."""
        match order.verb:
            case Verb.LIST:
                self._list()
            case Verb.KILL:
                self._kill(order.number)
            case Verb.OUTPUT:
                self._follow(order.number)
            case Verb.SILENT:
                self._try(self._silence())
            case Verb.REVOKE | Verb.REVOKE_ALL:
                self._revoke(order)
            case Verb.CREDENTIALS:
                self._try(self._say_credentials())
            case Verb.GRANTS | Verb.RULES | Verb.HISTORY if order.places:
                self._whole(order.verb, order.places[0])
            case Verb.GRANTS:
                self._try(self._say_grants())
            case Verb.RULES:
                self._try(self._say_rules())
            case _:
                self._try(self._say_history())

    def _try(self, job: Coroutine[None, None, None]) -> None:
        async def tried() -> None:
            try:
                await job
            except JackinError as error:
                self._room.tell(refusal_line(error))

        self._start(tried())

    # --- what waits and what runs -----------------------------------------------------

    def _list(self) -> None:
        room = self._room
        running = room.inbox.under_way[:SAID_MAX]
        numbers = _numbers(view.id for view in running)
        self._running = {str(code): request_id for request_id, code in numbers.items()}
        lines = [
            waiting_line(view, room.width, room.inbox.left_s(view, room.now_s()))
            for view in room.inbox.waiting[:SAID_MAX]
        ]
        lines += [running_line(numbers[view.id], view, room.width) for view in running]
        if running:
            lines.append(own("output and the same number says what it writes."))
        room.say(lines or [own("Nothing waits, nothing runs.")])

    def _kill(self, code: str) -> None:
        request_id = self._running.pop(code, None)
        if request_id is None:
            self._running.clear()
            self._room.say([own("list says which number ends what: nothing was ended.")])
            return
        self._try(self._end(request_id))

    async def _end(self, request_id: str) -> None:
        await self._link.call(KillRequest(0, request_id))
        self._room.tell(own("It is being ended."))

    def _follow(self, code: str) -> None:
        view = self._room.inbox.find(self._running.get(code, ""))
        if view is None:
            self._room.say([own("list says which number stands for what runs.")])
            return
        self._try(self.output.follow(view))

    async def _silence(self) -> None:
        was_on = await self.output.leave()
        self._room.say([own("No output is said any more.") if was_on else own("None was said.")])

    # --- lists of the broker's --------------------------------------------------------

    async def _say_grants(self) -> None:
        reply = await self._link.call(ListGrants(0))
        if isinstance(reply, Grants):
            self._grants = reply.grants[:SAID_MAX]
            numbers = _numbers([*(grant.id for grant in self._grants), _ALL])
            self._revocable = {str(code): grant_id for grant_id, code in numbers.items()}
            now_s, width = time.time(), self._room.width
            last = revoke_all_line(numbers[_ALL], len(self._grants))
            self._room.say([*grant_lines(self._grants, numbers, now_s, width), last])

    async def _say_rules(self) -> None:
        reply = await self._link.call(ListRules(0))
        if isinstance(reply, Rules):
            self._rules = reply.rules
            self._room.say(rule_lines(reply.rules, self._room.width))

    async def _say_history(self) -> None:
        reply = await self._link.call(ListHistory(0, limit=HISTORY_SAID))
        if isinstance(reply, Requests):
            self._ended = reply.requests
            self._room.say(ended_lines(reply.requests, self._room.width))

    async def _say_credentials(self) -> None:
        reply = await self._link.call(ListCredentials(0))
        if isinstance(reply, Credentials):
            self._room.say(credential_page_lines(reply.rows, self._room.width))

    def _whole(self, verb: Verb, place: int) -> None:
        """All of the one that was said at this place."""
        width = self._room.width
        rules = {rule.number: rule.text for rule in self._rules}
        if verb is Verb.GRANTS and 1 <= place <= len(self._grants):
            self._room.say(text_lines(self._grants[place - 1].text, width))
        elif verb is Verb.RULES and place in rules:
            self._room.say(text_lines(rules[place], width))
        elif verb is Verb.HISTORY and 1 <= place <= len(self._ended):
            self._room.say(request_lines(self._ended[place - 1], width))
        else:
            self._room.say([own("None was said under that number: say the list first.")])

    # --- taking back ------------------------------------------------------------------

    def _revoke(self, order: Order) -> None:
        grant_id = self._revocable.get(order.number)
        is_all = order.verb is Verb.REVOKE_ALL
        if grant_id is None or is_all is not (grant_id == _ALL):
            self._revocable.clear()
            self._room.say([own("grants says which number revokes what: nothing was revoked.")])
            return
        del self._revocable[order.number]
        self._try(self._revoke_all() if is_all else self._revoke_one(grant_id))

    async def _revoke_one(self, grant_id: str) -> None:
        await self._link.call(RevokeGrant(0, grant_id))
        self._room.tell(own("Revoked: it will be asked about again."))

    async def _revoke_all(self) -> None:
        reply = await self._link.call(RevokeAll(0, kill=True))
        self._room.tell(own("Every grant is revoked, and what ran is being ended."))
        for note in reply.notes if isinstance(reply, Done) else ():
            self._room.tell(row(own("  "), literal(note)))


def _numbers(ids: Iterable[str]) -> dict[str, int]:
    """Another new number for each."""
    numbers: dict[str, int] = {}
    taken: set[int] = set()
    for one in ids:
        code = new_number()
        while code in taken:
            code = new_number()
        taken.add(code)
        numbers[one] = code
    return numbers
