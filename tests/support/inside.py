"""A launched capsule whose rules let commands run inside it, with a credential.

Kind `bwrap`, as a second uid where the tests run as root. It refuses to know what the commands do.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .broker import Broker, broker
from .capsule import Agent, launched
from .real import require_bwrap, short_directory
from .second_uid import AGENT_UID

_CONFIG: Final = """\
schema = 1
[broker]
keyring = "vault"
no_operator = "wait"
[env]
TOKEN = {{ value = "{token}", on_demand = true, deliver = "{deliver}" }}
GIVEN = "given-at-launch"
[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = ["uname"]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]
[[rules]]
action = "allow"
target = "capsule"
argv = ["{name}", "..."]
bindings = [{bindings}]
stdin = "live"
tty = true
trust_cwd = true
[[rules]]
action = "allow"
argv = ["uname", "..."]
[limits]
kill_grace_s = 0.5
{limits}
"""


@dataclass(frozen=True)
class Inside:
    """The broker, the agent in its capsule, the project as the host has it, the lent value."""

    broker: Broker
    agent: Agent
    project: Path
    token: str

    def line(self, event: str) -> dict[str, Any]:
        """The newest line of that kind in the record."""
        return next(line for line in reversed(self.broker.audit()) if line["event"] == event)


@contextmanager
def inside(
    *,
    name: str = "sh",
    has_binding: bool = True,
    deliver: str = "env",
    token: str = "",
    limits: str = "",
    more: str = "",
) -> Generator[Inside]:
    """A running capsule in which a rule allows programs of this name (`*` for any)."""
    require_bwrap()
    uid = AGENT_UID if os.geteuid() == 0 else os.geteuid()
    with short_directory(0o755) as project:
        if os.geteuid() == 0:
            os.chown(project, uid, uid)
        token = token or "tok-" + secrets.token_hex(12)
        text = _CONFIG.format(
            token=token,
            deliver=deliver,
            uid=uid,
            project=project,
            name=name,
            bindings='"TOKEN"' if has_binding else "",
            limits=limits,
        )
        with broker(text + more) as running, launched(running, "--quiet", "--name", "web") as agent:
            yield Inside(running, agent, project, token)
