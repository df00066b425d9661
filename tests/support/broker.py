"""A real broker: the installed `jackin-broker serve`, in directories of its own.

Everything is asked of it through the installed command line, as an operator would. It refuses to
know the broker's insides. It is ended by its process id; what it wrote to stderr is kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .real import (
    END_GRACE_S,
    SEARCH_PATH,
    end_process,
    is_running,
    short_directory,
    wait_until,
)

# The programs of the package under test, beside the interpreter that runs the tests.
PROGRAMS: Final = Path(sys.executable).parent
# A command line answers in well under a second; a loaded machine gets more.
COMMAND_LIMIT_S: Final = 30.0


def program(name: str) -> str:
    """The path of an installed console script."""
    path = PROGRAMS / name
    assert path.exists(), f"{name} is not installed beside {sys.executable}: pip install -e ."
    return str(path)


class Broker:
    """A broker with its configuration, state and runtime directories under `folder`.

    `prefix` is an argv that runs a program as somebody else, to whom `folder` belongs then.
    """

    def __init__(
        self, folder: Path, config: str, env: dict[str, str], prefix: Sequence[str] = ()
    ) -> None:
        self.prefix: Final = tuple(prefix)
        self.folder: Final = folder
        self.config_file: Final = folder / "config" / "jackin-exec" / "config.toml"
        self.state_dir: Final = folder / "state" / "jackin-exec"
        self.runtime_dir: Final = folder / "run" / "jackin-exec"
        self.env: Final = {
            "PATH": f"{PROGRAMS}:{SEARCH_PATH}",
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            **env,
        }
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("home", "config", "state", "data", "cache", "run"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        # A second uid passes through the runtime directory to its capsule's socket.
        (folder / "run").chmod(0o711)
        self.config_file.parent.mkdir(mode=0o700)
        self.write_config(config)

    @property
    def pid(self) -> int:
        """The broker's process id."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def stderr(self) -> str:
        """What `serve` wrote to its stderr so far."""
        return (self.folder / "serve.err").read_text(errors="replace")

    @property
    def audit_file(self) -> Path:
        """The record, one JSON object a line."""
        return self.state_dir / "audit.jsonl"

    def write_config(self, text: str) -> None:
        """Put a configuration in place, private as the broker demands."""
        self.config_file.touch(mode=0o600)
        self.config_file.write_text(text)

    def start(self) -> None:
        """Run `serve` and return when it answers.

        Raises: AssertionError with its stderr, where it ends instead.
        """
        with (self.folder / "serve.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [*self.prefix, program("jackin-broker"), "serve"],
                env=self.env,
                cwd=self.folder / "home",
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        wait_until(self._answers, "the broker answers `status`")

    def run(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One `jackin-broker …` command, ended, its output held."""
        return subprocess.run(
            [*self.prefix, program("jackin-broker"), *argv],
            env=self.env,
            cwd=self.folder / "home",
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
        )

    def ask(self, *argv: str) -> Any:
        """What `jackin-broker … --json` prints, decoded."""
        done = self.run(*argv, "--json")
        assert done.returncode == 0, f"{argv}: {done.stderr}{self.stderr}"
        return json.loads(done.stdout)

    def socket_of(self, capsule: str) -> str:
        """The socket that this capsule calls."""
        for known in self.ask("status")["capsules"]:
            if known["name"] == capsule:
                return str(known["socket"])
        raise AssertionError(f"the broker serves no capsule {capsule}")

    def requests(self) -> list[dict[str, Any]]:
        """The requests on the desk, as `requests --json` has them."""
        return list(self.ask("requests"))

    def wait_for_request(self, *, count: int = 1) -> dict[str, Any]:
        """The oldest request, once `count` wait."""
        seen: list[dict[str, Any]] = []

        def enough() -> bool:
            seen[:] = [one for one in self.requests() if one["state"] == "waiting"]
            return len(seen) >= count

        wait_until(enough, f"{count} request(s) wait on the desk")
        return seen[0]

    def approve(self, request_id: str, *bindings: str) -> None:
        """Say yes, with these bindings ticked."""
        ticks = ["--with", ",".join(bindings)] if bindings else []
        done = self.run("decide", request_id, "--approve", *ticks)
        assert done.returncode == 0, done.stderr

    def deny(self, request_id: str) -> None:
        """Say no."""
        done = self.run("decide", request_id, "--deny")
        assert done.returncode == 0, done.stderr

    def audit(self) -> list[dict[str, Any]]:
        """The record's lines so far."""
        if not self.audit_file.exists():
            return []
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]

    def stop(self) -> int:
        """Ask it to stop (SIGTERM) and wait; its exit status."""
        assert self._process is not None, "the broker was not started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(END_GRACE_S * 2)

    def kill(self) -> None:
        """End it as a crash would: SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not is_running(self.pid), "the broker is gone")
        assert self._process is not None
        self._process.wait(END_GRACE_S)

    def end(self) -> None:
        """End it on the way out, however it stands."""
        if self._process is not None:
            end_process(self._process)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the broker ended at once: {self.stderr}")
        return self.run("status").returncode == 0


@contextmanager
def broker(config: str, *, env: dict[str, str] | None = None) -> Generator[Broker]:
    """A running broker with this configuration, ended on the way out."""
    with short_directory(0o711) as folder:
        made = Broker(folder, config, env or {})
        try:
            made.start()
            yield made
        finally:
            made.end()
