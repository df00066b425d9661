"""Changes that programs make to the configuration's text: comments and order stay as they are.

It refuses to know why. A change that would make the configuration invalid is never written; two
programs that change it at the same time both get their change in.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import tomlkit
from tomlkit.items import Table, Whitespace

from ..atomic import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE, held_lock, replace_file
from ..errors import ConfigError
from .load import parse, read_trusted
from .model import SCHEMA, Config

# What a file that a program begins looks like.
_FRESH: Final = f"schema = {SCHEMA}\n"

Change = Callable[[str], str]
# What tomlkit's documents are, without their partly unknown types.
_Tables = MutableMapping[str, MutableMapping[str, object]]


def preview(path: Path, change: Change) -> Config:
    """The configuration as it would be after the change; nothing is written.

    Raises: ConfigError, InvalidConfig.
    """
    return parse(change(_text_of(path)), origin=str(path))


def write(path: Path, change: Change, *, lock: Path) -> Config:
    """Change the file, made 0600 where there is none; the new configuration.

    `lock` is a file that every program which changes this configuration locks.
    Raises: ConfigError, InvalidConfig; then nothing was changed.
    """
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
        with held_lock(lock):
            text = change(_text_of(path))
            config = parse(text, origin=str(path))
            replace_file(path, text.encode(), mode=_mode_of(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    return config


def set_entry(text: str, name: str, keys: Mapping[str, object]) -> str:
    """The text with these keys in `[env]`'s entry `name`; its other keys stay."""
    document = tomlkit.parse(text)
    tables = cast("_Tables", document)
    if "env" not in tables:
        document.add(tomlkit.nl())
    env = tables.setdefault("env", tomlkit.table())
    entry = env.get(name)
    if isinstance(entry, MutableMapping):
        cast("MutableMapping[str, object]", entry).update(keys)
    else:
        with _before_what_follows(env):
            env[name] = _inline(keys)
    return tomlkit.dumps(document)


def remove_entry(text: str, name: str) -> str:
    """The text without `[env]`'s entry `name`; the same text where there is none."""
    tables = cast("_Tables", tomlkit.parse(text))
    if name not in tables.get("env", {}):
        return text
    del tables["env"][name]
    return tomlkit.dumps(tables)


def _text_of(path: Path) -> str:
    text = read_trusted(path)
    return _FRESH if text is None or not text.strip() else text


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return PRIVATE_FILE_MODE


def _inline(keys: Mapping[str, object]) -> object:
    """An inline table in the house's spelling, `{ key = "text", … }`."""
    words = ", ".join(f"{key} = {tomlkit.item(value).as_string()}" for key, value in keys.items())
    return tomlkit.value(f"{{ {words} }}")


@contextmanager
def _before_what_follows(table: object) -> Generator[None, None, None]:
    """Take the blank lines and comments at the table's end away, and put them back after.

    They stand before the next table and are about that one; what is added belongs above them.
    """
    body = table.value.body if isinstance(table, Table) else []
    last = max((index for index, (key, _) in enumerate(body) if key is not None), default=-1)
    after = range(last + 1, len(body))
    rest = next((at for at in after if isinstance(body[at][1], Whitespace)), len(body))
    kept = body[rest:]
    del body[rest:]
    yield
    body.extend(kept)
