"""README and `docs/` against the programs: what they name exists, what exists they name.

`test_documents.py` looks from the programs' side; here every cell and every option is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from jackin_broker.cli import root
from jackin_broker.errors import DenialCode
from jackin_capsule import manual, problems
from support.source_tree import REPOSITORY

README: Final = (REPOSITORY / "README.md").read_text(encoding="utf-8")
AGENTS: Final = (REPOSITORY / "docs" / "agents.md").read_text(encoding="utf-8")
FIRST_LINES: Final = "\n".join(README.splitlines()[:40])
# Printed on 80 columns: a command's help line that is longer is cut with dots.
COLUMNS: Final = 80
_CODE: Final = re.compile(r"`([^`]+)`")


def groups() -> dict[str, click.Group]:
    """The groups by their words; the program itself has none."""
    context = click.Context(root)
    found: dict[str, click.Group] = {"": root}
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if isinstance(command, click.Group):
            found[name] = command
    return found


def installed() -> dict[str, click.Command]:
    """Every command that does something, by its words; `""` is the program without any."""
    found: dict[str, click.Command] = {"": root}
    for words, group in groups().items():
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if not isinstance(command, click.Group):
                found[f"{words} {name}".strip()] = command
    return found


INSTALLED: Final = installed()


def table(title: str) -> list[str]:
    """The first cells of README's table of this title."""
    rows = README.split(f"| {title} | |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    return [row.replace(r"\|", "¦").split("|")[1].strip() for row in rows]


def named(cell: str, program: str) -> Iterator[str]:
    """The commands of a cell: `` `program a b¦c`, `d` `` is `a b`, `a c` and `d`."""
    for code in _CODE.findall(cell):
        words = code.removeprefix(program).split()
        heads = words[0].split("¦") if words else [""]
        tails = words[1].split("¦") if len(words) > 1 and heads[0] in groups() else [""]
        for head in heads:
            yield from (f"{head} {tail}".strip() for tail in tails)


def options_of(command: click.Command) -> set[str]:
    return {option for one in command.params for option in one.opts} | {"--help"}


def test_the_first_forty_lines_are_the_product() -> None:
    """What it is, how to see it, whom it trusts; no history, no badges, no directory of files."""
    assert README.startswith("# jackin-exec\n\nLend a credential to one command")
    assert "jackin-exec --want" in FIRST_LINES
    assert "[redacted:" in FIRST_LINES
    assert "&& .venv/bin/jackin-broker try" in FIRST_LINES
    assert "| trusted | not trusted |" in FIRST_LINES
    assert "SECURITY.md" in FIRST_LINES


def test_the_table_of_the_operators_commands_is_what_is_installed() -> None:
    listed = [
        name for row in table("on the operator's side") for name in named(row, "jackin-broker")
    ]
    assert sorted(listed) == sorted(INSTALLED)


def test_the_table_of_the_capsules_commands_is_what_its_help_lists() -> None:
    usage = set(re.findall(r"jackin-capsule ([a-z-]+)", manual.CAPSULE.split("\n\n")[0]))
    (row,) = (row for row in table("in the capsule") if row.startswith("`jackin-capsule"))
    assert set(named(row, "jackin-capsule")) == usage


def test_the_options_of_jackin_exec_are_those_of_its_help() -> None:
    (shown,) = (row for row in table("in the capsule") if row.startswith("`jackin-exec"))
    options = set(re.findall(r"\[(--?[a-z]+)", shown))
    assert options == set(re.findall(r"\[(--?[a-z]+)", manual.EXEC.splitlines()[0]))


@pytest.mark.parametrize(
    "line", re.findall(r"jackin-broker (?!try)([a-z][^`\n#]*--[^`\n]*)", README + AGENTS)
)
def test_every_option_that_is_shown_is_in_the_help(line: str) -> None:
    words = line.split(" -- ")[0].replace("\\", "").split()
    name = next(name for name in (" ".join(words[:2]), words[0]) if name in INSTALLED)
    assert {word for word in words if word.startswith("--")} <= options_of(INSTALLED[name])


@pytest.mark.parametrize("name", sorted(INSTALLED))
def test_every_option_says_what_it_is_for(name: str) -> None:
    options = (one for one in INSTALLED[name].params if isinstance(one, click.Option))
    assert [one.name for one in options if not one.help] == []


@pytest.mark.parametrize("words", sorted(groups()))
def test_no_command_is_cut_short_in_the_list_of_its_group(words: str) -> None:
    group = groups()[words]
    text = group.get_help(click.Context(group, terminal_width=COLUMNS))
    assert "..." not in text.split("Commands:")[1]


def test_the_help_that_agents_md_shows_is_what_jackin_exec_prints() -> None:
    (shown,) = re.findall(r"```\n(usage: jackin-exec .*?)```", AGENTS, re.DOTALL)
    assert shown == manual.EXEC


def test_every_denial_code_is_in_agents_md_with_what_to_do() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", AGENTS, re.MULTILINE))
    assert rows == problems.HINTS
    assert set(rows) == {code.value for code in DenialCode}


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda p: p.name)
def test_every_document_is_linked_from_readme(path: Path) -> None:
    assert f"(docs/{path.name})" in README


def test_every_link_of_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
