"""One TOML table while it is read: typed keys, and whatever was not read is a problem.

A key is known because somebody asked for it, so the list of known keys cannot drift from the
reading. Wrong types become problems with the key's path and the default goes on, so that one
reading finds everything that is wrong. It refuses to know what the keys mean.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar, cast

from .problems import Problems, did_you_mean

E = TypeVar("E", bound=Enum)


def kind_of(value: object) -> str:
    """What a TOML value is, in words."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, dict):
        return "a table"
    return "a date or time"


class Table:
    """Typed access to the keys of one table. Call `finish` when all were read."""

    def __init__(self, data: dict[str, object], path: str, problems: Problems) -> None:
        self.data = data
        self.path = path
        self.problems = problems
        self._known: set[str] = set()

    def at(self, key: str) -> str:
        """The path of a key in this table."""
        return f"{self.path}.{key}" if self.path else key

    def add(self, key: str, message: str) -> None:
        """Report a problem with this key."""
        self.problems.add(self.at(key), message)

    def has(self, key: str) -> bool:
        """Whether the key is there; it counts as read."""
        self._known.add(key)
        return key in self.data

    def raw(self, key: str) -> object:
        """The value as TOML gave it, None when absent; it counts as read."""
        self._known.add(key)
        return self.data.get(key)

    def text(self, key: str, default: str = "") -> str:
        """A text without NUL."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.add(key, f"expected a text in quotes, found {kind_of(value)}")
            return default
        if "\0" in value:
            self.add(key, "contains a NUL")
            return default
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """`true` or `false`."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.add(key, f"expected true or false, found {kind_of(value)}")
            return default
        return value

    def number(self, key: str, default: float, *, low: float, high: float) -> float:
        """A number within bounds, both included."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.add(key, f"expected a number, found {kind_of(value)}")
            return default
        if not low <= value <= high:  # also false for nan
            self.add(key, f"expected a number from {low:g} to {high:g}")
            return default
        return value

    def whole(self, key: str, default: int, *, low: int, high: int) -> int:
        """An integer within bounds, both included."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.add(key, f"expected an integer, found {kind_of(value)}")
            return default
        if not low <= value <= high:
            self.add(key, f"expected an integer from {low} to {high}")
            return default
        return value

    def choice(self, key: str, default: E) -> E:
        """A member of the default's enumeration."""
        words = [str(member.value) for member in type(default)]
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str) or value not in words:
            guess = did_you_mean(value, words) if isinstance(value, str) else ""
            self.add(key, f"expected one of {', '.join(words)}{guess}")
            return default
        return type(default)(value)

    def items(self, key: str) -> list[object]:
        """An array, empty when absent."""
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.add(key, f"expected an array, found {kind_of(value)}")
            return []
        return cast("list[object]", value)

    def texts(self, key: str, check: Callable[[str], str] | None = None) -> tuple[str, ...]:
        """An array of texts without NUL. `check` returns what is wrong with one, or empty."""
        texts: list[str] = []
        for place, item in enumerate(self.items(key), start=1):
            path = f"{key}[{place}]"
            if not isinstance(item, str):
                self.add(path, f"expected a text in quotes, found {kind_of(item)}")
            elif "\0" in item:
                self.add(path, "contains a NUL")
            elif check is not None and (wrong := check(item)):
                self.add(path, wrong)
            else:
                texts.append(item)
        return tuple(texts)

    def table(self, key: str) -> Table:
        """A table within this one, empty when absent."""
        value = self.raw(key)
        if value is None:
            return Table({}, self.at(key), self.problems)
        if not isinstance(value, dict):
            self.add(key, f"expected a table, found {kind_of(value)}")
            return Table({}, self.at(key), self.problems)
        return Table(cast("dict[str, object]", value), self.at(key), self.problems)

    def tables(self, key: str) -> list[Table]:
        """An array of tables, empty when absent."""
        tables: list[Table] = []
        for place, item in enumerate(self.items(key), start=1):
            path = f"{key}[{place}]"
            if isinstance(item, dict):
                data = cast("dict[str, object]", item)
                tables.append(Table(data, self.at(path), self.problems))
            else:
                self.add(path, f"expected a table, found {kind_of(item)}")
        return tables

    def children(self) -> list[tuple[str, Table]]:
        """Every key as a table within this one: for tables whose keys are names."""
        return [(name, self.table(name)) for name in self.data]

    def finish(self) -> None:
        """Report every key that nobody asked for."""
        for key in self.data:
            if key not in self._known:
                unread = self._known - set(self.data)
                self.add(key, f"unknown key{did_you_mean(key, unread or self._known)}")
