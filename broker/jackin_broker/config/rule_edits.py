"""Rules that a program adds to the configuration's text, and takes out again, byte for byte.

What is added is the text that the operator read, unchanged. Everything else stays as it is,
comments and order too. It refuses to know why. Invariant: read again, the new text says what the
old one said, but for that one rule; otherwise nothing is changed (`edits.write`).
"""

from __future__ import annotations

import re
import tomllib
from typing import Final, cast

from ..errors import ConfigError
from .load import read_toml

# The first line of what an approval or a denial writes; a rule that is taken out takes it along.
APPROVED_ON: Final = "# from an approval on "
DENIED_ON: Final = "# from a denial on "
_ORIGIN: Final = "the configuration"
_HEADER: Final = re.compile(r"\s*\[\[\s*rules\s*\]\]\s*(#.*)?")
_ANY_HEADER: Final = re.compile(r"\s*\[")
# TOML's line ends; `str.splitlines` knows more, which a text within quotes may hold.
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


def append_rule(text: str, block: str) -> str:
    """The text with this rule after the last one, or at its end.

    Raises: ConfigError when rules are written in a way that nothing can be added to;
    InvalidConfig for what is no TOML.
    """
    read_toml(text, origin=_ORIGIN)
    lines = _LINE.findall(text)
    starts = [index for index, line in enumerate(lines) if _HEADER.fullmatch(line.rstrip("\n"))]
    wanted = [*_rules(text), *_rules(block)]
    ends = [_end_of(lines, starts[-1]), len(lines)] if starts else [len(lines)]
    for end in ends:
        head, tail = "".join(lines[:end]), "".join(lines[end:])
        made = _joined(head, block) + (f"\n{tail.lstrip(chr(10))}" if tail.strip() else "")
        if _says(made, text, wanted):
            return made
    raise ConfigError(
        "rules: nothing can be added to them as they are written",
        hint="write each as a table of its own, [[rules]]",
    )


def remove_rule(text: str, rule_id: str) -> str:
    """The text without the rule of this id; the same text where there is none.

    Raises: ConfigError when it is written in a way that it cannot be taken out of; InvalidConfig
    for what is no TOML.
    """
    read_toml(text, origin=_ORIGIN)
    rules = _rules(text)
    wanted = [rule for rule in rules if rule.get("id") != rule_id]
    if len(wanted) == len(rules):
        return text
    lines = _LINE.findall(text)
    for start, line in enumerate(lines):
        if not _HEADER.fullmatch(line.rstrip("\n")):
            continue
        first = _start_of(lines, start)
        end = _end_of(lines, start)
        while end < len(lines) and not lines[end].strip():
            end += 1
        made = "".join(lines[:first]) + "".join(lines[end:])
        if _says(made, text, wanted):
            return made.rstrip("\n") + "\n"
    raise ConfigError(
        f"rules: the one with id {rule_id} cannot be taken out as it is written",
        hint="take it out with an editor, then: jackin-broker reload",
    )


def rule_text(text: str, rule_id: str) -> str:
    """The lines that say this rule, as they stand there; empty where they are not found."""
    lines = _LINE.findall(text)
    for start, line in enumerate(lines):
        if not _HEADER.fullmatch(line.rstrip("\n")):
            continue
        block = "".join(lines[_start_of(lines, start) : _end_of(lines, start)]).rstrip("\n")
        try:
            found = _rules(block)
        except tomllib.TOMLDecodeError:
            continue
        if len(found) == 1 and found[0].get("id") == rule_id:
            return block
    return ""


def _start_of(lines: list[str], header: int) -> int:
    """Where a rule begins, with the line that says where it comes from."""
    has_origin = header > 0 and lines[header - 1].startswith((APPROVED_ON, DENIED_ON))
    return header - 1 if has_origin else header


def _end_of(lines: list[str], header: int) -> int:
    """The line after a rule that is written without blank lines."""
    for index in range(header + 1, len(lines)):
        if not lines[index].strip() or _ANY_HEADER.match(lines[index]):
            return index
    return len(lines)


def _joined(head: str, block: str) -> str:
    if not head.strip():
        return f"{block}\n"
    return f"{head.rstrip(chr(10))}\n\n{block}\n"


def _rules(text: str) -> list[dict[str, object]]:
    found = tomllib.loads(text).get("rules", [])
    return cast("list[dict[str, object]]", found) if isinstance(found, list) else []


def _says(made: str, text: str, rules: list[dict[str, object]]) -> bool:
    """Whether `made` says what `text` does, with these rules."""
    try:
        new = tomllib.loads(made)
    except tomllib.TOMLDecodeError:
        return False
    old = tomllib.loads(text)
    if new.pop("rules", []) != rules:
        return False
    old.pop("rules", None)
    return new == old
