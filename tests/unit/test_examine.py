"""What is found out before anyone is asked, and what a rule may conclude from it (DESIGN §6)."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, ValueSource
from jackin_broker.capsules import Capsule
from jackin_broker.config import BinaryConfig, CapsuleConfig, CapsuleKind, Config, Mount
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.examine import Asked, examine, inquiry_of
from jackin_broker.grants.basis import basis_of, shape_of
from jackin_broker.identity import find_binary
from jackin_broker.operands import EXAMINED_MAX_ARGS
from jackin_broker.plan import Plan, recheck
from jackin_broker.policy import Action, Rule, decide
from jackin_broker.protocol import PROTOCOL_VERSION, Ask, ExecCommand, Outcome
from support.real import SEARCH_PATH

RULE = Rule(Action.ALLOW, ("cat", "..."), bindings=("TOKEN",))


@contextmanager
def asked(home: Path, *args: str) -> Generator[Plan]:
    """The plan of `cat ARGS` in a read-only mount, beside one that the agent writes."""
    for name in ("docs", "app"):
        (home / name).mkdir(exist_ok=True)
    mounts = (
        Mount("/docs", os.path.realpath(home / "docs"), read_only=True),
        Mount("/app", os.path.realpath(home / "app")),
    )
    token = Binding("TOKEN", ValueSource("a" * 20), on_demand=True)
    capsule_config = CapsuleConfig("web", CapsuleKind.BWRAP, (1000,), ("cat",), mounts)
    pinned = {"cat": find_binary("cat", SEARCH_PATH)}
    capsule = Capsule(
        "web", capsule_config, pinned, CapsuleKind.BWRAP, frozenset({1000}), mounts=mounts
    )
    config = Config(bindings={"TOKEN": token}, capsules={"web": capsule_config}, rules=(RULE,))
    message = ExecCommand(PROTOCOL_VERSION, "cat", args, "/docs")
    argv = tuple(os.fsencode(word) for word in ("cat", *args))
    plan = examine(Asked(message, argv, b"", capsule, config, ()))
    try:
        yield plan
    finally:
        plan.close()


def outcome(home: Path, *args: str) -> Outcome:
    with asked(home, *args) as plan:
        return decide(plan.shape, (RULE,), today=date(2030, 1, 1)).outcome


def test_a_rule_delivers_nothing_to_what_the_agent_can_write(private_home: Path) -> None:
    """A file hidden behind many arguments, a pipe, a directory, a way through /proc."""
    app = private_home / "app"
    assert outcome(private_home, "readme", "/etc/passwd") is Outcome.ALLOW
    (app / "x").write_text("x")
    os.mkfifo(app / "pipe")
    for args in (
        (str(app / "x"),),
        (*(["--"] * EXAMINED_MAX_ARGS), str(app / "x")),
        (str(app / "pipe"),),
        (str(app),),
        ("../app/not-there-yet",),
        ("/proc/self/cwd/../app/x",),
    ):
        assert outcome(private_home, *args) is Outcome.ASK, args[-1]


def test_a_file_that_became_a_pipe_is_not_what_was_shown(private_home: Path) -> None:
    """Also where nothing was there when the operator looked."""
    pipe = private_home / "app" / "later"
    with asked(private_home, str(pipe)) as plan:
        recheck(plan)
        os.mkfifo(pipe)
        with pytest.raises(Refusal) as refused:
            recheck(plan)
        assert refused.value.code is DenialCode.CHANGED_SINCE_APPROVAL
    with asked(private_home, str(pipe)) as plan:
        assert any("pipe" in notice for notice in plan.notices)
        recheck(plan)


@pytest.mark.parametrize("is_bridged", [True, False])
def test_an_inquiry_is_answered_for_the_door_that_it_came_through(is_bridged: bool) -> None:
    """Over the bridge nothing runs inside the capsule, and no inquiry may say that it would."""
    capsule_config = CapsuleConfig("web", CapsuleKind.BWRAP, (1000,), ())
    capsule = Capsule("web", capsule_config, {}, CapsuleKind.BWRAP, frozenset({1000}))
    message = Ask(PROTOCOL_VERSION, "npm")
    inquiry = Asked(
        inquiry_of(message), (b"npm",), b"", capsule, Config(), (), is_bridged=is_bridged
    )
    with pytest.raises(Refusal) as refused:
        examine(inquiry)
    assert ("over the bridge" in str(refused.value)) is is_bridged


def test_a_program_that_is_configured_in_another_way_is_another_surrounding(
    private_home: Path,
) -> None:
    """A grant ends with that: what it may write of the operator's HOME, its environment."""
    seen: set[str] = set()
    ways = (BinaryConfig(), BinaryConfig(home_paths=("~/.x",)), BinaryConfig(env={"A": "1"}))
    for way in ways:
        with asked(private_home) as plan:
            plan.binary_config = way
            seen.add(basis_of(plan, shape_of(plan), date(2030, 1, 1)).traits[""])
    assert len(seen) == len(ways)
