"""What the documents show is what the programs do: commands, configuration, numbers, promises."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Final

import click
import pytest

from jackin_broker import config
from jackin_broker.cli import COMMANDS, root
from jackin_picker.guard import ARM_S
from support.source_tree import REPOSITORY

README: Final = (REPOSITORY / "README.md").read_text(encoding="utf-8")
SECURITY: Final = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
CONTRIBUTING: Final = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
CI: Final = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
PROMISES: Final = (REPOSITORY / "tests" / "promises.toml").read_text(encoding="utf-8")

MAIN_JOB: Final = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/jackin-broker try"
TESTS: Final = (
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' "
    "&& .venv/bin/python -m pytest -n 2 --dist loadfile"
)
# They hand the terminal to something else, or print what is JSON already.
WITHOUT_JSON: Final = {"attach", "audit export", "capsule shim", "launch", "serve", "try"}


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its words, groups opened."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


INSTALLED: Final = dict(commands(root))


def test_the_two_commands_of_readme_are_the_ones_that_ci_runs() -> None:
    assert MAIN_JOB in README
    assert TESTS in README
    assert TESTS in CONTRIBUTING
    assert 'JACKIN_REQUIRE_REAL=1 "$bin/python" -m pytest' in CI


def test_readme_says_what_is_trusted_within_forty_lines() -> None:
    assert "## What is trusted, and what is not" in README.splitlines()[:40]


def test_every_command_that_readme_names_is_installed() -> None:
    """`credential add\\|list` names two; options and capitals end a command's words."""
    groups = {known.split()[0] for known in INSTALLED if " " in known}
    named: set[str] = set()
    for words in re.findall(r"jackin-broker ((?:[a-z]+(?:\\?\|[a-z]+)* ?)+)", README):
        heads, tails, *_ = [*(word.split("|") for word in words.replace("\\", "").split()), [""]]
        for head in heads:
            named.update(f"{head} {tail}" if head in groups and tail else head for tail in tails)
    assert len(named) > 15
    assert named - set(INSTALLED) - groups == set()


def test_every_command_is_in_readme() -> None:
    assert {name for name in COMMANDS if not re.search(rf"\b{name}\b", README)} == set()


@pytest.mark.parametrize("name", sorted(set(INSTALLED) - WITHOUT_JSON))
def test_everything_that_prints_has_json(name: str) -> None:
    options = {option for one in INSTALLED[name].params for option in one.opts}
    assert "--json" in options


def test_every_command_says_what_it_does() -> None:
    assert [name for name, command in INSTALLED.items() if not command.get_short_help_str()] == []


def test_the_configuration_that_readme_shows_is_valid_and_complete() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    parsed = config.parse(block, origin="README.md")
    assert set(parsed.bindings) == set(tomllib.loads(block)["env"])
    assert parsed.rules


def test_the_times_that_the_documents_name_are_the_programs() -> None:
    assert f"{ARM_S:g} s" in README
    assert f"{ARM_S:g} s" in SECURITY


def defended() -> list[str]:
    """The right-hand cells of SECURITY's table of what is defended."""
    table = SECURITY.split("## What is defended")[1].split("##")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    return [row[2].strip() for row in rows[1:]]


@pytest.mark.parametrize("defence", defended(), ids=lambda text: text[:50])
def test_every_defence_that_security_names_is_a_promise_with_a_test(defence: str) -> None:
    """A long cell may be several promises; each clause of it is a part of one."""
    quoted = [
        one["text"] for one in tomllib.loads(PROMISES)["promise"] if one["source"] == "SECURITY.md"
    ]
    rest = defence
    for text in sorted(quoted, key=len, reverse=True):
        rest = rest.replace(text, "")
    assert re.sub(r"\W+", "", rest.replace(" and ", " ")) == ""
