"""A broker with one capsule that an engine makes, and a project of its agent's.

Where the engine is rootless everything belongs to its operator, a plain user. It refuses to know
what is asked.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .broker import Broker
from .engine import IMAGE, Engine, own
from .readable import readable_programs
from .real import short_directory
from .second_uid import AGENT_UID, OTHER_UID

_CONFIG: Final = """\
schema = 1
[broker]
keyring = "vault"
no_operator = "wait"
picker = "{picker}"
[env]
TOKEN = {{ value = "{token}", on_demand = true }}
[capsules.web]
kind = "{engine}"
image = "{image}"
uids = [{uid}]
host_binaries = ["uname", "env"]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]
{run_as}
{more}
"""
# With these nobody has to be asked.
RULES: Final = """
[[rules]]
action = "allow"
argv = ["uname", "..."]
[[rules]]
action = "allow"
target = "capsule"
argv = ["sh", "..."]
bindings = ["TOKEN"]
stdin = "live"
trust_cwd = true
"""


@dataclass(frozen=True)
class Scene:
    """The parts, running. The uids are the capsule's: of the agent, and of a command inside."""

    broker: Broker
    engine: Engine
    project: Path
    token: str
    agent_uid: int
    command_uid: int

    def line(self, event: str) -> dict[str, Any]:
        """The newest line of that kind in the record."""
        return next(line for line in reversed(self.broker.audit()) if line["event"] == event)


@contextmanager
def container_scene(
    engine: Engine,
    *,
    run_as: int = OTHER_UID,
    more: str = "",
    has_popup: bool = False,
) -> Generator[Scene]:
    """`more`: what follows in the capsule's table. Rootless capsules need no second uid.

    With `has_popup` the picker comes up over a client of the tmux at the scene's `tmux_socket`.
    """
    operator = engine.operator
    host_uid = AGENT_UID if operator is None else operator.uid
    if operator is not None:
        run_as = 0
    token = "tok-" + secrets.token_hex(12)
    with short_directory(0o711) as folder, short_directory(0o755) as project:
        os.chown(project, host_uid, host_uid)
        config = _CONFIG.format(
            picker="tmux-popup" if has_popup else "attach",
            token=token,
            engine=engine.name,
            image=IMAGE,
            uid=host_uid,
            project=project,
            run_as=f"run_as = {run_as}" if run_as else "",
            more=more,
        )
        env = {**engine.env, **({"TMUX": f"{folder}/tmux,1,0"} if has_popup else {})}
        if operator is not None:
            env["PYTHONPATH"] = str(readable_programs(folder / "library"))
        made = Broker(folder, config, env, engine.prefix)
        own(folder, operator)
        inner = 0 if engine.is_rootless else host_uid
        try:
            made.start()
            yield Scene(made, engine, project, token, inner, run_as or inner)
        finally:
            made.end()
