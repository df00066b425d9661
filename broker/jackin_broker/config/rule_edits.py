"""Rules that a program adds to the configuration's text, and takes out again, byte for byte.

What is added is the text that the operator read, unchanged. Everything else stays as it is,
comments and order too. It refuses to know why. Invariant: read again, the new text says what the
old one said, but for that one rule; otherwise nothing is changed (`edits.write`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
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


def remove_rules(text: str, rule_ids: Collection[str]) -> str:
    """The text without the rules of these ids; the same text where there is none.

    Raises: ConfigError when one is written in a way that it cannot be taken out of; InvalidConfig
    for what is no TOML.
    """
    read_toml(text, origin=_ORIGIN)
    rules = _rules(text)
    wanted = [rule for rule in rules if rule.get("id") not in rule_ids]
    if len(wanted) == len(rules):
        return text
    lines = _LINE.findall(text)
    for first, end, rule_id in reversed(list(_blocks(lines))):
        if rule_id in rule_ids:
            while end < len(lines) and not lines[end].strip():
                end += 1
            del lines[first:end]
    made = "".join(lines)
    if _says(made, text, wanted):
        return made.rstrip("\n") + "\n"
    named = ", ".join(sorted(rule_ids))
    raise ConfigError(
        f"rules: {named} cannot be taken out as the rules are written",
        hint="take it out with an editor, then: jackin-broker reload",
    )


def rule_texts(text: str) -> dict[str, str]:
    """The lines that say each rule with an id, as they stand there; without those not found."""
    lines = _LINE.findall(text)
    return {
        rule_id: "".join(lines[first:end]).rstrip("\n") for first, end, rule_id in _blocks(lines)
    }


def _blocks(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Where each rule with an id begins and ends, and that id; each is read once."""
    for header, line in enumerate(lines):
        if not _HEADER.fullmatch(line.rstrip("\n")):
            continue
        first, end = _start_of(lines, header), _end_of(lines, header)
        try:
            found = _rules("".join(lines[first:end]))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        rule_id = found[0].get("id") if len(found) == 1 else None
        if isinstance(rule_id, str) and rule_id:
            yield first, end, rule_id


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
