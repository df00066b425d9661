"""What a check of `doctor` found: how it came out, in words, and the next step."""

from __future__ import annotations

from enum import Enum

import msgspec


class Level(str, Enum):
    """How a check came out."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


class Finding(msgspec.Struct, frozen=True):
    """One check's result. `todo` is the next step, empty where there is none."""

    check: str
    level: Level
    message: str
    todo: str = ""
