"""What is valid but unwise: one line each, for `config check` and `doctor`.

It refuses to know requests. An operator may write every rule that is warned of; the product
never offers one. Rules are named by their number, counting from one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Final

from ..bindings import (
    Binding,
    CommandSource,
    Delivery,
    EnvSource,
    KeyringSource,
    OpSource,
    Redact,
    ValueSource,
)
from ..patterns import Rest, compile_argv, compile_name
from ..policy import Action, Rule, has_ended
from ..protocol import StdinKind, Target
from .model import CapsuleConfig, CapsuleKind, Config, HomeKind

# Programs that run whatever their arguments, their input or the project's files say.
_INTERPRETERS: Final = frozenset(
    """ansible ansible-playbook ash awk bash bundle bun busybox cargo cmake composer csh dash deno
    docker doas ed emacs env ex expect find fish flatpak gawk gdb gem git gmake go gradle helm
    kubectl ksh less lua make man mawk meson more mvn mysql nano nerdctl nice ninja nix node nohup
    npm npx nvim openssl parallel perl php pip pipx pnpm podman poetry psql pwsh python rake rsync
    ruby rustup screen sed sftp scp setsid sh sqlite3 ssh strace su sudo systemd-run tar tclsh
    terraform time timeout tmux tox uv uvx vi view vim watch xargs yarn zip zsh""".split()
)
# python3.12, lua5.4, gcc-like suffixes of versions.
_VERSION_SUFFIX: Final = re.compile(r"[-.0-9]+$")
# Options after which a path follows, by the name that they usually have.
_PATH_OPTIONS: Final = re.compile(
    r"-[CFIKLTcdefiklort]|--(?:[a-z-]*-)?(?:file|files|path|dir|directory|config|output|out|input"
    r"|from|to|script|exec|root|home|cert|key|identity|template|work-tree|git-dir|chdir|prefix)"
)
# The parts of DESIGN that later versions bring. Each is valid configuration already.
_DELIVERIES_HERE: Final = frozenset({Delivery.ENV})
_KINDS_HERE: Final = frozenset({CapsuleKind.NONE, CapsuleKind.BWRAP})


def warnings(config: Config, *, today: date | None = None) -> list[str]:
    """What the operator should know of this configuration, a line each."""
    now = datetime.now().astimezone() if today is None else today
    lines = [*_of_entries("env", config.bindings.values())]
    for capsule in config.capsules.values():
        lines += _of_capsule(capsule)
    for rule in config.rules:
        where = f"rule {rule.number}"
        lines += (f"{where}: {words}" for words in _of_rule(rule, config, now))
    return lines


def is_interpreter(program: str) -> bool:
    """Whether a program of this name runs what it is told to run."""
    name = os.path.basename(program)
    return name in _INTERPRETERS or _VERSION_SUFFIX.sub("", name) in _INTERPRETERS


def _of_entries(path: str, entries: Sequence[Binding] | Iterator[Binding] | object) -> list[str]:
    raise AssertionError
