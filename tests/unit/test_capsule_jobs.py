"""A job as the broker writes it and the capsule reads it; and what a job may do (DESIGN §9)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.errors import LocalProtocolError, PeerProtocolError
from jackin_broker.init_protocol import (
    InitReady,
    Isolation,
    Job,
    JobFile,
    decode_from_init,
    encode_job,
)
from jackin_broker.protocol import TerminalSize
from jackin_broker.texts import Bytes64, text_from_bytes
from jackin_capsule import jobs, wire

_RAW = st.binary(max_size=40).filter(lambda raw: b"\0" not in raw)
_NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,10}", fullmatch=True)


def memory_file(body: bytes) -> int:
    fd = os.memfd_create("job", os.MFD_CLOEXEC)
    os.write(fd, body)
    return fd


def read(body: bytes, base: dict[bytes, bytes] | None = None) -> jobs.Job:
    return jobs.read_job(memory_file(body), base if base is not None else {})


@given(
    st.lists(_RAW, min_size=1, max_size=4),
    _RAW,
    st.dictionaries(_NAMES, _RAW, max_size=4),
    st.none() | st.tuples(st.integers(1, 65_535), st.integers(1, 65_535)),
)
def test_both_sides_mean_the_same_job(
    argv: list[bytes], cwd: bytes, env: dict[str, bytes], size: tuple[int, int] | None
) -> None:
    body = encode_job(
        Job(
            argv=tuple(map(text_from_bytes, argv)),
            cwd=text_from_bytes(cwd),
            env={name: text_from_bytes(value) for name, value in env.items()},
            files=(JobFile("/run/jackin/KEY", Bytes64("AP8=")),),
            terminal=None if size is None else TerminalSize(*size),
        )
    )
    found = read(body)
    assert found.argv == argv
    assert found.cwd == cwd
    assert found.env == {
        b"PATH": b"/usr/local/bin:/usr/bin:/bin",
        **{name.encode(): value for name, value in env.items()},
    }
    assert found.files == [(b"/run/jackin/KEY", b"\0\xff")]
    assert found.terminal == size


def test_the_memory_file_is_emptied_and_closed() -> None:
    fd = memory_file(encode_job(Job(("true",), "/", {"TOKEN": "value"})))
    kept = os.dup(fd)
    jobs.read_job(fd, {})
    assert os.fstat(kept).st_size == 0
    os.close(kept)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"type":"Job"}',
        b'{"type":"Job","argv":[],"cwd":"/","env":{}}',
        b'{"type":"Job","argv":"true","cwd":"/","env":{}}',
        b'{"type":"Job","argv":["x"],"cwd":1,"env":{}}',
        b'{"type":"Job","argv":["x"],"cwd":"/","env":[]}',
        b'{"type":"Job","argv":["x"],"cwd":"/","env":{},"terminal":{"rows":0,"cols":1}}',
    ],
)
def test_what_no_broker_sends_is_a_fault(body: bytes) -> None:
    with pytest.raises(wire.Fault):
        read(body)


def test_no_text_form_shows_a_value() -> None:
    made = Job(("sh",), "/", {"TOKEN": "the-value"}, (JobFile("/k", Bytes64("dGhl")),))
    assert "the-value" not in repr(made)
    assert "dGhl" not in repr(made)
    assert "the-value" not in repr(read(encode_job(made)))
    with pytest.raises(LocalProtocolError) as told:
        encode_job(Job(("sh",), "/", {"TOKEN": "\udc80the-value"}))
    assert "the-value" not in str(told.value)


def test_its_path_is_the_capsules_without_our_own_programs() -> None:
    found = read(
        encode_job(Job(("x",), "/", {"A": "new"})),
        {b"PATH": b"/jackin/bin:/opt/bin:/usr/bin", b"A": b"old", b"B": b"kept"},
    )
    assert found.env == {b"PATH": b"/opt/bin:/usr/bin", b"A": b"new", b"B": b"kept"}


def test_a_program_is_found_as_execvp_would(short_tmp: Path) -> None:
    for name, mode in (("a", 0o644), ("b", 0o755)):
        (short_tmp / name).mkdir()
        (short_tmp / name / "tool").touch(mode=mode)
        (short_tmp / name / "tool").chmod(mode)
    path = f"{short_tmp}/none:{short_tmp}/a:{short_tmp}/b".encode()
    base = {b"PATH": path}
    assert read(encode_job(Job(("tool",), "/", {})), base).program() == (
        os.fsencode(short_tmp / "b" / "tool")
    )
    assert read(encode_job(Job(("./x",), "/", {})), base).program() == b"./x"
    for name, code in (("missing", errno.ENOENT), ("only-a", errno.EACCES)):
        (short_tmp / "a" / "only-a").touch(mode=0o644)
        with pytest.raises(OSError) as told:
            read(encode_job(Job((name,), "/", {})), base).program()
        # root may execute nothing that has no execute bit either
        assert told.value.errno == code


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"InitReady","protocol":2,"isolation":"none"}',
        b'{"type":"InitReady","protocol":1,"isolation":"perfect"}',
        b'{"type":"ExecCommand","protocol":1,"command":"x"}',
        b"{",
    ],
)
def test_what_no_init_of_ours_says_is_refused(body: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_from_init(body)


def test_what_init_says_is_understood() -> None:
    frame = wire.message("InitReady", protocol=wire.PROTOCOL, isolation="uid")
    assert decode_from_init(frame[4:]) == InitReady(1, Isolation.UID)
