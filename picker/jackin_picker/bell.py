"""What a terminal is sent when a request arrives: a bell, and a notification where it knows any.

It refuses to know screens and the terminal; whoever holds it writes the text. Invariants: each
request rings once; the only word of a request is its program's name, reduced to
`[A-Za-z0-9._+-]`, so that nothing of it can end the sequence or begin another.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jackin_broker.display import show_name
from jackin_broker.operator_protocol import RequestState, RequestView

BELL: Final = "\a"
# Terminals that would print the sequence, or hand it to another that does not expect it.
_WITHOUT: Final = ("", "dumb", "linux", "screen", "tmux", "vt100", "vt220")
# These know OSC 777, the rest of those that know any OSC 9; both would notify some twice.
_TITLED: Final = ("foot", "rxvt", "contour")


class Bell:
    """Which requests were rung for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._rung: set[str] = set()
        term = environ.get("TERM", "").split("-")[0]
        self._notifies = term not in _WITHOUT and "TMUX" not in environ
        self._is_titled = term in _TITLED or "VTE_VERSION" in environ

    def heard(self, view: RequestView) -> str:
        """What to write to the terminal for this news of a request; nothing for most."""
        if view.state is not RequestState.WAITING:
            self._rung.discard(view.id)
            return ""
        if view.id in self._rung:
            return ""
        self._rung.add(view.id)
        return BELL + (self._notification(view) if self._notifies else "")

    def _notification(self, view: RequestView) -> str:
        command = view.command
        name = show_name(command.rpartition("/")[2] if isinstance(command, str) else command)
        start = "777;notify;jackin-exec;" if self._is_titled else "9;jackin-exec: "
        return "".join(("\x1b]", start, name, " waits for an answer\x1b\\"))
