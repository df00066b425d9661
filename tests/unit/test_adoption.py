"""Containers by their engine's word: what counts as our init, and engines that do not answer."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from jackin_broker.adoption import RETURN_LIMIT_S, is_our_init, settled
from jackin_broker.capsules import Capsule, InitRecord
from jackin_broker.config import CapsuleConfig, CapsuleKind
from jackin_broker.engines import Container, engine_environment, inspect
from jackin_broker.errors import ConfigError

_OURS = ("/jackin/bin/jackin-capsule", "init", "--", "sleep")


def engine(folder: Path, script: str) -> dict[str, str]:
    """An environment in which `docker` is this script."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def answer(**changes: Any) -> str:
    found = {
        "State": {"Pid": 42},
        "Id": "ab" * 32,
        "Path": _OURS[0],
        "Args": list(_OURS[1:]),
        "Mounts": [
            {"Destination": "/jackin/bin", "Source": "/host/bin", "RW": False},
            {"Destination": "/w", "Source": "/host/w", "RW": True},
        ],
        **changes,
    }
    return f"cat <<'E'\n{json.dumps([found])}\nE"


def test_what_the_engine_says_is_taken(short_tmp: Path) -> None:
    found = inspect("docker", "web", engine(short_tmp, answer()))
    assert found == Container(42, "ab" * 32, _OURS, {"/jackin/bin": "/host/bin"})


@pytest.mark.parametrize(
    "script",
    ["echo 'Error: No such container: web' >&2; exit 1", answer(State={"Pid": 0})],
)
def test_a_container_that_does_not_run_is_none(short_tmp: Path, script: str) -> None:
    assert inspect("docker", "web", engine(short_tmp, script)) is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Cannot connect to the daemon' >&2; exit 1", "does not answer: Cannot connect"),
        ("echo '[]'", "an answer that does not fit"),
        ("echo 'not json'", "an answer that does not fit"),
        (answer(State={}), "an answer that does not fit"),
    ],
)
def test_an_engine_that_cannot_be_understood_is_an_error(
    short_tmp: Path, script: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        inspect("docker", "web", engine(short_tmp, script))


def test_a_missing_engine_is_named_with_its_package(short_tmp: Path) -> None:
    with pytest.raises(ConfigError, match="podman is missing") as told:
        inspect("podman", "web", {"PATH": str(short_tmp)})
    assert "apt-get install podman" in told.value.hint


def test_an_engine_gets_its_own_settings_and_no_credential() -> None:
    environ = {"DOCKER_HOST": "unix:///d", "PATH": "/bin", "GH_TOKEN": "x", "CONTAINERS_CONF": "/c"}
    assert set(engine_environment(environ)) == {"DOCKER_HOST", "PATH", "CONTAINERS_CONF"}


@pytest.mark.parametrize(
    ("argv", "mounts", "is_ours"),
    [
        (_OURS, {"/jackin/bin": "PROGRAMS"}, True),
        (_OURS, {}, False),
        (_OURS, {"/jackin/bin": "/elsewhere"}, False),
        (("/bin/sh", "-c", "jackin-capsule init"), {"/jackin/bin": "PROGRAMS"}, False),
        ((_OURS[0], "exec"), {"/jackin/bin": "PROGRAMS"}, False),
    ],
)
def test_init_is_ours_only_as_the_first_program_from_our_own_directory(
    short_tmp: Path, argv: tuple[str, ...], mounts: dict[str, str], is_ours: bool
) -> None:
    """Mounted read-only by the host, or the agent could have put something else there."""
    programs = os.path.realpath(short_tmp)
    placed = {key: value.replace("PROGRAMS", programs) for key, value in mounts.items()}
    assert is_our_init(Container(1, "id", argv, placed), programs) is is_ours


def capsule(kind: CapsuleKind = CapsuleKind.BWRAP) -> Capsule:
    """One that is known since this moment, its init not on record."""
    return Capsule("web", CapsuleConfig("web", kind, (1500,)), {}, kind, frozenset({1500}))


def is_waited_for(made: Capsule) -> bool:
    """Whether a caller waits for its init, and goes on as soon as that is on record."""

    async def claims() -> bool:
        caller = asyncio.ensure_future(settled(made, {}))
        for _ in range(3):  # the turns that it takes to begin waiting
            await asyncio.sleep(0)
        is_waiting = not caller.done()
        made.take_init(InitRecord(os.getpid(), os.pidfd_open(os.getpid()), 0, 1500, 2))
        await asyncio.wait_for(caller, RETURN_LIMIT_S)
        return is_waiting

    try:
        return asyncio.run(claims())
    finally:
        made.drop_init()


def test_after_a_brokers_start_a_caller_waits_for_the_launcher_to_come_back() -> None:
    assert is_waited_for(capsule())


def test_nobody_waits_for_what_was_never_launched_or_has_no_init() -> None:
    long_known = capsule()
    long_known.known_since = time.monotonic() - RETURN_LIMIT_S
    assert not is_waited_for(long_known)
    assert not is_waited_for(capsule(CapsuleKind.NONE))
