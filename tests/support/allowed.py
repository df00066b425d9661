"""A broker whose rules allow a few programs at once, with a credential: what running is like.

Kind `none`, unconfined, so that it runs everywhere and nothing but the running is under test. It
refuses to know what the programs do.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .agent import Agent
from .broker import Broker, broker
from .real import short_directory

# From directories that only root can write, whoever runs the tests.
_SEARCH_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
_HEAD: Final = """schema = 1
[broker]
no_operator = "wait"
[env]
TOKEN = {{ file = "{folder}/token", on_demand = true }}
[capsules.web]
kind = "none"
"""
_BINARY: Final = """[capsules.web.binaries.{name}]
confine = {confine}
"""
_RULE: Final = """[[rules]]
action = "allow"
argv = ["{name}", "..."]
bindings = ["TOKEN"]
stdin = "live"
tty = true
trust_cwd = true
"""


@dataclass(frozen=True)
class Allowed:
    """The broker, the agent in its directory, and the value that each command gets."""

    broker: Broker
    agent: Agent
    work: Path
    token: str

    def line(self, event: str) -> dict[str, Any]:
        """The newest line of that kind in the record."""
        return next(line for line in reversed(self.broker.audit()) if line["event"] == event)


@contextmanager
def allowed(
    *names: str, asked: Sequence[str] = (), more: str = "", is_confined: bool = False
) -> Generator[Allowed]:
    """A running broker that allows these programs, whatever their arguments.

    Those in `asked` are listed without a rule; `more` is the configuration's end.
    """
    confine = str(is_confined).lower()
    with short_directory() as folder:
        token = "tok-" + secrets.token_hex(12)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token)
        (folder / "work").mkdir()
        listed = ", ".join(f'"{name}"' for name in (*names, *asked))
        text = _HEAD.format(folder=folder) + f"host_binaries = [{listed}]\n"
        text += "".join(_BINARY.format(name=name, confine=confine) for name in (*names, *asked))
        text += "".join(_RULE.format(name=name) for name in names) + more
        with broker(text, env={"PATH": _SEARCH_PATH}) as running:
            agent = Agent(running, "web", folder / "work")
            yield Allowed(running, agent, folder / "work", token)
