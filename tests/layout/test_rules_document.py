"""docs/rules-and-grants.md says what is so: its examples are read and matched here."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from jackin_broker import config
from jackin_broker.cli import COMMANDS
from jackin_broker.grants.offers import DENIALS_BEFORE_OFFER, DENY_DAYS_OFFERED
from jackin_broker.patterns import compile_argv
from support.source_tree import REPOSITORY

TEXT: Final = (REPOSITORY / "docs" / "rules-and-grants.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
ROWS: Final = re.findall(r'^\| `(\["[^|]*\])` \| ([^|]+) \| ([^|]+) \|$', TEXT, re.MULTILINE)


def commands(cell: str) -> list[tuple[bytes, ...]]:
    return [
        tuple(word.encode() for word in text.split(" ")) for text in re.findall(r"`([^`]+)`", cell)
    ]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[-2])
def test_every_example_is_a_valid_configuration(block: str) -> None:
    assert config.parse(block, origin="docs/rules-and-grants.md").rules


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_pattern_names_what_is_said_and_not_the_rest(row: tuple[str, str, str]) -> None:
    pattern = compile_argv(tuple(ast.literal_eval(row[0])))
    assert all(pattern.matches(argv) for argv in commands(row[1]))
    assert not any(pattern.matches(argv) for argv in commands(row[2]))


def test_there_are_examples_and_rows_to_look_at() -> None:
    assert (len(BLOCKS), len(ROWS)) == (2, 6)


def test_every_command_that_is_shown_exists() -> None:
    shown = set(re.findall(r"^    jackin-broker (\w+)", TEXT, re.MULTILINE))
    assert {"config", "grants"} == shown <= set(COMMANDS)


def test_the_numbers_are_those_of_the_program() -> None:
    assert (DENIALS_BEFORE_OFFER, DENY_DAYS_OFFERED) == (3, 30)
    assert "denied three times in a row" in TEXT
    assert "for thirty\ndays" in TEXT
