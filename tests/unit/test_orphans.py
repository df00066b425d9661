"""What a source leaves in the background becomes the broker's child, and is reaped when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.real import START_LIMIT_S

# A broker in a process of its own: it becomes a subreaper for good. It says that an orphan
# is there, which ends soon, and then that the kernel lists it no more.
PROGRAM: Final = """
import asyncio, os, subprocess
from jackin_broker import daemon, orphans

async def main():
    ready = asyncio.Event()
    serving = asyncio.create_task(daemon.run(os.environ, announce=lambda _: ready.set()))
    await ready.wait()
    made = subprocess.run(["/bin/sh", "-c", "sleep 0.2 >&2 & echo $!"], stdout=subprocess.PIPE)
    orphan = f"/proc/{int(made.stdout)}"
    print(os.path.exists(orphan), flush=True)
    while os.path.exists(orphan):
        await asyncio.sleep(0.01)
    print("reaped", flush=True)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

orphans.LOOK_INTERVAL_S = 0.1
asyncio.run(main())
"""


def test_an_orphan_that_ended_is_reaped(private_home: Path) -> None:
    """One for each call of such a source: some day no process could be made."""
    config = private_home / "config" / "jackin-exec" / "config.toml"
    config.parent.mkdir(mode=0o700)
    config.touch(mode=0o600)
    config.write_text("schema = 1\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=3 * START_LIMIT_S,
    )
    assert done.stdout.split() == ["True", "reaped"], done.stderr
