"""A capsule made by a container engine: what docker and podman have in common.

`jackin-capsule init` is the container's first process and waits at a gate, a named pipe, until the
launcher has put it on record by the engine's own word. The pipe's end is the launcher's end, and
init ends the capsule then, for an engine's container outlives whoever asked for it. Values go by
the engine program's environment, never in its argv. It refuses to know the broker.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import time
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from ..config.model import Mount
from ..engines import ask_engine, engine_environment, find_engine, inspect, last_line
from ..errors import ConfigError, JackinError
from ..paths import CAPSULE_BIN_DIR, CAPSULE_RUN_DIR
from .base import Launcher, Plan, Prepared
from .bwrap import PASSED_VARIABLES

# A container of a large image starts in seconds; where layers are copied (vfs) it takes longer.
INIT_LIMIT_S: Final = 120.0
_PROBE_LIMIT_S: Final = 120.0
# Between two questions to the engine while its container starts.
_ASK_AGAIN_S: Final = 0.05
# Init ends its agent in two seconds once the gate has closed, and the engine then the container.
_END_LIMIT_S: Final = 6.0
# A key sequence that nobody types by chance: the engine's own would swallow Ctrl-P.
_DETACH_KEYS: Final = r"ctrl-\,ctrl-],ctrl-^,ctrl-_"
_PROBE: Final = (
    'for p in /usr/bin/python3 /usr/local/bin/python3; do [ -x "$p" ] && echo "$p" && break; done; '
    'echo "PATH=$PATH"'
)


class ContainerLauncher(Launcher):
    """An engine's kind. A subclass names the engine and what it needs beside the common part."""

    engine: ClassVar[str]
    has_boundary = True

    def __init__(self) -> None:
        self._image_path = ""

    @abstractmethod
    def options(self, plan: Plan) -> list[str]:
        """This engine's own options of `run`, the uid among them.

        Raises: ConfigError for a plan that it cannot do.
        """

    @abstractmethod
    def init_options(self, plan: Plan) -> list[str]:
        """What init is told of uids."""

    def check(self) -> None:
        find_engine(self.engine, os.environ)

    def interpreter(self, image: str = "") -> str:
        """Asks the image itself, once; its PATH is remembered."""
        if not image:
            raise ConfigError(
                f"a capsule of kind {self.kind.value} needs an image",
                hint="name one with --image, or set image in its configuration",
            )
        if ask_engine(self.engine, ["image", "inspect", image], os.environ).returncode != 0:
            self._pull(image)
        argv = ["run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", image, "-c", _PROBE]
        done = ask_engine(self.engine, argv, os.environ, limit_s=_PROBE_LIMIT_S)
        if done.returncode != 0:
            raise ConfigError(
                f"{self.engine} cannot run the image {image}: {last_line(done.stderr)}",
                hint=f"try: {self.engine} run --rm {image} true",
            )
        lines = done.stdout.splitlines()
        self._image_path = next((one[5:] for one in lines if one.startswith("PATH=")), "")
        found = next((one for one in lines if one.startswith("/")), "")
        if not found:
            raise ConfigError(
                f"the image {image} has no python3 in /usr/bin or /usr/local/bin",
                hint="add python3 to it; or use a bridge and the shim for sh: docs/capsules.md",
            )
        return found

    def _pull(self, image: str) -> None:
        """Fetch an image that is not here; the operator sees how far it is, and may interrupt.

        Raises: ConfigError.
        """
        argv = [find_engine(self.engine, os.environ), "pull", image]
        env = engine_environment(os.environ)
        done = subprocess.run(argv, env=env, check=False, stdin=subprocess.DEVNULL, stdout=2)
        if done.returncode != 0:
            raise ConfigError(
                f"{self.engine} cannot run the image {image}: it is not here, nor to be pulled",
                hint=f"try: {self.engine} pull {image}",
            )

    def prepare(self, plan: Plan) -> Prepared:
        gate, gate_fd = _make_gate(plan)
        prepared = Prepared([], {}, gate_fd=gate_fd, name=f"jackin-{plan.name}-{_unique()}")
        prepared.undo.append(lambda: gate.unlink(missing_ok=True))
        env = self._environment(plan)
        prepared.env = {**engine_environment(os.environ), **env}
        has_terminal = os.isatty(0) and os.isatty(1)
        init = [*self.init_options(plan), "--gate", f"{CAPSULE_RUN_DIR}/{gate.name}", "--"]
        prepared.argv = [
            *(find_engine(self.engine, os.environ), "run", "--rm", "--interactive"),
            *(["--tty"] if has_terminal else []),
            *("--name", prepared.name, "--hostname", plan.name[:63]),
            *("--detach-keys", _DETACH_KEYS),
            *([] if plan.has_network else ["--network", "none"]),
            *self.options(plan),
            *_mounts(plan),
            *(["--workdir", plan.cwd] if plan.cwd else []),
            *("--env", f"PATH={CAPSULE_BIN_DIR}:{self._image_path}"),
            *(word for name in env for word in ("--env", name)),
            *("--entrypoint", f"{CAPSULE_BIN_DIR}/jackin-capsule", plan.image),
            *("init", *init, *plan.command),
        ]
        return prepared

    def find_init(self, prepared: Prepared, child: int) -> int | None:
        deadline = time.monotonic() + INIT_LIMIT_S
        while time.monotonic() < deadline:
            found = inspect(self.engine, prepared.name, os.environ)
            if found is not None:
                prepared.container = found.id
                return found.pid
            if select.select([child], [], [], _ASK_AGAIN_S)[0]:
                return None
        raise JackinError(f"the capsule did not start within {INIT_LIMIT_S:g} s")

    def end(self, prepared: Prepared) -> None:
        """Let init end the container; if it does not, have the engine remove it."""
        if prepared.gate_fd is not None:
            os.close(prepared.gate_fd)
            prepared.gate_fd = None
        deadline = time.monotonic() + _END_LIMIT_S
        with suppress(ConfigError):  # the engine is gone, and with it what it ran
            while inspect(self.engine, prepared.name, os.environ) is not None:
                if time.monotonic() > deadline:
                    ask_engine(self.engine, ["rm", "--force", prepared.name], os.environ)
                    return
                time.sleep(_ASK_AGAIN_S)

    def _environment(self, plan: Plan) -> dict[str, str]:
        """By name alone in the argv: the engine's program has the values in its environment."""
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        return {name: value for name, value in {**passed, **plan.env}.items() if name != "PATH"}


