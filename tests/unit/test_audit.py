"""The record's rules (DESIGN §11): a chain, flushed before delivery, closed when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from jackin_broker.audit import (
    ARGV_MAX_BYTES,
    CHAIN_START,
    REFUSAL_BURST,
    REPEAT_WINDOW_S,
    Audit,
    Damage,
    argv_fields,
    read,
    verify,
)
from jackin_broker.errors import ConfigError, DenialCode, Refusal


def write(path: Path, *events: str) -> None:
    async def go() -> None:
        audit = Audit(path)
        for event in events:
            await audit.record(event, flush=True, capsule="web")
        audit.close()

    asyncio.run(go())


def test_each_line_carries_the_hash_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "asked", "decided")
    first, second = (line.fields for line in read(path))
    assert first["prev"] == CHAIN_START
    assert second["prev"] != CHAIN_START
    assert verify(path) == 2


def test_the_chain_goes_on_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "asked")
    write(path, "decided", "ended")
    assert verify(path) == 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_changed_line_is_found(tmp_path: Path, number: int) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "asked", "decided", "ended", "asked")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(b"web", b"wob")
    path.write_bytes(b"".join(lines))
    with pytest.raises(Damage) as damage:
        verify(path)
    assert damage.value.number == number + 1


@pytest.mark.parametrize("gone", [0, 1])
def test_a_missing_line_is_found(tmp_path: Path, gone: int) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "asked", "decided", "ended")
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[gone]
    path.write_bytes(b"".join(lines))
    with pytest.raises(Damage):
        verify(path)


def test_a_line_that_a_crash_cut_short_shows_and_the_record_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "asked", "decided")
    path.write_bytes(path.read_bytes()[:-20])
    write(path, "ended")
    lines = list(read(path))
    assert [bool(line.fields) for line in lines] == [True, False, True]
    with pytest.raises(Damage) as damage:
        verify(path)
    assert damage.value.number == 2


def test_a_disk_that_is_full_is_audit_failed_and_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def go() -> None:
        audit = Audit(path)
        await audit.record("asked")
        size = path.stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
        try:
            with pytest.raises(Refusal) as refused:
                await audit.record("decided")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, former)
        assert refused.value.code is DenialCode.AUDIT_FAILED
        assert path.stat().st_size == size
        await audit.record("asked")
        audit.close()

    asyncio.run(go())
    assert verify(path) == 2


def test_a_record_that_was_moved_away_is_audit_failed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def go() -> None:
        audit = Audit(path)
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(Refusal) as gone:
            await audit.record("asked")
        path.write_bytes(b"")
        with pytest.raises(Refusal) as replaced:
            await audit.record("asked")
        assert gone.value.code is replaced.value.code is DenialCode.AUDIT_FAILED
        audit.close()

    asyncio.run(go())


def test_a_second_writer_is_kept_out(tmp_path: Path) -> None:
    async def go() -> None:
        audit = Audit(tmp_path / "audit.jsonl")
        with pytest.raises(ConfigError, match="another broker"):
            Audit(tmp_path / "audit.jsonl")
        audit.close()

    asyncio.run(go())


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_record_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"")
    path.chmod(mode)
    with pytest.raises(ConfigError, match="nobody else"):
        asyncio.run(_open(path))


def test_a_link_in_the_records_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot open"):
        asyncio.run(_open(tmp_path / "audit.jsonl"))


async def _open(path: Path) -> None:
    Audit(path)


def test_a_refusal_that_repeats_is_counted_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def go() -> None:
        audit = Audit(path)
        for second in range(50):
            await audit.record_refusal(float(second), "web", ("peer_refused",), code="peer_refused")
        await audit.record_refusal(REPEAT_WINDOW_S, "web", ("peer_refused",), code="peer_refused")
        audit.close()

    asyncio.run(go())
    lines = [line.fields for line in read(path)]
    assert len(lines) == 2
    assert lines[1]["repeated"] == 49


def test_refusals_that_differ_each_time_cannot_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def go() -> None:
        audit = Audit(path)
        for number in range(10_000):
            await audit.record_refusal(0.0, "web", (str(number),), code="not_allowed")
        await audit.record_refusal(10.0, "web", ("last",), code="not_allowed")
        await audit.record_refusal(10.0, "other", ("x",), code="not_allowed")
        audit.close()

    asyncio.run(go())
    lines = [line.fields for line in read(path)]
    assert len(lines) == REFUSAL_BURST + 2
    assert lines[-2]["left_out"] == 10_000 - REFUSAL_BURST
    assert lines[-1]["capsule"] == "other"


def test_arguments_are_clipped_with_a_digest_of_all_of_them() -> None:
    fields = argv_fields((b"x" * 5000, b"\xff\n", *[b"a"] * 100))
    argv = fields["argv"]
    assert isinstance(argv, list)
    assert len(argv) == 64
    assert len(argv[0]) == 400
    assert argv[1] == "\\xff\n"
    assert fields["argc"] == 102
    other = argv_fields((b"x" * 4999, b"\xff\n", *[b"a"] * 100))
    assert fields["argv_sha256"] != other["argv_sha256"]


@pytest.mark.parametrize("arg", ["\N{COLLISION SYMBOL}".encode() * 400, b"\xff" * 400, b"\1" * 400])
def test_no_argument_makes_a_line_that_counts_as_damage(tmp_path: Path, arg: bytes) -> None:
    """A character takes up to twelve bytes in a line; an agent sends 64 arguments full of them."""
    path = tmp_path / "audit.jsonl"

    async def go() -> None:
        audit = Audit(path)
        facts: dict[str, Any] = dict(argv_fields((arg,) * 64))
        await audit.record("asked", **facts)
        audit.close()

    asyncio.run(go())
    assert path.stat().st_size < ARGV_MAX_BYTES + 1024
    assert verify(path) == 1
    write(path, "ended")
    assert verify(path) == 2


def test_every_line_is_ascii_json_whatever_an_agent_sends(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def go() -> None:
        audit = Audit(path)
        facts: dict[str, Any] = dict(argv_fields(("\u202e\x1b[2J\n".encode(), b"\xff")))
        await audit.record("asked", **facts)
        audit.close()

    asyncio.run(go())
    raw = path.read_bytes()
    assert raw.count(b"\n") == 1
    assert raw.isascii()
    assert json.loads(raw)["argv"][0] == "\u202e\x1b[2J\n"
    assert os.stat(path).st_mode & 0o777 == 0o600
