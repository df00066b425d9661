"""Older configurations, brought to the schema of this version, comments and order kept.

One function a step, schema N to N + 1, on the tomlkit document; `fixtures/config/migrate/` has
old and new texts for each. Schema 0 is whatever has no `schema`: the layouts of the programs
that this one grew from (`fixtures/config/README.md`). It refuses to guess: what a step does not
know stays as it is, and a result that this version would refuse is not written.

Invariants: a text of the current schema comes back unchanged; the file is replaced whole or not
at all, and what it was before is kept beside it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Final, cast

import msgspec
import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Comment, Table, Whitespace

from .atomic import PRIVATE_FILE_MODE, held_lock, replace_file
from .config.load import parse, read_trusted
from .config.model import SCHEMA
from .config.problems import InvalidConfig
from .errors import ConfigError

# A migration a minute would not fill these; more means that something else is wrong.
_BACKUPS_MAX: Final = 100
_OP_SCHEME: Final = "op://"
_OLD_VERSION: Final = "v1alpha"
# The capsule that the seed's one sandbox becomes.
_SANDBOX_NAME: Final = "construct"
# What tomlkit's documents and tables are, without their partly unknown types.
_Tables = MutableMapping[str, object]


class Migrated(msgspec.Struct, frozen=True):
    """A text of the current schema, and what was changed, a line each."""

    text: str
    changes: tuple[str, ...]
    from_schema: int


class MigratedFile(msgspec.Struct, frozen=True):
    """What `migrate_file` did. `backup` is empty when there was nothing to do."""

    path: Path
    changes: tuple[str, ...]
    backup: str = ""


def migrate(text: str) -> Migrated:
    """The same configuration in the schema of this version.

    Raises: ConfigError when it is not TOML, or newer than this version.
    """
    document = _parsed(text)
    was = _schema_of(document)
    changes: list[str] = []
    for schema in range(was, SCHEMA):
        text = _STEPS[schema](document, changes).rstrip("\n") + "\n"
        document = _parsed(text)
    return Migrated(text, tuple(changes), was)


def migrate_file(path: Path, *, lock: Path) -> MigratedFile:
    """Migrate a configuration file in place, keeping a backup beside it.

    `lock` is a file that every program which changes this configuration locks.
    Raises: ConfigError when there is none, when it cannot be trusted, or when this version
    would refuse the result; then nothing was written.
    """
    with held_lock(lock):
        text = read_trusted(path)
        if text is None:
            raise ConfigError(f"{path}: does not exist", hint="run `jackin-broker config init`")
        migrated = migrate(text)
        if not migrated.changes:
            return MigratedFile(path, ())
        _check_result(migrated, path)
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
            backup = _keep(path, text, migrated.from_schema)
            replace_file(path, migrated.text.encode(), mode=mode)
        except OSError as error:
            reason = (error.strerror or "cannot be written").lower()
            raise ConfigError(f"{path}: {reason}") from error
    return MigratedFile(path, migrated.changes, str(backup))


def _parsed(text: str) -> TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        message = str(error)
        raise ConfigError(f"not TOML: {message[:1].lower()}{message[1:].rstrip('.')}") from None


def _schema_of(document: TOMLDocument) -> int:
    root = cast("_Tables", document)
    schema = root.get("schema", 0 if root else SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 0:
        raise ConfigError(f"schema: expected the integer {SCHEMA}")
    if schema > SCHEMA:
        raise ConfigError(
            f"schema: is {schema}, this version reads {SCHEMA}",
            hint="install the version of jackin-exec that wrote it",
        )
    return schema


def _check_result(migrated: Migrated, path: Path) -> None:
    try:
        parse(migrated.text, origin=str(path))
    except InvalidConfig as error:
        raise ConfigError(
            f"{error.problems[0]}",
            hint=f"mend it in {path}, then migrate again; nothing was changed",
        ) from error


def _keep(path: Path, text: str, schema: int) -> Path:
    """Write what the file was beside it, over nothing that is there."""
    target = Path(os.path.realpath(path))
    for number in range(_BACKUPS_MAX):
        suffix = f".schema-{schema}.bak" + (f".{number}" if number else "")
        backup = target.with_name(target.name + suffix)
        try:
            fd = os.open(
                backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE_MODE
            )
        except FileExistsError:
            continue
        with open(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(fd)
        return backup
    raise ConfigError(f"{path}: has {_BACKUPS_MAX} backups beside it", hint="remove old ones")


# --- schema 0 → 1 -----------------------------------------------------------------------


def _from_0(document: TOMLDocument, changes: list[str]) -> str:
    """The seeds' layouts: `[env]`, `[sandbox] host_binaries`, `[workspaces.NAME.env]`."""
    root = cast("_Tables", document)
    version = root.get("version")
    if isinstance(version, str) and version.startswith(_OLD_VERSION):
        del root["version"]
        changes.append("version: dropped, schema takes its place")
    for path, env in _env_tables(root):
        _references(path, env, changes)
    capsules = tomlkit.table(is_super_table=True)
    _take_sandbox(root, capsules, changes)
    _take_workspaces(root, capsules, changes)
    if capsules.value.body:
        if "capsules" in root:
            raise ConfigError(
                "capsules: stands beside tables of the earlier layout",
                hint="move [sandbox] and [workspaces] into it by hand, then migrate again",
            )
        root["capsules"] = capsules
    changes.append("schema: now 1")
    if "schema" in root:
        root["schema"] = 1
        return tomlkit.dumps(root)
    return "schema = 1\n\n" + tomlkit.dumps(root).lstrip("\n")


