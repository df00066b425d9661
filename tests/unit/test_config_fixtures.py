"""Every file in `fixtures/config`, against what it says of itself."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from jackin_broker import config
from jackin_broker.config import InvalidConfig
from jackin_broker.errors import ConfigError
from jackin_broker.migrations import migrate

FIXTURES = Path(__file__).parents[2] / "fixtures" / "config"
# The fixtures' rules end before and after this day.
DAY = date(2026, 11, 30)


def said(path: Path, word: str) -> list[str]:
    """The expectations in a fixture's comments."""
    mark = f"# {word}: "
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]


def fixtures(pattern: str) -> list[Path]:
    found = sorted(FIXTURES.glob(pattern))
    assert found, f"no fixture matches {pattern}"
    return found


@pytest.mark.parametrize("path", fixtures("valid/*.toml"), ids=lambda path: path.stem)
def test_valid_configuration_loads_and_warns_of_exactly_what_it_says(path: Path) -> None:
    """DESIGN §14; warnings: DESIGN §6."""
    loaded = config.parse(path.read_text(encoding="utf-8"), origin=path.name)
    assert config.warnings(loaded, today=DAY) == said(path, "warn")


@pytest.mark.parametrize("path", fixtures("invalid/*.toml"), ids=lambda path: path.stem)
def test_every_problem_is_named_with_its_path_and_no_other(path: Path) -> None:
    """DESIGN §14: unknown keys are errors with the key's path and a "did you mean"."""
    with pytest.raises(ConfigError) as caught:
        config.parse(path.read_text(encoding="utf-8"), origin=path.name)
    error = caught.value
    problems = error.problems if isinstance(error, InvalidConfig) else (error,)
    assert [str(problem) for problem in problems] == said(path, "expect")
    for hint in said(path, "expect-hint"):
        assert error.hint == hint


@pytest.mark.parametrize("old", fixtures("migrate/*.old.toml"), ids=lambda path: path.stem)
def test_old_layout_becomes_the_new_text_byte_for_byte(old: Path) -> None:
    """DESIGN §14: migrated forward by code with fixtures for each step; comments kept."""
    name = old.name.removesuffix(".old.toml")
    new = old.with_name(f"{name}.new.toml").read_text(encoding="utf-8")
    migrated = migrate(old.read_text(encoding="utf-8"))
    assert migrated.text == new
    assert list(migrated.changes) == (
        old.with_name(f"{name}.changes").read_text(encoding="utf-8").splitlines()
    )
    config.parse(new, origin=name)
    assert migrate(new).changes == ()


@pytest.mark.parametrize("old", fixtures("migrate/*.old.toml"), ids=lambda path: path.stem)
def test_old_layout_is_not_loaded_but_sent_to_migrate(old: Path) -> None:
    """DESIGN §14: an old schema is never read as if it were the present one."""
    with pytest.raises(ConfigError, match=r"^schema: ") as caught:
        config.parse(old.read_text(encoding="utf-8"), origin=old.name)
    assert "config migrate" in caught.value.hint
