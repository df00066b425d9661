"""What a screen needs of the program around it: the clock, the desk, the way to the broker.

It refuses to know how any of it is done; `app.py` does it. Nothing here decides.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from typing import Protocol

from textual import events
from textual.content import Content
from textual.screen import Screen

from jackin_broker.operator_protocol import Call, Decide, Reply

from .inbox import Inbox
from .tabs import Page


class Clock:
    """Seconds of the clock with which Textual stamps what arrives, and of the calendar's."""

    def now_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        """Seconds since 1970: the clock of grants."""
        return time.time()

    def arrival_s(self, event: events.Event) -> float:
        """When it was read from the terminal, which may be long before it is handled."""
        return event.time


class Stage(Protocol):
    """The picker, as its screens know it."""

    @property
    def inbox(self) -> Inbox: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def has_broker(self) -> bool: ...

    @property
    def trouble(self) -> str:
        """Why there is no connection, or nothing."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What the broker warns of."""
        ...

    def decide(self, decision: Decide) -> None:
        """Take it to the broker; the outcome comes back to the desk's screen."""

    async def ask(self, call: Call) -> Reply:
        """The broker's reply. Raises: JackinError, with the words to show."""
        ...

    def go(self, page: Page) -> None:
        """Show this page, whatever lies over the desk now."""

    def put_over(self, screen: Screen[None]) -> None:
        """Show a screen over this one."""

    def uncover(self, screen: Screen[None]) -> None:
        """Close whatever lies over it."""

    def is_on_top(self, screen: Screen[None]) -> bool:
        """Whether nothing lies over it."""
        ...

    def open_palette(self) -> None:
        """Show every command, to be found by its name."""

    def help(self) -> None:
        """Show the keys."""

    def deny_all(self, capsule: str, reason: str) -> None:
        """Deny everything that waits from this capsule."""

    def background(self, job: Coroutine[None, None, None]) -> None:
        """Do it while the screens stay usable."""

    def say(self, words: Content) -> None:
        """Show this below whatever is on the screen, until the next key."""

    def in_terminal(self, words: Sequence[str]) -> int:
        """Give the terminal to `jackin-broker WORDS` until it ends; its exit status."""
        ...

    def leave(self) -> None:
        """End the picker; nothing else ends."""
