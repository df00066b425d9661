"""A real Secret Service: gnome-keyring-daemon on a D-Bus of its own, with a HOME of its own.

The bus has no service directories, so nothing is started behind a test's back: no other keyring,
and no prompter that would ask somebody for a password. It refuses to know what is stored.
Both daemons are ended by their process ids.
"""

from __future__ import annotations

import importlib
import json
import secrets
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .real import (
    SEARCH_PATH,
    START_LIMIT_S,
    end_process,
    first_line,
    require_program,
    short_directory,
    wait_until,
)

# jeepney comes with keyring and has no types: named Any once, here.
_jeepney: Any = importlib.import_module("jeepney.io.blocking")
_bus_calls: Any = importlib.import_module("jeepney.bus_messages").message_bus

_BUS_CONFIG: Final = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""
# The value comes on stdin: an argv is read by everybody.
_STORE: Final = """
import sys
from keyring.backends.SecretService import Keyring
Keyring().set_password(sys.argv[1], sys.argv[2], sys.stdin.read())
"""
_READ: Final = """
import json
import sys
from keyring.backends.SecretService import Keyring
print(json.dumps(Keyring().get_password(sys.argv[1], sys.argv[2])))
"""
_SECRETS_NAME: Final = "org.freedesktop.secrets"
_PROMPTER_NAME: Final = "org.gnome.keyring.SystemPrompter"


class SecretService:
    """A keyring daemon under a bus of its own. `env` is what a client of it needs."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        self._password = "master" + secrets.token_hex(12)
        self._daemon: subprocess.Popen[bytes] | None = None
        self._prompter: Any = None
        self.env: Final = {
            "HOME": str(folder / "home"),
            "XDG_DATA_HOME": str(folder / "home" / "data"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "DBUS_SESSION_BUS_ADDRESS": address,
        }
        (folder / "home" / "data").mkdir(parents=True)
        (folder / "run").mkdir(mode=0o700)

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self._daemon is not None, "the daemon was stopped"
        return self._daemon.pid

    def store(self, service: str, username: str, value: str) -> None:
        """Put a value into the keyring as any program of the operator's would."""
        done = subprocess.run(
            [sys.executable, "-c", _STORE, service, username],
            env=self.env,
            input=value.encode(),
            capture_output=True,
            timeout=START_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def read(self, service: str, username: str) -> str | None:
        """What the keyring holds, as any program of the operator's reads it."""
        done = subprocess.run(
            [sys.executable, "-c", _READ, service, username],
            env=self.env,
            capture_output=True,
            timeout=START_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        value: str | None = json.loads(done.stdout)
        return value

    def unlock(self) -> None:
        """Run the daemon with its login collection open; made at the first time."""
        self._run("--unlock", self._password.encode())

    def lock(self) -> None:
        """Run the daemon with its login collection closed, and nobody there to open it."""
        self._run("--foreground", b"")

    def hang_prompts(self) -> None:
        """Be the desktop's prompter and never answer: an unlock now waits for ever."""
        self._prompter = _jeepney.open_dbus_connection(self._address)
        self._prompter.send_and_get_reply(_bus_calls.RequestName(_PROMPTER_NAME))

    def stop(self) -> None:
        """End the daemon and the prompter; the collection stays on disk."""
        if self._prompter is not None:
            self._prompter.close()
            self._prompter = None
        if self._daemon is not None:
            end_process(self._daemon)
            self._daemon = None
            self._wait_for_name(owned=False)

    def _run(self, how: str, typed: bytes) -> None:
        self.stop()
        program = require_program("gnome-keyring-daemon", package="gnome-keyring")
        self._daemon = subprocess.Popen(
            [program, "--foreground", "--components=secrets", how],
            env={"PATH": SEARCH_PATH, **self.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert self._daemon.stdin is not None
        self._daemon.stdin.write(typed)
        self._daemon.stdin.close()
        self._wait_for_name(owned=True)

    def _wait_for_name(self, *, owned: bool) -> None:
        with _jeepney.open_dbus_connection(self._address) as bus:

            def is_so() -> bool:
                reply = bus.send_and_get_reply(_bus_calls.NameHasOwner(_SECRETS_NAME))
                return bool(reply.body[0]) is owned

            wait_until(is_so, f"{_SECRETS_NAME} {'appears' if owned else 'leaves'} on the bus")


@contextmanager
def secret_service() -> Generator[SecretService]:
    """An unlocked, empty keyring daemon, ended on the way out."""
    program = require_program("dbus-daemon", package="dbus")
    require_program("gnome-keyring-daemon", package="gnome-keyring")
    with short_directory() as folder:
        config = folder / "bus.conf"
        config.write_text(_BUS_CONFIG.format(socket=folder / "bus"))
        bus = subprocess.Popen(
            [program, f"--config-file={config}", "--nofork", "--nopidfile", "--print-address"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            service = SecretService(folder, first_line(bus))
            try:
                service.unlock()
                yield service
            finally:
                service.stop()
        finally:
            end_process(bus)
