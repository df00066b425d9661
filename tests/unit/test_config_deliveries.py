"""DESIGN §8: how a delivery is written, and what about it is a mistake."""

from __future__ import annotations

import secrets

import pytest

from jackin_broker import config
from jackin_broker.bindings import Binding, ValueSource, companions_of

KEY = 'deliver = "ssh-agent", passphrase = "OPENS"'


def parse(entry: str, *, more: str = "") -> config.Config:
    """A configuration with one on-demand entry A, and what else is written."""
    text = f'schema = 1\n[env]\nA = {{ keyring = "k", on_demand = true, {entry} }}\n{more}'
    return config.parse(text, origin="test")


def problems(entry: str, *, more: str = "") -> dict[str, str]:
    with pytest.raises(config.InvalidConfig) as refused:
        parse(entry, more=more)
    return {problem.path: problem.message for problem in refused.value.problems}


def test_a_key_for_an_agent_with_all_that_goes_with_it() -> None:
    entry = f'{KEY}, destinations = ["git@example.com", "[::1]:2222", "gate>git@inner"]'
    made = parse(entry, more='OPENS = { keyring = "k", on_demand = true }').bindings["A"]
    assert made.passphrase == "OPENS"
    assert made.destinations == ("git@example.com", "[::1]:2222", "gate>git@inner")


@pytest.mark.parametrize(
    ("entry", "key", "words"),
    [
        ('deliver = "prompt"', "prompt", "expected the pattern"),
        ('deliver = "prompt", prompt = "(["', "prompt", "not a regular expression"),
        ('deliver = "prompt", prompt = ".*"', "prompt", "would answer any question"),
        ('deliver = "prompt", prompt = "x?$"', "prompt", "would answer any question"),
        (f'deliver = "prompt", prompt = "{"x" * 201}"', "prompt", "is longer than 200"),
        ('prompt = "x"', "prompt", 'belongs to deliver = "prompt" alone'),
        ('passphrase = "B"', "passphrase", 'belongs to deliver = "ssh-agent" alone'),
        ('deliver = "ssh-agent", passphrase = "A"', "passphrase", "names the key itself"),
        ('destinations = ["x"]', "destinations", 'belongs to deliver = "ssh-agent" alone'),
        ('deliver = "ssh-agent", destinations = ["-x"]', "destinations[1]", "expected a host"),
        ('deliver = "ssh-agent", destinations = ["a b"]', "destinations[1]", "expected a host"),
        ('deliver = "stdin", deliver_as = "X"', "deliver_as", "means nothing"),
        ('deliver = "ssh-agent", deliver_as = "X"', "deliver_as", "means nothing"),
    ],
)
def test_what_makes_no_sense_is_a_mistake(entry: str, key: str, words: str) -> None:
    assert words in problems(entry)[f"env.A.{key}"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "is no on-demand entry's name"),
        ('OPENS = "plain"', "is no on-demand entry's name"),
        ('OPENS = { keyring = "k", on_demand = true, deliver = "ssh-agent" }', "names a key"),
    ],
)
def test_a_passphrase_is_another_entry_of_its_own(more: str, words: str) -> None:
    assert words in problems(KEY, more=more)["env.A.passphrase"]


def test_a_passphrase_that_is_written_itself_is_not_repeated() -> None:
    """A likely mistake: the passphrase in place of the name of its entry."""
    secret = "pass" + secrets.token_hex(12)
    found = problems(f'deliver = "ssh-agent", passphrase = "{secret}"')
    assert secret not in str(found)


def test_a_capsules_key_may_have_the_passphrase_of_all() -> None:
    capsule = (
        'OPENS = { keyring = "k", on_demand = true }\n'
        '[capsules.web]\nkind = "none"\nhost_binaries = []\n[capsules.web.env]\n'
        f'B = {{ keyring = "k", on_demand = true, {KEY} }}\n'
    )
    assert parse("label = ''", more=capsule).capsules["web"].env["B"].passphrase == "OPENS"
    broken = capsule.replace('OPENS = { keyring = "k", on_demand = true }\n', "")
    assert "is no on-demand" in problems("label = ''", more=broken)["capsules.web.env.B.passphrase"]


@pytest.mark.parametrize("key", ['passphrase = "B"', 'destinations = ["x"]', 'prompt = "x"'])
def test_what_the_agent_gets_at_launch_has_no_delivery(key: str) -> None:
    with pytest.raises(config.InvalidConfig, match="add on_demand = true"):
        config.parse(f'schema = 1\n[env]\nA = {{ value = "x", {key} }}\n', origin="test")


def test_companions_are_each_named_once_and_not_those_that_are_lent() -> None:
    opens = Binding("OPENS", ValueSource(""))
    one, two = (Binding(name, ValueSource(""), passphrase="OPENS") for name in ("ONE", "TWO"))
    known = {binding.name: binding for binding in (opens, one, two)}
    assert companions_of([one, two], known) == [opens]
    assert companions_of([one, opens], known) == []
    assert companions_of([opens], known) == []
