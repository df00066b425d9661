"""A capsule made by docker. Its uids are the host's own, so init can give two of them out.

With `run_as` init is the container's root, the agent has the capsule's uid and no way to another,
and commands have `run_as`. Without it everything is the agent's uid, and the broker is told so.
"""

from __future__ import annotations

from ..config.model import CapsuleKind
from .base import Plan
from .container import ContainerLauncher


class DockerLauncher(ContainerLauncher):
    """Kind `docker`."""

    kind = CapsuleKind.DOCKER
    engine = "docker"
    gives_any_uid = True

    def options(self, plan: Plan) -> list[str]:
        user = "0:0" if plan.run_as else f"{plan.uid}:{plan.uid}"
        return ["--init=false", "--user", user]

    def init_options(self, plan: Plan) -> list[str]:
        if not plan.run_as:
            return []
        return ["--uid", str(plan.uid), "--run-as", str(plan.run_as)]
