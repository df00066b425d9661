"""DESIGN §6, §7: the operator sees what the command will read: nothing, exactly this, or live.

And it reads nothing else. That the wire and the rules hold it is in test_wire_abuse.py and
test_policy.py.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from jackin_broker.operator_protocol import STDIN_PREVIEW_MAX_BYTES
from jackin_broker.protocol import CLOSED_STDIN_MAX_BYTES
from support.agent import finish
from support.allowed import Allowed, allowed


@pytest.fixture(scope="module")
def made() -> Generator[Allowed]:
    with allowed("true", asked=["sha256sum"]) as running:
        yield running


def seen(made: Allowed, stdin: int, data: bytes = b"") -> tuple[dict[str, Any], str]:
    """What the operator is shown of stdin, and the digest of what the command then reads."""
    with made.agent.running("sha256sum", stdin=stdin) as child:
        if child.stdin is not None and data:
            child.stdin.write(data)
            child.stdin.close()
            child.stdin = None
        request = made.broker.wait_for_request()
        made.broker.approve(request["id"])
        done = finish(child)
    return request["stdin"], done.stdout.decode().split()[0]


def test_no_stdin_is_shown_as_none(made: Allowed) -> None:
    view, digest = seen(made, subprocess.DEVNULL)
    assert view["kind"] == "none"
    assert digest == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("size", [1, STDIN_PREVIEW_MAX_BYTES + 1, CLOSED_STDIN_MAX_BYTES])
def test_a_stdin_that_has_ended_is_shown_whole_by_size_digest_and_beginning(
    made: Allowed, size: int
) -> None:
    data = secrets.token_bytes(size)
    with open(os.memfd_create("stdin"), "w+b") as file:
        file.write(data)
        file.seek(0)
        view, digest = seen(made, file.fileno())
    assert view["kind"] == "closed"
    assert view["size_bytes"] == size
    assert base64.b64decode(view["preview"]) == data[:STDIN_PREVIEW_MAX_BYTES]
    assert view["sha256"] == digest == hashlib.sha256(data).hexdigest()


def test_what_goes_on_is_shown_as_live(made: Allowed) -> None:
    """More than can be shown, so nobody saw it: that is what live means."""
    with open(os.memfd_create("stdin"), "w+b") as file:
        file.write(bytes(CLOSED_STDIN_MAX_BYTES + 1))
        file.seek(0)
        view, digest = seen(made, file.fileno())
    assert view["kind"] == "live"
    assert digest == hashlib.sha256(bytes(CLOSED_STDIN_MAX_BYTES + 1)).hexdigest()
