"""An operator's program that is stopped (Ctrl-Z in front of it) and reads nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Final

from support.broker import broker, program
from support.raw_request import RawRequest
from support.real import end_process, wait_until

CONFIG: Final = """schema = 1
[broker]
no_operator = "wait"
[capsules.web]
kind = "none"
host_binaries = ["true"]
"""
# What a socket holds that nobody reads is a quarter of a megabyte.
ARGUMENT_BYTES: Final = 200_000
REQUESTS: Final = 4


def test_a_broker_ends_though_an_operators_program_does_not_read_its_last_words() -> None:
    with broker(CONFIG) as served:
        follow = subprocess.Popen(
            [program("jackin-broker"), "requests", "--follow"],
            env=served.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        requests: list[RawRequest] = []
        try:
            wait_until(lambda: served.ask("status")["operators"] == 1, "it is attached")
            os.kill(follow.pid, signal.SIGSTOP)
            path = served.socket_of("web")
            for _ in range(REQUESTS):
                requests.append(RawRequest(path, "true", "x" * ARGUMENT_BYTES))
            served.wait_for_request(count=REQUESTS)
            assert served.stop() == 0
        finally:
            for one in requests:
                one.close()
            follow.kill()
            end_process(follow)
