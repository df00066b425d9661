"""A capsule without a boundary: the command runs as it would without us, with its doorway named.

For trying things and for tests. The agent is the operator's own uid, so it can approve itself;
the broker says so wherever it can. It shares the terminal, the file system and the environment.
"""

from __future__ import annotations

import os
import shutil
import sys

from ..config.model import CapsuleKind
from ..errors import ConfigError
from .base import Launcher, Plan, Prepared


class PlainLauncher(Launcher):
    """Kind `none`."""

    kind = CapsuleKind.NONE
    has_boundary = False

    def check(self) -> None:
        """There is nothing that it needs."""

    def interpreter(self, image: str = "") -> str:
        # Not the virtual environment's link, whose path may have spaces: the shim needs no more.
        return os.path.realpath(sys.executable)

    def prepare(self, plan: Plan) -> Prepared:
        if plan.uid != os.geteuid():
            raise ConfigError(
                f"a capsule of kind none lives as you, not as uid {plan.uid}",
                hint="give it another kind, such as bwrap",
            )
        path = f"{plan.bin_dir}:{os.environ.get('PATH', os.defpath)}"
        env = {**os.environ, **plan.env, "PATH": path}
        # The agent's own program first: a link of its name would have the broker run the agent.
        program = shutil.which(plan.command[0]) or shutil.which(plan.command[0], path=path)
        if program is None:
            raise ConfigError(f"{plan.command[0]}: no such command")
        return Prepared([*_dies_with_us(), program, *plan.command[1:]], env)

    def find_init(self, prepared: Prepared, child: int) -> int | None:
        return None


def _dies_with_us() -> list[str]:
    """The beginning of an argv that ends with the launcher, where util-linux can do that."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