def _make_gate(plan: Plan) -> tuple[Path, int]:
    """A named pipe in the capsule's directory, and our end of it, which is also its last.

    This launch holds the capsule: any other there is of a launcher that was killed.
    """
    for left in Path(plan.run_dir).glob("gate-*"):
        left.unlink(missing_ok=True)
    gate = Path(plan.run_dir, f"gate-{_unique()}")
    os.mkfifo(gate, 0o600)
    os.chmod(gate, 0o644)
    return gate, os.open(gate, os.O_RDWR | os.O_CLOEXEC)


def _unique() -> str:
    return secrets.token_hex(6)


def _mounts(plan: Plan) -> list[str]:
    words: list[str] = []
    for mount in (
        *sorted(plan.mounts, key=lambda one: one.capsule.count("/")),
        Mount(CAPSULE_RUN_DIR, plan.run_dir, read_only=True),
        Mount(CAPSULE_BIN_DIR, plan.bin_dir, read_only=True),
    ):
        if not Path(mount.host).exists():
            raise ConfigError(f"{mount.host}: to be mounted at {mount.capsule}, does not exist")
        fields = ["type=bind", _quoted("source", mount.host), _quoted("target", mount.capsule)]
        words += ["--mount", ",".join([*fields, *(["readonly"] if mount.read_only else [])])]
    return words


def _quoted(key: str, path: str) -> str:
    """A field of the engine's comma-separated list; a path may hold a comma or a quote."""
    text = f"{key}={path}"
    return '"' + text.replace('"', '""') + '"' if "," in path or '"' in path else text
