"""A broker and a capsule in which an agent asks, and each request is answered with given ticks.

Values are in private files of the operator's. It refuses to know what is delivered how.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jackin_broker.deliveries import scratch_root

from .broker import PROGRAMS, Broker, broker
from .capsule import Agent, Call, Ended, launched
from .real import SEARCH_PATH, require_bwrap, require_root, short_directory
from .second_uid import unused_uid

_HEAD: Final = """\
schema = 1
[broker]
keyring = "vault"
no_operator = "wait"
[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = [{binaries}]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]
"""


@dataclass(frozen=True)
class Lender:
    """The parts, running. `values` are the credentials, by name."""

    broker: Broker
    agent: Agent
    project: Path
    values: Mapping[str, str] = field(repr=False)

    def ask(self, *argv: str, ticked: Sequence[str] = (), stdin: bytes | None = None) -> Call:
        """Have the agent call `jackin-exec ARGV`, and say yes with these ticked."""
        call = self.agent.start("jackin-exec", "--", *argv, stdin=stdin)
        self.broker.approve(self.broker.wait_for_request()["id"], *ticked)
        return call

    def lend(self, *argv: str, ticked: Sequence[str] = (), stdin: bytes | None = None) -> Ended:
        """The same, ended."""
        return self.ask(*argv, ticked=ticked, stdin=stdin).wait()

    def newest(self, event: str) -> dict[str, Any]:
        """The newest line of that kind in the record."""
        return next(line for line in reversed(self.broker.audit()) if line["event"] == event)


@contextmanager
def lender(
    binaries: Sequence[str],
    entries: Mapping[str, str],
    values: Mapping[str, str],
    *,
    more: str = "",
) -> Generator[Lender]:
    """`entries`: what follows each binding's source, such as `deliver = "file"`."""
    require_root()
    require_bwrap()
    with ExitStack() as parts:
        store = parts.enter_context(short_directory())
        project = parts.enter_context(short_directory(0o777))
        lines = ["[env]"]
        for name, value in values.items():
            path = store / name
            path.touch(mode=0o600)
            path.write_text(value)
            options = f", {entries[name]}" if entries.get(name) else ""
            lines.append(f'{name} = {{ file = "{path}", on_demand = true{options} }}')
        uid = unused_uid()
        listed = ", ".join(f'"{name}"' for name in binaries)
        text = _HEAD.format(uid=uid, binaries=listed, project=project) + more
        served = parts.enter_context(
            broker(text + "\n".join(lines) + "\n", env={"PATH": f"{PROGRAMS}:{SEARCH_PATH}"})
        )
        agent = parts.enter_context(
            launched(served, "--runtime", "bwrap", "--name", "web", "--uid", str(uid))
        )
        yield Lender(served, agent, project, values)


def scratch_of(served: Broker) -> list[Path]:
    """The directories that a broker's commands have on the host now."""
    root = scratch_root(served.runtime_dir)
    return list(root.iterdir()) if root.exists() else []
