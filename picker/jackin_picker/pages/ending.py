"""Ending a running command: the question, and the call.

It refuses to know which screen asks. Invariant: the answer takes a key that was pressed after
the question could be read.
"""

from __future__ import annotations

from textual.content import Content

from jackin_broker.operator_protocol import KillRequest, RequestView

from ..command import command_lines
from ..confirm import ConfirmScreen
from ..stage import Stage
from ..text import QUIET, own


def ask_to_kill(stage: Stage, view: RequestView) -> None:
    """Ask whether this command and all that it started shall end."""

    async def kill() -> Content:
        await stage.ask(KillRequest(seq=0, id=view.id))
        return own("it is being ended")

    def lines(width: int, height: int) -> list[Content]:
        return [
            own("End this command, and everything that it started?"),
            own("The agent is told that it was ended. What it did so far stays done.", QUIET),
            own(""),
            *command_lines(view, width, max(3, height - 3)).lines,
        ]

    stage.put_over(ConfirmScreen(stage, lines, kill))
