"""Getting the operator's attention: a popup in tmux, a command that is told of a request.

It refuses to know what is asked; what the attached programs do themselves, bell and terminal
notification, is theirs. Invariants: each request is told of once; one popup at a time, whatever
arrives meanwhile, and none where a picker is attached; a popup that the operator closed does not
come back for what they saw in it; nothing from a capsule gets past the notifier's one name.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .approvals import Approvals
from .config import Config, PickerKind
from .notifier import Notifier
from .operator_protocol import RequestState, RequestView
from .operator_tmux import OperatorTmux, find_tmux
from .sources.resolver import consumed_variables

_log = logging.getLogger(__name__)

# While something waits unseen: how often it is looked whether a popup can be shown.
RETRY_S: Final = 1.0
# One look answers all who ask within this time: an agent that asks in bursts forks nothing.
LOOK_HOLDS_S: Final = 0.25
# What arrived this shortly before a popup closed was not read: it may have been closing already.
SEEN_S: Final = 1.0
# A picker that does not start would flash over the operator's work for as long as anything waits.
FAILURES_MAX: Final = 3


class Attention:
    """Listens to the desk; one a broker."""

    def __init__(
        self, approvals: Approvals, operator_socket: Path, environ: Mapping[str, str]
    ) -> None:
        self._approvals: Final = approvals
        self._socket: Final = operator_socket
        self._environ: Final = environ
        self._notifier: Final = Notifier(environ)
        self._notify = ""
        self._tmux: OperatorTmux | None = None
        self._is_wanted = False
        self._told: dict[str, float] = {}  # what waits and was told of, since when
        self._seen: set[str] = set()  # of that, what an operator had on the screen
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looked: tuple[float, bool] | None = None
        self._leave = approvals.listen(self._heard, counts=False)
        self._watching = asyncio.create_task(self._watch(), name="attention")

    def follow(self, config: Config) -> None:
        """From now on as this configuration says."""
        broker = config.broker
        self._is_wanted = broker.picker is PickerKind.TMUX_POPUP
        self._tmux = find_tmux(self._environ, broker.tmux_socket) if self._is_wanted else None
        self._looked = None
        self._approvals.reach = self.can_reach if self._tmux is not None else None
        self._notify = broker.notify[0] if broker.notify else ""
        self._notifier.follow(broker.notify, set(consumed_variables(config.all_bindings())))
        self._news.set()

    def notices(self) -> tuple[str, ...]:
        """What of the configuration reaches nobody."""
        lines: list[str] = []
        if self._is_wanted and self._tmux is None:
            lines.append('picker = "tmux-popup", and tmux is not installed: nothing pops up')
        if self._notify and shutil.which(self._notify, path=self._environ.get("PATH")) is None:
            lines.append("the program of notify is not found: nobody is told of requests")
        return tuple(lines)

    async def can_reach(self) -> bool:
        """Whether a popup would be seen: somebody is in front of the operator's tmux."""
        async with self._looking:
            now = self._approvals.now()
            if self._looked is None or now - self._looked[0] > LOOK_HOLDS_S:
                tmux = self._tmux
                is_there = tmux is not None and await tmux.client() is not None
                self._looked = self._approvals.now(), is_there
            return self._looked[1]

    async def close(self) -> None:
        """Tell of nothing any more."""
        self._leave()
        self._watching.cancel()
        await asyncio.wait([self._watching])
        await self._notifier.close()

    def _heard(self, view: RequestView) -> None:
        """A request is new, moved or ended."""
        if view.state is not RequestState.WAITING:
            self._told.pop(view.id, None)
            self._seen.discard(view.id)
        elif view.id not in self._told:
            self._told[view.id] = self._approvals.now()
            self._notifier.tell(view.command, while_true=lambda: view.id in self._told)
            self._news.set()

    # --- the popup ----------------------------------------------------------------------

    async def _watch(self) -> None:
        """Show what waits, whenever something does that no operator has seen."""
        while True:
            await self._news.wait()
            self._news.clear()
            failures = 0
            while self._tmux is not None and self._has_unseen():
                try:
                    failures = 0 if await self._show(self._tmux) else failures + 1
                except OSError as error:
                    _log.warning("tmux did not start: %s", error.strerror)
                    failures += 1
                if failures >= FAILURES_MAX:
                    _log.error("the picker does not start in a popup; see: jackin-broker attach")
                    self._seen.update(self._told)
                elif self._has_unseen():
                    await asyncio.sleep(RETRY_S)

    async def _show(self, tmux: OperatorTmux) -> bool:
        """Have what waits seen, if that is possible now; whether nothing is wrong."""
        if self._approvals.pickers:
            self._seen.update(self._told)
            return True
        client = await tmux.client()
        if client is None or self._approvals.pickers:
            return True
        before = self._approvals.pickers_ever
        status = await tmux.show_popup(client, self._socket)
        if self._approvals.pickers_ever != before:
            if await tmux.client() is not None:  # else it went away with whom it was shown to
                since = self._approvals.now() - SEEN_S
                self._seen.update(one for one, at in self._told.items() if at <= since)
            return True
        return status == 0  # something else pops up there, and will go away

    def _has_unseen(self) -> bool:
        return not self._seen.issuperset(self._told)
