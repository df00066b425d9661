"""Rules put into a configuration's text and taken out again, byte for byte."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from jackin_broker.config.rule_edits import append_rule, remove_rules, rule_texts
from jackin_broker.errors import ConfigError

BLOCK = """# from an approval on 2026-11-30
[[rules]]
id = "r-1"
action = "allow"
argv = ["gh", "[[rules]]", "\\\\*"]"""
OTHER = BLOCK.replace("r-1", "r-2")

PLAIN = """# my settings
schema = 1   # always the first line

[env]
A = "x" # about A
"""
RULES = (
    PLAIN
    + """
# what I never want
[[rules]]
action = "deny"
argv = ["git", "push"] # no

# how long
[limits]
approve_s = 60
"""
)
# Line ends for Python, and none for TOML: an agent can name a directory so.
ODD = 'cwd = "/src/a\u2028\u2028[[rules]]\u0085b"'
SPACED = """schema = 1
[[rules]]

action = "deny"

argv = [
  "x",
]
[limits]
approve_s = 60
"""
TEXTS = {"no rules": PLAIN, "rules in the middle": RULES, "with blank lines": SPACED, "nothing": ""}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_rule_goes_in_to_the_byte_and_comes_out_again(text: str) -> None:
    one = append_rule(text, BLOCK)
    both = append_rule(one, OTHER)
    for line in text.split("\n"):
        assert line in one.split("\n")
    assert f"{BLOCK}\n" in one
    assert f"{BLOCK}\n" in both
    assert f"{OTHER}\n" in both
    assert rule_texts(both)["r-1"] == BLOCK
    assert rule_texts(both)["r-2"] == OTHER
    assert remove_rules(both, {"r-2"}) == one
    assert remove_rules(both, {"r-1", "r-2"}).split() == text.split()


def test_a_rule_stands_after_the_others_and_before_what_follows() -> None:
    assert append_rule(RULES, BLOCK) == RULES.replace("# how long", f"{BLOCK}\n\n# how long")


def test_what_is_not_there_is_taken_out_of_nothing() -> None:
    assert remove_rules(RULES, {"r-1"}) == RULES
    assert rule_texts(RULES) == {}


def test_a_comment_above_somebody_elses_rule_stays() -> None:
    text = append_rule(PLAIN, BLOCK.replace("# from an approval on 2026-11-30", "# mine"))
    assert "# mine" in remove_rules(text, {"r-1"})


def test_rules_in_one_line_cannot_be_added_to_and_nothing_changes() -> None:
    with pytest.raises(ConfigError, match="nothing can be added"):
        append_rule('schema = 1\nrules = [{ action = "deny", argv = ["x"] }]\n', BLOCK)


def test_a_header_within_a_text_is_no_header() -> None:
    text = f'{PLAIN}B = """\n[[rules]]\n"""\n'
    assert remove_rules(append_rule(text, BLOCK), {"r-1"}).rstrip("\n") == text.rstrip("\n")


def test_what_is_no_toml_is_said_and_nothing_changes() -> None:
    with pytest.raises(ConfigError, match="not TOML"):
        append_rule("[half an ed", BLOCK)
    with pytest.raises(ConfigError, match="not TOML"):
        remove_rules("[half an ed", {"r-1"})


def test_a_directory_with_line_ends_of_another_kind_does_not_keep_its_rule_in_force() -> None:
    """Else one such name would keep every "always" from being revoked for good."""
    odd = f"{BLOCK}\n{ODD}"
    both = append_rule(append_rule(RULES, odd), OTHER)
    assert rule_texts(both)["r-1"] == odd
    assert remove_rules(both, {"r-1", "r-2"}) == RULES


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of TOML are read from now on, a number each time."""
    sizes: list[int] = []
    real = tomllib.loads

    def counted(text: str) -> dict[str, Any]:
        sizes.append(len(text))
        return real(text)

    monkeypatch.setattr(tomllib, "loads", counted)
    return sizes


def test_finding_and_ending_many_rules_reads_the_file_a_few_times_and_not_once_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred of them took five seconds to end one, and the broker one to list them."""
    blocks = [BLOCK.replace("r-1", f"r-{number}") for number in range(40)]
    text = "\n\n".join([PLAIN.strip(), *blocks]) + "\n"
    sizes = reads_of(monkeypatch)
    assert list(rule_texts(text).values()) == blocks
    assert sum(sizes) <= len(text)
    sizes.clear()
    assert remove_rules(text, {"r-39"}) == text.replace(f"\n\n{blocks[39]}", "")
    assert remove_rules(text, {f"r-{number}" for number in range(40)}).strip() == PLAIN.strip()
    assert sum(sizes) <= 12 * len(text)
