"""Reading a configuration: a text or a file becomes a `Config`, or every problem of it.

A file is refused when somebody but root and the operator could have written it. It refuses to
know what any key is for: each part reads its own table.
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from .capsules import read_capsules
from .delivering import check_passphrases
from .entries import read_entries
from .model import (
    SCHEMA,
    BrokerSettings,
    Config,
    KeyringKind,
    Limits,
    NoOperator,
    PickerKind,
)
from .places import expand
from .problems import InvalidConfig, Problem, Problems
from .rules import read_rules
from .table import Table
from .usage import read_address_space, read_output_bytes, read_processes

# A hand-written file; more is a mistake, and tomllib would hold it all.
CONFIG_MAX_BYTES: Final = 1024 * 1024
_DAY_S: Final = 86_400
# A hundred years: anything longer is a slip of the pen, and for ever is 0.
_AUDIT_DAYS_MAX: Final = 36_500
# A year: anything longer is a slip of the pen.
RUN_LIMIT_MAX_S: Final = 365 * _DAY_S
RUN_LIMIT_VARIABLE: Final = "JACKIN_EXEC_TIMEOUT"
_CONSTRUCT_VARIABLE: Final = "CONSTRUCT_HOST_EXEC_TIMEOUT"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
MIGRATE_HINT: Final = "run `jackin-broker config migrate`, a backup is kept"


def load(path: Path) -> Config:
    """The configuration in a file; the defaults, `is_missing`, where there is none.

    Raises: ConfigError when the file cannot be trusted or read, InvalidConfig for what it says.
    """
    text = read_trusted(path)
    if text is None:
        return Config(origin=str(path), is_missing=True)
    return parse(text, origin=str(path))


def parse(text: str, *, origin: str) -> Config:
    """The configuration in a text. `origin` names it in hints.

    Raises: InvalidConfig with every problem.
    """
    data = read_toml(text, origin=origin)
    _check_schema(data, origin)
    problems = Problems()
    root = Table(data, "", problems)
    home = os.path.expanduser("~")
    root.has("schema")
    broker = _broker(root.table("broker"), home)
    bindings = read_entries(root.table("env"), home)
    capsules = read_capsules(root.table("capsules"), home)
    check_passphrases("env", bindings, bindings, problems)
    for name, capsule in capsules.items():
        known = {**bindings, **capsule.env}
        check_passphrases(f"capsules.{name}.env", capsule.env, known, problems)
    rules = read_rules(root.tables("rules"), bindings, capsules, home)
    limits = _limits(root.table("limits"))
    root.finish()
    problems.raise_any(origin)
    return Config(broker, bindings, capsules, rules, limits, origin)


def run_limit_s(limits: Limits, environ: Mapping[str, str], *, is_construct: bool = False) -> float:
    """How long a command may run: what the broker's environment says, else `[limits]`.

    `is_construct`: the capsule has `compat = ["construct"]`, the seed's name counts too.
    Units: seconds; 0 in the environment is the configured limit.
    Raises: ConfigError for what is not a number of seconds.
    """
    names = (RUN_LIMIT_VARIABLE, *((_CONSTRUCT_VARIABLE,) if is_construct else ()))
    for name in names:
        text = environ.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= RUN_LIMIT_MAX_S:
            raise ConfigError(f"{name}: expected seconds from 0 to {RUN_LIMIT_MAX_S}")
        return seconds or limits.run_s
    return limits.run_s


def read_toml(text: str, *, origin: str) -> dict[str, object]:
    """The TOML document as plain values.

    Raises: InvalidConfig with the place of the first fault.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(
            [Problem("", f"not TOML: {_lower(str(error))}")], origin=origin
        ) from None
    except RecursionError:
        raise InvalidConfig([Problem("", "not TOML: nested too deeply")], origin=origin) from None


