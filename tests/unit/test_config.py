"""What a configuration means once it is read, and whose file is read at all."""

from __future__ import annotations

import os
import secrets
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker import config
from jackin_broker.bindings import (
    Binding,
    CommandSource,
    Delivery,
    EnvSource,
    FileSource,
    KeyringSource,
    OpSource,
    Redact,
    ValueSource,
)
from jackin_broker.config import (
    CapsuleKind,
    Config,
    InvalidConfig,
    Limits,
    Mount,
    UnmappedCwd,
    run_limit_s,
)
from jackin_broker.config.load import CONFIG_MAX_BYTES
from jackin_broker.config.starter import STARTER
from jackin_broker.errors import ConfigError
from jackin_broker.policy import Action


def parse(text: str) -> Config:
    return config.parse("schema = 1\n" + text, origin="test")


@pytest.fixture
def path(private_home: Path) -> Path:
    return private_home / "config.toml"


# --- meaning ----------------------------------------------------------------------------


def test_seed_shapes_and_ours_become_their_sources() -> None:
    """DESIGN §8: exact shapes."""
    loaded = parse(
        """
        [env]
        TEXT = "text"
        DOLLAR = "$OUTSIDE"
        BRACES = "${OUTSIDE}"
        PARTLY = "x${OUTSIDE}"
        VALUE = { value = "${OUTSIDE}", on_demand = true }
        OP = { op = "op://V/I/s/f", path = "V/I", account = "me" }
        RING = { keyring = "github", on_demand = true }
        RING_AS = { keyring = "github", username = "me", on_demand = true, label = "mine" }
        FILE = { file = "~/x/../key", on_demand = true, redact = "fragments" }
        CMD = { command = ["a", "b"], on_demand = true, deliver_as = "OTHER" }
        """
    )
    home = os.environ["HOME"]
    assert loaded.bindings == {
        "TEXT": Binding("TEXT", ValueSource("text")),
        "DOLLAR": Binding("DOLLAR", EnvSource("OUTSIDE")),
        "BRACES": Binding("BRACES", EnvSource("OUTSIDE")),
        "PARTLY": Binding("PARTLY", ValueSource("x${OUTSIDE}")),
        "VALUE": Binding("VALUE", EnvSource("OUTSIDE"), on_demand=True),
        "OP": Binding("OP", OpSource("op://V/I/s/f", "V/I", "me")),
        "RING": Binding("RING", KeyringSource("github", "RING"), on_demand=True),
        "RING_AS": Binding("RING_AS", KeyringSource("github", "me"), on_demand=True, label="mine"),
        "FILE": Binding("FILE", FileSource(f"{home}/key"), on_demand=True, redact=Redact.FRAGMENTS),
        "CMD": Binding("CMD", CommandSource(("a", "b")), on_demand=True, deliver_as="OTHER"),
    }


@pytest.mark.parametrize(
    ("name", "delivery"),
    [
        ("SSH_KEY", Delivery.FILE),
        ("GITHUB_SSH_KEY", Delivery.FILE),
        ("APP_PRIVATE_KEY", Delivery.FILE),
        ("TLS_PEM", Delivery.FILE),
        ("DEPLOY_KEY", Delivery.FILE),
        ("API_KEY", Delivery.ENV),
        ("ADMIN_KEY", Delivery.ENV),
        ("SSH_KEY_ID", Delivery.ENV),
        ("KEY", Delivery.ENV),
    ],
)
def test_key_type_values_default_to_a_file(name: str, delivery: Delivery) -> None:
    """DESIGN §8: default for key-type values; an API key is not one."""
    loaded = parse(f'[env]\n{name} = {{ keyring = "k", on_demand = true }}')
    assert loaded.bindings[name].delivery is delivery


