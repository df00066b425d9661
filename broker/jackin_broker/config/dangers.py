"""What is valid but unwise: one line each, for `config check` and `doctor`.

It refuses to know requests. An operator may write every rule that is warned of; the product
never offers one. Rules are named by their number, counting from one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Final

from ..bindings import Binding, EnvSource, Redact, ValueSource
from ..patterns import Rest, compile_argv, compile_name
from ..policy import Action, Rule, has_ended
from ..protocol import StdinKind, Target
from .model import BrokerSettings, CapsuleConfig, CapsuleKind, Config, HomeKind, PickerKind

# Programs that run whatever their arguments, their input or the project's files say.
_INTERPRETERS: Final = frozenset(
    """ansible ansible-playbook ash awk bash bundle bun busybox cargo cmake composer csh dash deno
    docker doas ed emacs env ex expect find fish flatpak gawk gdb gem git gmake go gradle helm
    kubectl ksh less lua make man mawk meson more mvn mysql nano nerdctl nice ninja nix node nohup
    npm npx nvim openssl parallel perl php pip pipx pnpm podman poetry psql pwsh python rake rsync
    ruby rustup screen sed sftp scp setsid sh sqlite3 ssh strace su sudo systemd-run tar tclsh
    terraform time timeout tmux tox uv uvx vi view vim watch xargs yarn zip zsh""".split()  # noqa: SIM905 - words read better without a hundred quotes
)
# python3.12, lua5.4, gcc-like suffixes of versions.
_VERSION_SUFFIX: Final = re.compile(r"[-.0-9]+$")
# Options after which a path follows, by the name that they usually have.
_PATH_OPTIONS: Final = re.compile(
    r"-[CFIKLTcdefiklort]|--(?:[a-z-]*-)?(?:file|files|path|dir|directory|config|output|out|input"
    r"|from|to|script|exec|root|home|cert|key|identity|template|work-tree|git-dir|chdir|prefix)"
)
# A launch-time variable of such a name is probably meant to be on demand.
_SECRET_NAMES: Final = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|PAT|KEY)(?:_|$)")
_OP_SCHEME: Final = "op://"
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - to warn of it


def warnings(config: Config, *, today: date | None = None) -> list[str]:
    """What the operator should know of this configuration, a line each."""
    now = datetime.now().astimezone() if today is None else today
    lines = [*_of_broker(config.broker), *_of_entries("env", config.bindings)]
    for name, capsule in config.capsules.items():
        path = f"capsules.{name}"
        lines += (f"{path}{words}" for words in _of_capsule(capsule))
        lines += _of_entries(f"{path}.env", capsule.env)
    for rule in config.rules:
        lines += (f"rule {rule.number}: {words}" for words in _of_rule(rule, config, now))
    return lines


def rule_warnings(config: Config, now: date) -> dict[int, tuple[str, ...]]:
    """What is unwise in each rule, by its number."""
    return {rule.number: tuple(_of_rule(rule, config, now)) for rule in config.rules}


def is_interpreter(program: str) -> bool:
    """Whether a program of this name runs what it is told to run."""
    name = program.rpartition("/")[2]
    return name in _INTERPRETERS or _VERSION_SUFFIX.sub("", name) in _INTERPRETERS


def _of_broker(broker: BrokerSettings) -> Iterator[str]:
    if broker.tmux_socket and broker.picker is not PickerKind.TMUX_POPUP:
        yield 'broker.tmux_socket: does nothing without picker = "tmux-popup"'


def _of_entries(path: str, entries: Mapping[str, Binding]) -> Iterator[str]:
    for name, binding in entries.items():
        for words in _of_entry(binding):
            yield f"{path}.{name}: {words}"


def _of_entry(binding: Binding) -> Iterator[str]:
    source = binding.source
    if isinstance(source, ValueSource) and source.value.startswith(_OP_SCHEME):
        yield 'is plain text, not a reference: write { op = "op://…" }'
    if not binding.on_demand:
        is_plain = isinstance(source, ValueSource | EnvSource)
        if not is_plain or _SECRET_NAMES.search(binding.name):
            yield "is given to the agent at launch, add on_demand = true to be asked for it"
        return
    if isinstance(source, ValueSource):
        yield "stands in this file in clear, `jackin-broker credential add` keeps it in a keyring"
    if binding.redact is Redact.OFF:
        yield 'redact = "off": the agent reads the value wherever a command prints it'


def _of_capsule(capsule: CapsuleConfig) -> Iterator[str]:
    if capsule.kind is CapsuleKind.NONE:
        yield ": kind 'none' has no boundary, the agent can approve itself"
    yield from _of_bridge(capsule)
    for name, binary in capsule.binaries.items():
        if not binary.confine:
            yield f".binaries.{name}: runs unconfined, as you, on your whole system"
        if binary.home is HomeKind.OPERATOR:
            yield f".binaries.{name}: has your own logins"


def _of_bridge(capsule: CapsuleConfig) -> Iterator[str]:
    if not capsule.bridge:
        return
    if not capsule.host_binaries:
        yield ".bridge: is off, because host_binaries lists nothing that could be run"
    if capsule.bridge_bind in _EVERYWHERE:
        yield f".bridge_bind: {capsule.bridge_bind} lets every network of this machine try a token"


def _of_rule(rule: Rule, config: Config, now: date) -> Iterator[str]:
    glob = compile_name(rule.capsule)
    if not any(glob.matches(name.encode(), with_options=True) for name in config.capsules):
        yield f"capsule {rule.capsule!r} names no capsule of this configuration"
    if has_ended(rule.expires, now):
        yield f"ended on {rule.expires}, it matches nothing"
    if rule.action is Action.ALLOW:
        yield from _of_allow(rule)
        return
    for key, is_set in (
        ("bindings", bool(rule.bindings)),
        ("stdin", rule.stdin is not StdinKind.NONE),
        ("tty", rule.tty),
        ("trust_cwd", rule.trust_cwd),
    ):
        if is_set:
            yield f"{key} does not narrow {rule.action.value}: it matches whatever that is"


def _of_allow(rule: Rule) -> Iterator[str]:
    pattern = compile_argv(rule.argv)
    if pattern.rest is Rest.ANYTHING:
        yield "'...' admits any further arguments, options too"
    elif pattern.rest is Rest.PLAIN:
        yield "'**' admits any number of further arguments, paths and addresses among them"
    if not pattern.elements or not pattern.elements[0].is_literal:
        yield "names no single program"
    elif is_interpreter(rule.argv[0]):
        yield f"{rule.argv[0]!r} runs code that its arguments, input or files name"
    for place, element in enumerate(pattern.elements[1:], start=1):
        if not element.is_literal and (words := _path_danger(rule.argv, place)):
            yield f"argv[{place + 1}]: {words}"
    if rule.stdin is StdinKind.LIVE:
        yield "live stdin: the agent can type anything into it"
    if rule.target is Target.CAPSULE and rule.bindings:
        yield "target 'capsule': asks all the same where the agent can read the command's memory"
    if rule.bindings:
        yield from _of_delivery(rule)


def _of_delivery(rule: Rule) -> Iterator[str]:
    if rule.trust_cwd:
        yield "trust_cwd: files that the agent writes can use these credentials"
    else:
        yield "holds only where the agent cannot write, in a project it asks (trust_cwd)"
    if rule.expires is None:
        yield "delivers credentials without an end, add expires = a date"


def _path_danger(argv: Sequence[str], place: int) -> str:
    """Why a wildcard at this place can name files, or empty."""
    text = argv[place]
    if "/" in text:
        return "'*' also stands for / and .., so for any path"
    option, equals, _ = text.partition("=")
    if equals and _PATH_OPTIONS.fullmatch(option):
        return f"'*' can name any file for {option}"
    if _PATH_OPTIONS.fullmatch(argv[place - 1]):
        return f"'*' can name any file for {argv[place - 1]}"
    if re.match(r"-[a-zA-Z]\*", text):
        return "'*' right after a short option can be a path"
    return ""
