"""What the command palette offers, and what each of it does.

It refuses to know how. Invariant: nothing here answers a request; what would, asks as it does
without the palette.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .palette import Command
from .screen import DeskScreen
from .stage import Stage
from .tabs import Page


def commands_of(stage: Stage, desk: DeskScreen, flip_theme: Callable[[], None]) -> list[Command]:
    """All that can be done now; what concerns a request only while one waits."""

    def at_desk(do: Callable[[], None]) -> Callable[[], None]:
        def there() -> None:
            stage.go(Page.DESK)
            do()

        return there

    asked = [
        Command("answer the request that waits", "Esc", partial(stage.go, Page.DESK)),
        Command("read all of the request", "v", at_desk(desk.read_all)),
        Command("for how long your answer holds", "g", at_desk(desk.choose_term)),
        Command("leave this request for later, show the next one", "n", at_desk(desk.next)),
        Command("deny all that waits from this capsule", "D", at_desk(desk.sweep)),
    ]
    return [
        *(asked if stage.inbox.current is not None else []),
        Command("what waits for an answer", "1", partial(stage.go, Page.WAITING)),
        Command("what runs, and its output", "2", partial(stage.go, Page.RUNNING)),
        Command("what ended", "3", partial(stage.go, Page.HISTORY)),
        Command("grants: what may run again unasked, revoke", "4", partial(stage.go, Page.GRANTS)),
        Command(
            "credentials: add, check, unlock the vault", "5", partial(stage.go, Page.CREDENTIALS)
        ),
        Command("rules, and what is unwise about them", "6", partial(stage.go, Page.RULES)),
        Command("unlock the vault", "", partial(_unlock, stage)),
        Command("light or dark", "", flip_theme),
        Command("help: the keys", "?", stage.help),
        Command("quit; what waits goes on waiting", "q", stage.leave),
    ]


def _unlock(stage: Stage) -> None:
    stage.in_terminal(["vault", "unlock"])