def test_every_delivery_and_source_of_the_design_is_valid_configuration() -> None:
    """Each can be written, and none is warned of."""
    for delivery in Delivery:
        prompt = ', prompt = "x"' if delivery is Delivery.PROMPT else ""
        entry = f'keyring = "k", on_demand = true, deliver = "{delivery.value}"{prompt}'
        loaded = parse(f"[env]\nA = {{ {entry} }}")
        assert loaded.bindings["A"].delivery is delivery
        assert not any("deliver" in line for line in config.warnings(loaded))


def test_capsule_entries_add_and_override() -> None:
    """DESIGN §14: `[capsules.NAME.env]` adds and overrides."""
    loaded = parse(
        """
        [env]
        SHARED = { keyring = "shared", on_demand = true }
        BOTH = { keyring = "both", on_demand = true }
        OPEN = "open"
        [capsules.a]
        kind = "bwrap"
        [capsules.a.env]
        BOTH = "given at launch"
        OWN = { keyring = "own", on_demand = true }
        """
    )
    assert set(loaded.bindings_of("a")) == {"SHARED", "OWN"}
    assert set(loaded.launch_env_of("a")) == {"BOTH", "OPEN"}
    assert set(loaded.bindings_of("unheard-of")) == {"SHARED", "BOTH"}
    assert sorted(b.name for b in loaded.all_bindings()) == [
        "BOTH", "BOTH", "OPEN", "OWN", "SHARED",
    ]  # fmt: skip


def test_capsule_paths_are_made_absolute_normal_and_free_of_links(private_home: Path) -> None:
    """DESIGN §9: who walks a mount later follows no link, so none is left in it."""
    (private_home / "real").mkdir()
    (private_home / "src").symlink_to("real")
    loaded = parse(
        """
        [capsules.web]
        kind = "bwrap"
        mounts = [{ capsule = "/space//app/", host = "~/src/app", read_only = true }]
        """
    )
    expected = Mount("/space/app", os.path.realpath(private_home / "real" / "app"), True)
    assert loaded.capsules["web"].mounts == (expected,)


def test_capsule_without_uids_is_asked_for_by_the_operators_own() -> None:
    """DESIGN §4: a peer is accepted with a configured uid only, so there is always one."""
    assert parse('[capsules.a]\nkind = "none"').capsules["a"].uids == (os.geteuid(),)


def test_construct_compatibility_falls_back_unless_it_says_deny() -> None:
    """DESIGN §9: `compat = ["construct"]` sets fallback."""
    base = '[capsules.a]\nkind = "bwrap"\ncompat = ["construct"]\n'
    assert parse(base).capsules["a"].unmapped_cwd is UnmappedCwd.FALLBACK
    denied = parse(base + 'unmapped_cwd = "deny"')
    assert denied.capsules["a"].unmapped_cwd is UnmappedCwd.DENY


def test_rules_are_numbered_as_they_are_written() -> None:
    """DESIGN §6: the first of its kind that matches, named by its place."""
    loaded = parse(
        """
        [[rules]]
        action = "deny"
        argv = ["gh", "repo", "delete", "..."]
        [[rules]]
        action = "allow"
        argv = ["gh", "pr", "list"]
        cwd = "~/src/**"
        expires = 2027-06-30
        """
    )
    first, second = loaded.rules
    assert (first.number, first.action) == (1, Action.DENY)
    assert (second.number, second.expires) == (2, date(2027, 6, 30))
    assert second.cwd == os.path.realpath(os.path.expanduser("~/src")) + "/**"


def test_defaults_are_the_designs() -> None:
    """DESIGN §14 and §6."""
    loaded = parse("")
    assert (loaded.limits.approve_s, loaded.limits.run_s) == (300, 1800)
    assert (loaded.limits.waiting_per_capsule, loaded.limits.ask_burst) == (32, 40)
    assert loaded.broker.no_operator is config.NoOperator.DENY
    assert not loaded.is_missing


def test_starter_with_everything_switched_on_is_valid() -> None:
    """The starter's examples are real: take every `#` away and it loads."""
    config.parse(STARTER, origin="starter")
    lines = [
        line[1:] if line[:1] == "#" and line[1:2] not in (" ", "") else line
        for line in STARTER.splitlines()
    ]
    loaded = config.parse("\n".join(lines), origin="starter")
    assert loaded.capsules["web"].kind is CapsuleKind.BWRAP
    assert loaded.rules
    assert len(loaded.bindings) == 5


