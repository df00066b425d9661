"""What can be known of a command inside a capsule, and when none can run there (DESIGN §9)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, Delivery, ValueSource
from jackin_broker.capsules import Capsule, InitRecord
from jackin_broker.config import CapsuleConfig, CapsuleKind, Config, Mount
from jackin_broker.deliveries import Scratch, check_deliverable
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.init_protocol import SKILL_LOOK, SKILL_SOCKETS, Isolation
from jackin_broker.inside import InsidePlan, Unlisted, examine_inside, look, wait_for_runner
from jackin_broker.operator_protocol import StdinView
from jackin_broker.protocol import ExecCommand, StdinKind, Target, text_from_bytes
from jackin_broker.runner.descriptors import is_listening


class Channel:
    """A channel that is there."""

    def __init__(self, isolation: Isolation, *skills: str, answer: bytes = b"") -> None:
        self.isolation = isolation
        self.skills = frozenset(skills)
        self.answer = answer

    def spawn(self, request_id: str, descriptors: Sequence[int]) -> None: ...

    def look(self, look_id: str, descriptors: Sequence[int]) -> None:
        if self.answer:
            os.write(descriptors[1], self.answer)

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


@pytest.mark.parametrize(
    ("answer", "words", "status"),
    [
        (b"failed exec 2", "npm: no such command in the capsule", 127),
        (b"failed exec 13", "could not be started in the capsule: permission denied", 126),
        (b"failed cwd 2", "the working directory cannot be entered", 126),
        (b"failed exec x", "does not answer", 126),
        (b"something else", "does not answer", 126),
        (b"", "does not answer", 126),
    ],
)
def test_what_init_does_not_find_is_refused_before_anyone_is_asked(
    short_tmp: Path, answer: bytes, words: str, status: int
) -> None:
    made = capsule(short_tmp)
    made.take_runner(Channel(Isolation.NAMESPACES, SKILL_LOOK, answer=answer))
    with pytest.raises(Refusal, match=words) as told:
        asyncio.run(look(b"npm", b"/workspace", made))
    assert getattr(told.value, "exit_code", 126) == status


def test_what_init_finds_or_cannot_look_for_goes_on(short_tmp: Path) -> None:
    """An init of an earlier version has no such skill, and is not asked."""
    made = capsule(short_tmp)
    made.take_runner(Channel(Isolation.NAMESPACES, SKILL_LOOK, answer=b"found"))
    asyncio.run(look(b"npm", b"/workspace", made))
    made.take_runner(Channel(Isolation.NAMESPACES, answer=b"failed exec 2"))
    asyncio.run(look(b"npm", b"/workspace", made))


@pytest.mark.parametrize(
    ("isolation", "skills", "no_files", "no_sockets"),
    [
        (Isolation.NAMESPACES, [SKILL_SOCKETS], False, False),
        (Isolation.NAMESPACES, [], False, True),
        (Isolation.UID, [SKILL_SOCKETS], True, False),
        (Isolation.NONE, [SKILL_SOCKETS], True, False),
    ],
)
def test_files_and_sockets_of_its_own_take_namespaces(
    short_tmp: Path, isolation: Isolation, skills: list[str], no_files: bool, no_sockets: bool
) -> None:
    """Known before any value is resolved: deliveries look at the place first."""
    made = capsule(short_tmp)
    made.take_runner(Channel(isolation, *skills))
    plan = plan_of(made, "ssh", "host")
    place = plan.place(Config(), {}, Scratch(short_tmp / "commands"))
    plan.close()
    assert (bool(place.why_no_files), bool(place.why_no_sockets)) == (no_files, no_sockets)
    key = Binding("KEY", ValueSource(""), delivery=Delivery.SSH_AGENT)
    if no_files or no_sockets:
        with pytest.raises(Refusal, match="the value of KEY cannot be delivered"):
            check_deliverable([key], place)
    else:
        check_deliverable([key], place)


def test_in_an_adopted_container_namespaces_keep_nobody_out(short_tmp: Path) -> None:
    """`podman exec` enters init's own, from where every command can be seen."""
    made = capsule(short_tmp, CapsuleKind.PODMAN, Isolation.NAMESPACES)
    made.config = CapsuleConfig("web", CapsuleKind.PODMAN, (os.geteuid(),), container="app")
    plan = plan_of(made, "npm")
    plan.close()
    assert plan.shape.are_values_readable
    made.session_id = "launched"
    plan = plan_of(made, "npm")
    plan.close()
    assert not plan.shape.are_values_readable


def test_only_what_listens_is_taken_for_a_socket() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        assert not is_listening(sock.fileno())
        sock.bind("")
        sock.listen()
        assert is_listening(sock.fileno())
    with socket.socket(socket.AF_INET) as sock:
        sock.listen()
        assert not is_listening(sock.fileno())
    with open(os.devnull) as file:
        assert not is_listening(file.fileno())
