"""A capsule made by bubblewrap: namespaces of its own, the system's programs read-only.

The agent sees /usr, a short list of /etc, its project mounts, a HOME and /tmp that vanish, and
nothing of the operator's session: no home, no /run, no sockets but its own doorway. It ends with
the launcher. Its environment is handed down, never written into an argv that others can read.
It refuses to know the broker. Source: bwrap(1); what was tried is in the design's stack notes.
"""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import Final

from ..config.model import CapsuleKind, Mount
from ..errors import ConfigError, JackinError
from ..paths import CAPSULE_BIN_DIR, CAPSULE_RUN_DIR
from ..trust import blocked_at
from .base import Launcher, Plan, Prepared, become, require, system_interpreter

HOME: Final = "/home/agent"
# What the agent's session may know of the terminal and language that it runs in.
PASSED_VARIABLES: Final = ("TERM", "COLORTERM", "LANG", "LC_ALL", "NO_COLOR", "TZ")
# Links into /usr on merged systems, directories of their own elsewhere.
_SYSTEM_DIRECTORIES: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Readable settings that programs need to resolve names, check certificates, find libraries and
# draw; never the whole of /etc, where root's own capsule could read passwords' hashes.
_ETC: Final = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "hosts",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "resolv.conf",
    "services",
    "shells",
    "ssl",
    "terminfo",
    "timezone",
    "vim",
)
_NAMESPACES: Final = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
# What init needs in the capsule's own user namespace to keep agent and commands apart; neither
# of them gets any of it (`jackin_capsule/apart.py`).
_CAPABILITIES: Final = (
    *("--cap-drop", "ALL"),
    *("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"),
)
# A file system in memory each, gone with the capsule.
_FRESH: Final = ((HOME, "0700"), ("/tmp", "1777"), ("/var/tmp", "1777"), ("/run", "0755"))  # noqa: S108 - the capsule's own
# It makes its namespaces in milliseconds; a loaded machine gets more.
INIT_LIMIT_S: Final = 10.0
_REPORT_BYTES: Final = 4096
# Where the kernel's own limit on a host name is. Source: sethostname(2).
_HOST_NAME_MAX: Final = 64


class BubblewrapLauncher(Launcher):
    """Kind `bwrap`."""

    kind = CapsuleKind.BWRAP
    has_boundary = True

    def check(self) -> None:
        require("bwrap", "bubblewrap")

    def interpreter(self, image: str = "") -> str:
        return system_interpreter()

    def prepare(self, plan: Plan) -> Prepared:
        _check_mounts(plan)
        info_reader, info_writer = os.pipe()
        gate_reader, gate_writer = os.pipe()
        users, groups = _accounts(plan.uid)
        handed = [info_writer, gate_reader, _held(users), _held(groups)]
        argv = [
            *become(plan.uid),
            require("bwrap", "bubblewrap"),
            *_NAMESPACES,
            *([] if plan.has_network else ["--unshare-net"]),
            *("--die-with-parent", "--as-pid-1", "--new-session", *_CAPABILITIES),
            *("--hostname", _host_name(plan.name)),
            *("--info-fd", str(info_writer)),
            *_system(),
            *("--ro-bind-data", str(handed[2]), "/etc/passwd"),
            *("--ro-bind-data", str(handed[3]), "/etc/group"),
            *_own_places(),
            *_project(plan.mounts),
            *_directory("/jackin"),
            *("--ro-bind", plan.run_dir, CAPSULE_RUN_DIR),
            *("--ro-bind", plan.bin_dir, CAPSULE_BIN_DIR),
            *("--remount-ro", "/", "--chdir", plan.cwd or HOME, "--"),
            *(plan.interpreter, "-IS", f"{CAPSULE_BIN_DIR}/jackin-capsule", "init"),
            # It is recorded while its interpreter starts, and waits there.
            *("--gate", str(gate_reader), "--"),
            *plan.command,
        ]
        return Prepared(argv, _environment(plan), handed, info_reader, gate_writer)

    def find_init(self, prepared: Prepared, child: int) -> int | None:
        assert prepared.init_fd is not None
        deadline = time.monotonic() + INIT_LIMIT_S
        report = b""
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([prepared.init_fd], [], [], left)[0]:
                break
            piece = os.read(prepared.init_fd, _REPORT_BYTES)
            report += piece
            pid = _init_in(report)
            if pid is not None or not piece:
                return pid
        raise JackinError(f"the capsule did not start within {INIT_LIMIT_S:g} s")


def _init_in(report: bytes) -> int | None:
    """The pid in all that bubblewrap reported, None when it is not whole."""
    try:
        return int(json.loads(report)["child-pid"])
    except (ValueError, KeyError, TypeError):
        return None


def _system() -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM_DIRECTORIES:
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    words += ["--ro-bind-try", "/opt", "/opt", *_directory("/etc")]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return words


def _directory(path: str) -> list[str]:
    """One that is there for every uid; bubblewrap would make it 0700."""
    return ["--perms", "0755", "--dir", path]


def _own_places() -> list[str]:
    words = ["--proc", "/proc", "--dev", "/dev", *_directory("/home"), *_directory("/var")]
    for path, mode in _FRESH:
        words += ["--perms", mode, "--tmpfs", path]
    return words


def _project(mounts: tuple[Mount, ...]) -> list[str]:
    """Outer mounts first, so that an inner one is not covered."""
    words: list[str] = []
    for mount in sorted(mounts, key=lambda one: one.capsule.count("/")):
        words += ["--ro-bind" if mount.read_only else "--bind", mount.host, mount.capsule]
    return words


def _environment(plan: Plan) -> dict[str, str]:
    env = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    return {
        **env,
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "TMPDIR": "/tmp",  # noqa: S108 - the capsule's own
        **plan.env,
    }


def _accounts(uid: int) -> tuple[bytes, bytes]:
    """passwd and group of the capsule: root, nobody, and the agent under the uid it has."""
    gid = uid if uid != os.geteuid() else os.getegid()
    agent = f"agent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\n"
    others = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    groups = f"agent:x:{gid}:\nroot:x:0:\nnogroup:x:65534:\n"
    return (agent + others).encode(), groups.encode()


def _held(content: bytes) -> int:
    """A descriptor from which the content can be read once."""
    fd = os.memfd_create("jackin", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _check_mounts(plan: Plan) -> None:
    for mount in plan.mounts:
        host = Path(mount.host)
        if not host.exists():
            raise ConfigError(f"{host}: to be mounted at {mount.capsule}, does not exist")
        blocked = blocked_at(host, plan.uid) if plan.uid != os.geteuid() else None
        if blocked is not None:
            raise ConfigError(
                f"{blocked}: uid {plan.uid} of the capsule cannot pass through it to {host}",
                hint=f"let it, as with chmod o+x {blocked}, or keep the project elsewhere",
            )


def _host_name(name: str) -> str:
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)
    return plain[:_HOST_NAME_MAX].strip("-") or "capsule"