def _env_tables(root: _Tables) -> Iterator[tuple[str, _Tables]]:
    owners = [("env", root)]
    owners += [
        (f"workspaces.{name}.env", workspace) for name, workspace in _tables(root.get("workspaces"))
    ]
    for path, owner in owners:
        env = owner.get("env")
        if isinstance(env, MutableMapping):
            yield path, cast("_Tables", env)


def _references(path: str, env: _Tables, changes: list[str]) -> None:
    """A text `op://…` was a reference; here a text is a text."""
    for name in list(env):
        value = env[name]
        if isinstance(value, str) and value.startswith(_OP_SCHEME):
            ref, label = tomlkit.item(str(value)), tomlkit.item(value.removeprefix(_OP_SCHEME))
            entry = f"{{ op = {ref.as_string()}, path = {label.as_string()} }}"
            env[name] = tomlkit.value(entry)
            changes.append(f"{path}.{name}: the reference is now {{ op = … }}")


def _take_sandbox(root: _Tables, capsules: Table, changes: list[str]) -> None:
    """`[sandbox]` was one Docker container whose binaries were called over HTTP."""
    sandbox = root.get("sandbox")
    if sandbox is None:
        return
    capsule = _new_capsule()
    capsule.append("bridge", True)
    capsule.append("compat", ["construct"])
    _move_all("sandbox", sandbox, capsule)
    del root["sandbox"]
    capsules.append(_SANDBOX_NAME, capsule)
    changes.append(f"sandbox: is now capsules.{_SANDBOX_NAME}")


def _take_workspaces(root: _Tables, capsules: Table, changes: list[str]) -> None:
    """`[workspaces.NAME.env]` were the bindings of one container."""
    workspaces = _tables(root.get("workspaces"))
    for name, workspace in workspaces:
        capsule = _new_capsule()
        _move_all(f"workspaces.{name}", workspace, capsule)
        capsules.append(name, capsule)
        changes.append(f"workspaces.{name}: is now capsules.{name}")
    if workspaces:
        del root["workspaces"]


def _new_capsule() -> Table:
    capsule = tomlkit.table()
    capsule.append("kind", "docker")
    return capsule


def _move_all(path: str, old: object, new: Table) -> None:
    """Everything in a table, its comments too.

    Raises: ConfigError for one that is written in several places: nobody could say in which
    order its parts were meant.
    """
    if not isinstance(old, Table):
        raise ConfigError(f"{path}: is not one table", hint="write it in one place, as a table")
    for key, item in old.value.body:
        if key is not None:
            new.append(key, item)
        elif isinstance(item, Comment | Whitespace):
            new.add(item)


def _tables(value: object) -> list[tuple[str, _Tables]]:
    """The tables within a table, whose parts may stand anywhere in the file."""
    if not isinstance(value, MutableMapping):
        return []
    items = cast("_Tables", value).items()
    return [
        (name, cast("_Tables", item)) for name, item in items if isinstance(item, MutableMapping)
    ]


Step = Callable[[TOMLDocument, list[str]], str]
_STEPS: Final[dict[int, Step]] = {0: _from_0}