@given(st.sampled_from(["{v}", "[{v}]", "{{ keyring = {v}, nonsense = {v} }}", "{{ op = {v} }}"]))
def test_no_problem_repeats_a_value(shape: str) -> None:
    """House rule: an error never holds a value; an entry may hold a secret in any wrong place."""
    secret = "tok" + secrets.token_hex(12)
    text = f"[env]\nA = {shape.format(v=repr(secret))}\nB = [{secret!r}]\nlimits = {secret!r}"
    with pytest.raises(InvalidConfig) as caught:
        parse(text)
    shown = [str(problem) for problem in caught.value.problems] + [caught.value.hint]
    assert not any(secret in line for line in shown)
    assert secret not in repr(parse(f"[env]\nA = {secret!r}"))


# --- the run limit ----------------------------------------------------------------------


def test_run_limit_comes_from_the_environment_and_zero_is_the_configured_one() -> None:
    """DESIGN §14: JACKIN_EXEC_TIMEOUT overrides for one broker; the seed's name under compat."""
    limits = Limits(run_s=60)
    seed = {"CONSTRUCT_HOST_EXEC_TIMEOUT": "7"}
    assert run_limit_s(limits, {}) == 60
    assert run_limit_s(limits, {"JACKIN_EXEC_TIMEOUT": "5"}) == 5
    assert run_limit_s(limits, {"JACKIN_EXEC_TIMEOUT": "0"}) == 60
    assert run_limit_s(limits, seed) == 60
    assert run_limit_s(limits, seed, is_construct=True) == 7
    for wrong in ("soon", "-1", "nan", "inf"):
        with pytest.raises(ConfigError, match="JACKIN_EXEC_TIMEOUT"):
            run_limit_s(limits, {"JACKIN_EXEC_TIMEOUT": wrong})


# --- the file ---------------------------------------------------------------------------


def test_missing_file_is_the_defaults_and_says_so(path: Path) -> None:
    """DESIGN §13: no capsules, no doorway."""
    loaded = config.load(path)
    assert loaded.is_missing
    assert not loaded.capsules


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_file_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    """DESIGN §14: refused if others can write it."""
    path.write_text("schema = 1\n")
    path.chmod(0o644)
    config.load(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="can be written by others") as caught:
        config.load(path)
    assert caught.value.hint == f"chmod go-w {path}"


def test_directory_that_others_can_write_is_refused(private_home: Path) -> None:
    """Who can write the directory can put another file there; a link's target counts too."""
    folder = private_home / "open"
    folder.mkdir()
    (folder / "config.toml").write_text("schema = 1\n")
    link = private_home / "link.toml"
    link.symlink_to(folder / "config.toml")
    config.load(link)
    folder.chmod(0o777)
    for path in (folder / "config.toml", link):
        with pytest.raises(ConfigError, match="can be written by others"):
            config.load(path)


def test_file_of_another_owner_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN §14: only root and the operator may say what is allowed."""
    path.write_text("schema = 1\n")
    owner = os.geteuid()
    if owner == 0:  # root can give the file away; anyone else pretends to be somebody else
        owner = 12345
        os.chown(path, owner, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=f"belongs to uid {owner}"):
        config.load(path)


def test_what_is_no_file_is_refused_at_once(path: Path) -> None:
    """Opening never blocks: a FIFO nobody writes to is an error, not a hang."""
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match="is not a regular file"):
        config.load(path)


def test_file_that_is_too_large_or_not_text_is_refused(path: Path) -> None:
    """Bounded reading; the place of the fault is named."""
    path.write_bytes(b"# " + b"x" * CONFIG_MAX_BYTES)
    with pytest.raises(ConfigError, match="is larger than"):
        config.load(path)
    path.write_bytes(b"schema = 1\n# \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 13"):
        config.load(path)
