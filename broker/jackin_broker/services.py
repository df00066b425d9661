"""What every session uses, in one place; the daemon makes it, a reload changes it.

It refuses to know how any of it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .approvals import Approvals
from .audit import Audit
from .config import Config, NoOperator
from .deliveries import Scratch
from .desk import DeskLimits
from .grants.book import GrantBook
from .guessing import Suspicion
from .live_output import LiveOutput
from .masking import Unredactable, known_needles
from .redact.needles import NeedleSet
from .runner.running import Running
from .sources.resolver import Resolver


class Services:
    """What every session uses; one a broker. `config` and `resolver` change on reload.

    `hidden` are the host paths that no command may see; `environ` is the broker's own; `scratch`
    makes directories for commands that need one on the host.
    """

    def __init__(
        self,
        config: Config,
        approvals: Approvals,
        audit: Audit,
        resolver: Resolver,
        grants: GrantBook,
        *,
        hidden: tuple[str, ...],
        environ: Mapping[str, str],
        scratch: Scratch,
    ) -> None:
        self.config = config
        self.approvals: Final = approvals
        self.audit: Final = audit
        self.resolver = resolver
        self.grants: Final = grants
        self.hidden: Final = hidden
        self.environ: Final = environ
        self.scratch: Final = scratch
        self.running: Final[dict[str, Running]] = {}
        self.live: Final = LiveOutput()
        self.suspicion: Final = Suspicion()
        self.unredactable: Final = Unredactable()
        self._known: tuple[Config, NeedleSet] | None = None

    def follow(self, config: Config) -> None:
        """From now on as this configuration says; what has begun goes on as it began."""
        self.config = config
        self.unredactable.forget()
        self.grants.is_kept = config.broker.keep_grants
        self.audit.writer.keep_days = config.broker.audit_days
        self.approvals.desk.limits = desk_limits(config)
        self.approvals.wait_without_operator = waits_without_operator(config)

    def known_needles(self) -> NeedleSet:
        """Of values that are known without asking a source; made once for each configuration."""
        if self._known is None or self._known[0] is not self.config:
            self._known = self.config, known_needles(self.config.all_bindings(), self.environ)
        return self._known[1]


def waits_without_operator(config: Config) -> bool:
    """Whether a request waits where nobody is attached."""
    return config.broker.no_operator is NoOperator.WAIT


def desk_limits(config: Config) -> DeskLimits:
    """How much may wait, and for how long."""
    limits = config.limits
    return DeskLimits(
        limits.approve_s, limits.waiting_per_capsule, limits.ask_burst, limits.ask_per_s
    )
