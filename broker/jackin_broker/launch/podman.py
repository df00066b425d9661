"""A capsule made by podman, rootless where the operator is not root.

Rootless, the container's root is the operator's own uid in a user namespace: init may make
namespaces there, keeps the agent and commands apart, and drops what it needs for that before
either runs. As root it is as with docker.
"""

from __future__ import annotations

import os

from ..config.model import CapsuleKind
from ..errors import ConfigError
from .base import Plan
from .container import ContainerLauncher

_ROOT = 0


class PodmanLauncher(ContainerLauncher):
    """Kind `podman`."""

    kind = CapsuleKind.PODMAN
    engine = "podman"

    def options(self, plan: Plan) -> list[str]:
        own = os.geteuid()
        if own == _ROOT:
            return ["--user", "0:0" if plan.run_as else f"{plan.uid}:{plan.uid}"]
        if plan.uid != own:
            raise ConfigError(
                f"a rootless capsule lives as you, not as uid {plan.uid}",
                hint=f"add {own} to the capsule's uids",
            )
        # In the operator's own user namespace; a masked /proc cannot be mounted anew.
        return ["--user", "0:0", "--cap-add", "SYS_ADMIN", "--security-opt", "unmask=ALL"]

    def init_options(self, plan: Plan) -> list[str]:
        if os.geteuid() != _ROOT or not plan.run_as:
            return []
        return ["--uid", str(plan.uid), "--run-as", str(plan.run_as)]
