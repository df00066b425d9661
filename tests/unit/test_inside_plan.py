"""What can be known of a command inside a capsule, and when none can run there (DESIGN §9)."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from jackin_broker.capsules import Capsule, InitRecord
from jackin_broker.config import CapsuleConfig, CapsuleKind, Mount
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.init_protocol import Isolation
from jackin_broker.inside import InsidePlan, Unlisted, examine_inside, wait_for_runner
from jackin_broker.operator_protocol import StdinView
from jackin_broker.protocol import ExecCommand, StdinKind, Target, text_from_bytes


class Channel:
    """A channel that is there."""

    def __init__(self, isolation: Isolation) -> None:
        self.isolation = isolation

    def spawn(self, request_id: str, descriptors: Sequence[int]) -> None: ...

    def kill(self, request_id: str, number: int) -> None: ...

    def close(self) -> None: ...


def capsule(
    project: Path, kind: CapsuleKind = CapsuleKind.BWRAP, isolation: Isolation | None = None
) -> Capsule:
    config = CapsuleConfig("web", kind, (os.geteuid(),))
    made = Capsule("web", config, {}, kind, frozenset(config.uids))
    made.mounts = (Mount("/workspace", str(project)), Mount("/workspace/sub", str(project / "in")))
    made.take_runner(Channel(isolation) if isolation is not None else None)
    return made


def plan_of(
    made: Capsule, *argv: str, cwd: str = "/workspace", is_bridged: bool = False
) -> InsidePlan:
    words = tuple(word.encode() for word in argv)
    message = ExecCommand(
        protocol=1, command=argv[0], args=tuple(map(text_from_bytes, words[1:])), cwd=cwd
    )
    stdin = StdinView(StdinKind.NONE)
    plan = examine_inside(Unlisted(message, words, stdin, made, {}, frozenset(), is_bridged))
    plan.close()
    return plan


def test_everything_inside_is_the_agents_and_the_target_is_said(short_tmp: Path) -> None:
    plan = plan_of(capsule(short_tmp, isolation=Isolation.NAMESPACES), "npm", "publish")
    assert plan.target is plan.shape.target is Target.CAPSULE
    assert plan.shape.is_cwd_writable
    assert plan.shape.has_writable_files
    assert not plan.shape.are_values_readable
    assert plan.program == "npm"
    assert plan.shown_cwd == b"/workspace"
    assert "apart from the agent" in plan.confinement.describe()


def test_without_isolation_the_values_count_as_the_agents(short_tmp: Path) -> None:
    plan = plan_of(capsule(short_tmp, isolation=Isolation.NONE), "npm")
    assert plan.shape.are_values_readable
    assert "the agent can read these values" in plan.confinement.describe()
    assert any("the agent can read these values" in line for line in plan.notices)


@pytest.mark.parametrize(
    "word", ["run.py", "/workspace/run.py", "--file=/workspace/run.py", "-f/workspace/run.py"]
)
def test_a_file_in_a_mount_is_found_by_its_path_in_the_capsule(short_tmp: Path, word: str) -> None:
    (short_tmp / "run.py").write_text("print()")
    plan = plan_of(capsule(short_tmp, isolation=Isolation.NAMESPACES), "python3", word)
    (file,) = plan.files
    assert file.sha256 == hashlib.sha256(b"print()").hexdigest()
    assert plan.shape.files is not None


def test_an_inner_mount_covers_what_is_under_it(short_tmp: Path) -> None:
    (short_tmp / "in").mkdir()
    (short_tmp / "in" / "run.py").write_text("inner")
    plan = plan_of(capsule(short_tmp, isolation=Isolation.UID), "sh", "/workspace/sub/run.py")
    (file,) = plan.files
    assert file.sha256 == hashlib.sha256(b"inner").hexdigest()


@pytest.mark.parametrize(
    ("argv", "cwd"),
    [
        (("sh", "/tmp/run.sh"), "/workspace"),
        (("sh", "--file=/etc/passwd"), "/workspace"),
        (("sh", "/workspace/../etc/passwd"), "/workspace"),
        (("sh", "run.sh"), "/elsewhere"),
    ],
)
def test_what_lies_in_no_mount_is_not_looked_for_on_the_host(
    short_tmp: Path, argv: tuple[str, ...], cwd: str
) -> None:
    """The capsule's /etc/passwd is not the host's; and no approval is stored for such a command."""
    plan = plan_of(capsule(short_tmp, isolation=Isolation.NAMESPACES), *argv, cwd=cwd)
    assert plan.files == ()
    assert plan.shape.files is None
    assert not any(b"etc/passwd" in word for word in plan.operand_args)
    assert any("not every file" in line for line in plan.notices)


def test_a_directory_under_no_mount_matches_no_rule_by_its_directory(short_tmp: Path) -> None:
    plan = plan_of(capsule(short_tmp, isolation=Isolation.NAMESPACES), "id", cwd="/home/agent")
    assert plan.shape.cwd == b""
    assert plan.shown_cwd == b"/home/agent"


@pytest.mark.parametrize(
    ("kind", "isolation", "is_bridged", "words"),
    [
        (CapsuleKind.NONE, None, False, "without a boundary has no inside"),
        (CapsuleKind.REMOTE, None, False, "over the bridge nothing is run inside"),
        (CapsuleKind.BWRAP, Isolation.NAMESPACES, True, "over the bridge nothing is run inside"),
        (CapsuleKind.BWRAP, None, False, "its init has no channel"),
    ],
)
def test_where_nothing_can_run_inside_the_reason_says_what_is_missing(
    short_tmp: Path,
    kind: CapsuleKind,
    isolation: Isolation | None,
    is_bridged: bool,
    words: str,
) -> None:
    with pytest.raises(Refusal, match=words) as told:
        plan_of(capsule(short_tmp, kind, isolation), "npm", is_bridged=is_bridged)
    assert told.value.code is DenialCode.NOT_ALLOWED
    assert "host_binaries" in told.value.hint


def test_the_channel_is_waited_for_only_where_init_is_to_connect(short_tmp: Path) -> None:
    async def waits(made: Capsule, command: bytes = b"npm") -> bool:
        waiting = asyncio.ensure_future(wait_for_runner(command, made))
        await asyncio.sleep(0)
        is_waiting = not waiting.done()
        made.take_runner(Channel(Isolation.NAMESPACES))
        await waiting
        return is_waiting

    async def claims() -> None:
        assert not await waits(capsule(short_tmp)), "nobody is on record"
        made = capsule(short_tmp)
        pidfd = os.pidfd_open(os.getpid())
        made.init = InitRecord(os.getpid(), pidfd, 0, os.geteuid(), 2)
        assert await waits(made)
        made.take_runner(None)
        made.init.is_ours = False
        assert not await waits(made), "it is not ours and never connects"
        made.drop_init()

    asyncio.run(claims())