def read_trusted(path: Path) -> str | None:
    """The text of a file that only root and the operator can write, None where there is none.

    Raises: ConfigError that says what is wrong with the file and how to mend it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"{path}: {_lower(error.strerror or errno.errorcode[error.errno or 0])}"
        ) from error
    try:
        _check_file(path, os.fstat(fd))  # before `open`, which refuses a directory its own way
        with open(fd, "rb", closefd=False) as file:
            raw = file.read(CONFIG_MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(raw) > CONFIG_MAX_BYTES:
        raise ConfigError(f"{path}: is larger than {CONFIG_MAX_BYTES} bytes")
    for folder in {path.absolute().parent, Path(os.path.realpath(path)).parent}:
        _check_folder(folder)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 at byte {error.start}") from None


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path}: is not a regular file")
    _check_writers(path, found)


def _check_folder(folder: Path) -> None:
    """Who can write the directory can put another file there; root's sticky /tmp is fine."""
    found = os.stat(folder)
    if found.st_uid == 0 and found.st_mode & stat.S_ISVTX:
        return
    _check_writers(folder, found)


def _check_writers(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"{path}: belongs to uid {found.st_uid}, who could change it",
            hint=f"chown {os.geteuid()} {path}",
        )
    if found.st_mode & _OTHERS_WRITE:
        raise ConfigError(f"{path}: can be written by others", hint=f"chmod go-w {path}")


def _check_schema(data: dict[str, object], origin: str) -> None:
    """Refuse what this version does not read; an empty file is a configuration of defaults.

    Raises: ConfigError for an old or a newer schema, InvalidConfig for one that is no number.
    """
    schema = data.get("schema", 0 if data else SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int):
        problem = Problem("schema", f"expected the integer {SCHEMA}")
        raise InvalidConfig([problem], origin=origin)
    if schema < SCHEMA:
        was = f"schema {schema}" if "schema" in data else "an earlier layout, without a schema"
        raise ConfigError(f"schema: {origin} has {was}", hint=MIGRATE_HINT)
    if schema > SCHEMA:
        raise ConfigError(
            f"schema: {origin} has schema {schema}, this version reads {SCHEMA}",
            hint="install the version of jackin-exec that wrote it",
        )


def _broker(table: Table, home: str) -> BrokerSettings:
    text = table.text("runtime_dir")
    runtime_dir = expand(text, home) if text else ""
    if runtime_dir is None:
        table.add("runtime_dir", "expected an absolute path, or one that begins with ~/")
    tmux = table.text("tmux_socket")
    tmux_socket = expand(tmux, home) if tmux else ""
    if tmux_socket is None:
        table.add("tmux_socket", "expected an absolute path, or one that begins with ~/")
    settings = BrokerSettings(
        keyring=table.choice("keyring", KeyringKind.AUTO),
        picker=table.choice("picker", PickerKind.ATTACH),
        no_operator=table.choice("no_operator", NoOperator.DENY),
        notify=table.texts("notify"),
        runtime_dir=runtime_dir or "",
        keep_grants=table.flag("keep_grants"),
        tmux_socket=tmux_socket or "",
        audit_days=table.whole(
            "audit_days", BrokerSettings().audit_days, low=0, high=_AUDIT_DAYS_MAX
        ),
    )
    table.finish()
    return settings


def _limits(table: Table) -> Limits:
    """The limits. The bounds keep out what is a slip of the pen, not what is bold."""
    base = Limits()
    limits = Limits(
        approve_s=table.number("approve_s", base.approve_s, low=0.1, high=_DAY_S),
        run_s=table.number("run_s", base.run_s, low=0.1, high=RUN_LIMIT_MAX_S),
        waiting_per_capsule=table.whole(
            "waiting_per_capsule", base.waiting_per_capsule, low=1, high=100_000
        ),
        ask_burst=table.whole("ask_burst", base.ask_burst, low=1, high=100_000),
        ask_per_s=table.number("ask_per_s", base.ask_per_s, low=0.001, high=100_000),
        connections_per_capsule=table.whole(
            "connections_per_capsule", base.connections_per_capsule, low=1, high=100_000
        ),
        source_s=table.number("source_s", base.source_s, low=0.1, high=3600),
        kill_grace_s=table.number("kill_grace_s", base.kill_grace_s, low=0, high=3600),
        drain_s=table.number("drain_s", base.drain_s, low=0, high=60),
        mcp_pending_s=table.number("mcp_pending_s", base.mcp_pending_s, low=0.1, high=3600),
        mcp_per_capsule=table.whole("mcp_per_capsule", base.mcp_per_capsule, low=0, high=1000),
        output_bytes=read_output_bytes(table) or base.output_bytes,
        address_space_bytes=read_address_space(table) or base.address_space_bytes,
        processes=read_processes(table) or base.processes,
    )
    table.finish()
    return limits


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")
