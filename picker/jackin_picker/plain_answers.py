"""What an order that was typed leads to: something said, a choice, or a call to the broker.

It refuses to know how lines are read. Invariants: a decision names the digest of what was said;
one at a time; what the broker refuses is said in its words, and the request asked anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, Protocol

from textual.content import Content

from jackin_broker.errors import JackinError
from jackin_broker.operator_protocol import (
    FINAL_STATES,
    Decide,
    Decided,
    DenyAll,
    Done,
    ListRequests,
    Requests,
    RequestState,
    RequestView,
)

from .glimpse import SLOW_S
from .guard import Press
from .handover import Handover
from .link import Link
from .plain_lines import (
    HELP,
    over_line,
    term_lines,
    terms_of,
    ticked_line,
)
from .plain_pages import VERBS, PlainPages, Room
from .plain_prompt import PlainPrompt
from .plain_terminal import PlainTerminal
from .plain_words import Order, Verb
from .terms import offer_lines
from .text import literal, own, row
from .whole import request_lines

_NOT_NOW: Final = own("Nothing waits for an answer.")
_NOT_UNDERSTOOD: Final = own("Not understood, nothing was done: help says what can be typed.")
_WRONG_NUMBER: Final = own("That is not its number: nothing was done, and it gets another one.")


class Session(Room, Protocol):
    """What orders act on."""

    @property
    def prompt(self) -> PlainPrompt | None: ...

    @property
    def terminal(self) -> PlainTerminal: ...

    def ask(self) -> None: ...

    def ask_anew(self) -> None: ...

    def follow(self) -> None: ...

    def leave(self, status: int = 0) -> None: ...


class PlainAnswers:
    """Obeys what is typed."""

    def __init__(self, session: Session, link: Link) -> None:
        self._session: Final = session
        self._link: Final = link
        self._handover: Final = Handover()
        self.pages: Final = PlainPages(session, link, self._start)
        self._approved: set[str] = set()  # here, and not over
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_busy = False

    async def close(self) -> None:
        """Wait for nothing any more."""
        self._handover.end()
        self.pages.output.forget()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def heard(self, view: RequestView) -> None:
        """News of a request: what was approved here is told of when it is over."""
        self.pages.output.heard(view)
        if view.state in FINAL_STATES and view.id in self._approved:
            self._approved.discard(view.id)
            self._session.tell(over_line(view, self._session.terminal.width))

    def obey(self, order: Order) -> None:
        """Do what the line asks for."""
        session, prompt = self._session, self._session.prompt
        press = Press.ACTS if prompt is None else prompt.guard.press(session.now_s())
        match order.verb:
            case Verb.NOTHING:
                pass
            case Verb.QUIT:
                session.leave()
            case Verb.HELP:
                session.say(HELP)
            case verb if verb in VERBS:
                self.pages.obey(order)
            case Verb.UNLOCK:
                self._unlock()
            case Verb.UNKNOWN:
                if prompt is not None:
                    prompt.guard.stray()
                session.say([_NOT_UNDERSTOOD])
            case _ if prompt is None:
                session.say([_NOT_NOW])
            case Verb.RUN | Verb.DENY | Verb.DENY_ALL:
                self._decide(prompt, order, press)
            case _:
                self._choose(prompt, order)

    # --- what decides nothing ---------------------------------------------------------

    def _choose(self, prompt: PlainPrompt, order: Order) -> None:
        session, view = self._session, prompt.view
        match order.verb:
            case Verb.TICK | Verb.UNTICK:
                if not prompt.tick(order):
                    session.say([own("No credential has that number: nothing was ticked.")])
                session.say([ticked_line(prompt.ticked, prompt.offer)])
            case Verb.TERMS:
                session.say(term_lines(terms_of(view), prompt.offer))
            case Verb.TERM:
                self._choose_term(prompt, order.places[0])
            case Verb.READ:
                session.say(request_lines(view, session.terminal.width))
            case Verb.NEXT:
                after = session.inbox.after(view.id)
                if after is None or after.id == view.id:
                    session.say([own("No other request waits.")])
                else:
                    session.inbox.choose(after.id)
                    session.follow()
            case _:
                session.ask()

    def _choose_term(self, prompt: PlainPrompt, place: int) -> None:
        session, offers = self._session, terms_of(prompt.view)
        if not 1 <= place <= len(offers):
            session.say([own("No term has that number: nothing was chosen.")])
            return
        prompt.offer = offers[place - 1]
        width = session.terminal.width
        session.say(
            [
                *offer_lines(prompt.offer, prompt.ticked, width),
                ticked_line(prompt.ticked, prompt.offer),
            ]
        )

    def _unlock(self) -> None:
        """The passphrase is read by the command line, never by this process."""
        self._session.terminal.listen()
        self._handover.run(("vault", "unlock"))
        self._session.ask()

    # --- what decides ------------------------------------------------------------------

    def _decide(self, prompt: PlainPrompt, order: Order, press: Press) -> None:
        decision = prompt.decide(order, press)
        if decision is not None:
            self.is_busy = True
            self._session.terminal.hush()
            self._start(self._send(decision))
        elif press is not Press.ACTS or prompt.is_decided:
            self._session.say([own("Nothing was done: it came too early, or with another line.")])
        else:
            self._session.say([_WRONG_NUMBER])
            self._session.ask()

    async def _send(self, decision: Decide | DenyAll) -> None:
        session = self._session
        try:
            reply = await self._link.call(decision)
        except JackinError as error:
            said = row(own("Not taken: "), literal(str(error)))
        else:
            match reply:
                case Decided(accepted=True) if isinstance(decision, Decide):
                    said = self._taken(decision, reply)
                case Done() | Decided(accepted=True):
                    said = own("Denied: all that waited from that capsule.")
                case Decided():
                    said = row(own("Not taken: "), literal(reply.reason))
                case _:
                    said = own("Not taken: the broker answered something else.")
        self.is_busy = False
        session.say([said])
        await self._look_again()
        session.ask_anew()

    async def _look_again(self) -> None:
        """What is on the desk now, so that what is asked next is what waits."""
        try:
            reply = await self._link.call(ListRequests(0))
        except JackinError:
            return
        if isinstance(reply, Requests):
            self._session.inbox.replace(reply.requests, self._session.now_s())

    def _taken(self, decision: Decide, reply: Decided) -> Content:
        if reply.reason:
            return row(own("Taken for once, and nothing was stored: "), literal(reply.reason))
        if not decision.approve:
            return own("Denied.")
        self._approved.add(decision.id)
        self._start(self._say_when_slow(decision.id))
        return own("Approved.")

    async def _say_when_slow(self, request_id: str) -> None:
        await asyncio.sleep(SLOW_S)
        view = self._session.inbox.find(request_id)
        slow = (RequestState.APPROVED, RequestState.RESOLVING)
        if view is not None and view.state in slow:
            self._session.tell(
                own("Still getting its credentials: a keyring or a password manager may ask.")
            )

    def _start(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
