"""What every session uses, in one place; the daemon makes it, a reload changes it.

It refuses to know how any of it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .approvals import Approvals
from .audit import Audit
from .config import Config
from .guessing import Suspicion
from .runner.running import Running
from .sources.resolver import Resolver


class Services:
    """What every session uses; one a broker. `config` and `resolver` change on reload.

    `hidden` are the host paths that no command may see; `environ` is the broker's own.
    """

    def __init__(
        self,
        config: Config,
        approvals: Approvals,
        audit: Audit,
        resolver: Resolver,
        *,
        hidden: tuple[str, ...],
        environ: Mapping[str, str],
    ) -> None:
        self.config = config
        self.approvals: Final = approvals
        self.audit: Final = audit
        self.resolver = resolver
        self.hidden: Final = hidden
        self.environ: Final = environ
        self.running: Final[dict[str, Running]] = {}
        self.suspicion: Final = Suspicion()
