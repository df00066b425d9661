"""`docs/configuration.md` has every key that is read, with the default that is used."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

import msgspec
import pytest

from jackin_broker import config
from jackin_broker.config.delivering import wrong_variable
from jackin_broker.config.load import RUN_LIMIT_VARIABLE
from jackin_broker.config.model import BinaryConfig, BrokerSettings, CapsuleConfig, Limits, Mount
from jackin_broker.passphrase import PASSPHRASE_VARIABLES
from jackin_broker.policy import Rule
from support.source_tree import REPOSITORY

TEXT: Final = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
# Not in the file: they come from the table's name and from its place.
NOT_KEYS: Final = {"name", "number"}
# Defaults that words say better than TOML does.
IN_WORDS: Final = re.compile(r"none, it must be written|your own|the .*|never")
ENTRY_SOURCES: Final = ("keyring", "command", "file", "op", "value")
ENTRY_OPTIONS: Final = (
    *("username", "path", "account", "on_demand", "label"),
    *("deliver", "deliver_as", "prompt", "passphrase", "destinations", "redact"),
)
ENTRY_KEYS: Final = (*ENTRY_SOURCES, *ENTRY_OPTIONS)


def section(title: str) -> str:
    """What stands under the heading that begins so."""
    return re.split(r"^## ", TEXT.split(f"\n{title}")[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables in a text: key → its other cells."""
    found = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    return {key: [cell.strip() for cell in cells.split(" | ")] for key, cells in found}


def part(text: str, begin: str, end: str = "\0") -> str:
    return text.split(begin)[1].split(end)[0]


CAPSULES: Final = section("## `[capsules.NAME]`")
TABLES: Final[dict[type[msgspec.Struct], str]] = {
    BrokerSettings: section("## `[broker]`"),
    CapsuleConfig: CAPSULES.split("Each of `mounts`")[0],
    Mount: part(CAPSULES, "Each of `mounts`", "`[capsules.NAME.binaries"),
    BinaryConfig: part(CAPSULES, "`[capsules.NAME.binaries"),
    Rule: section("## `[[rules]]`"),
    Limits: section("## `[limits]`"),
}


def fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {f.name: f for f in msgspec.structs.fields(kind) if f.name not in NOT_KEYS}


def as_toml(value: Any) -> str:
    if isinstance(value, Enum):
        return f'"{value.value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[]"
    return "{}" if isinstance(value, dict) else f"{value:g}"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """The default as the file would say it."""
    if field.default_factory is not msgspec.NODEFAULT:
        return as_toml(field.default_factory())
    assert field.default is not msgspec.NODEFAULT
    return as_toml(field.default)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[-2])
def test_every_example_is_a_valid_configuration(block: str) -> None:
    assert config.parse(block, origin="docs/configuration.md").origin


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_key_has_a_row_and_every_row_a_key(kind: type[msgspec.Struct]) -> None:
    assert set(rows(TABLES[kind])) == set(fields(kind))


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_default_is_the_one_that_is_used(kind: type[msgspec.Struct]) -> None:
    for key, (shown, *_) in rows(TABLES[kind]).items():
        field = fields(kind)[key]
        if IN_WORDS.fullmatch(shown):
            assert field.required or field.default is None or key == "uids", key
        else:
            assert shown == f"`{default_of(field)}`", key


def test_every_key_of_an_entry_has_a_row_and_is_read() -> None:
    """One entry a key: what is no key is named as unknown, whatever else is wrong."""
    assert set(rows(section("## `[env]`"))) == set(ENTRY_KEYS)
    for key in [*ENTRY_KEYS, "nonsense"]:
        text = f'schema = 1\n[env]\nA = {{ {key} = "x", on_demand = true }}\n'
        if key == "on_demand":
            text = 'schema = 1\n[env]\nA = { on_demand = true, value = "x" }\n'
        try:
            config.parse(text, origin="")
        except config.InvalidConfig as error:
            words = [problem.message for problem in error.problems if problem.path.endswith(key)]
            assert any("unknown key" in one for one in words) == (key == "nonsense"), words
        else:
            assert key != "nonsense"


def test_every_variable_that_is_read_has_a_row() -> None:
    shown = set(re.findall(r"`(JACKIN_[A-Z_]+)`", section("## Variables")))
    assert {RUN_LIMIT_VARIABLE, *PASSPHRASE_VARIABLES} <= shown
    read = {
        name
        for path in [
            *(REPOSITORY / "broker").rglob("*.py"),
            *(REPOSITORY / "capsule").rglob("*.py"),
        ]
        for name in re.findall(r"\bJACKIN_[A-Z]+(?:_[A-Z]+)+\b", path.read_text("utf-8"))
    }
    assert shown == read
    assert all(wrong_variable(name) for name in shown), "no binding may have such a name"
