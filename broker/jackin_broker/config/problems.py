"""What is wrong with a configuration: every problem of a file, each with its key's path.

Paths are written as `capsules.web.uids[2]`: tables by name, items counting from one, so that
`rules[3]` here is "rule 3" in every reason. No message repeats a value from the file but the
words of a closed list, for an `[env]` entry may hold a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import msgspec

from ..errors import ConfigError


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `path` may be empty when it is the whole file."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidConfig(ConfigError):
    """A configuration with problems: the first is the message, all are in `problems`."""

    def __init__(self, problems: Sequence[Problem], *, origin: str) -> None:
        self.problems = tuple(problems)
        others = len(problems) - 1
        more = f", {others} more problem{'s' if others > 1 else ''}" if others else ""
        hint = f"edit {origin}{more}; `jackin-broker config check` shows all"
        super().__init__(str(problems[0]), hint=hint)


class Problems:
    """The problems found so far, in the order of the file's reading."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, path: str, message: str) -> None:
        self.found.append(Problem(path, message))

    def raise_any(self, origin: str) -> None:
        """Raise what was found, if anything.

        Raises: InvalidConfig.
        """
        if self.found:
            raise InvalidConfig(self.found, origin=origin)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the closest known word, or empty."""
    # 0.6 is difflib's own measure of "close"; a lower one suggests nonsense.
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""
