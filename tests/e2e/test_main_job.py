"""The main job, end to end: a real capsule of another uid, keyring, database, git server, picker.

The agent asks, the operator answers on a terminal, the command gets the credential, and nobody
else does. Whatever goes wrong before the command starts runs nothing and has a code of its own.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.broker import PROGRAMS, Broker, broker
from support.capsule import Agent, Call, Ended, launched, places_of
from support.git_http import GitServer, git_server
from support.picker import Picker, picker
from support.postgres import Postgres, postgres
from support.real import (
    SEARCH_PATH,
    is_running,
    remove_tree,
    require_bwrap,
    require_root,
    short_directory,
    wait_until,
)
from support.second_uid import unused_uid
from support.secret_service import SecretService, secret_service

CONFIG: Final = """\
schema = 1

[broker]
keyring = "secret-service"
no_operator = "{no_operator}"

[env]
PGPASSWORD = {{ keyring = "database", username = "operator", on_demand = true }}
GIT_PASSWORD = {{ keyring = "git", username = "agent", on_demand = true }}
ABSENT_KEY = {{ keyring = "nothing of that name", on_demand = true }}

[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = ["psql", "git", "proof"]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]

[limits]
approve_s = {approve_s}
"""
# A host binary whose one effect shows that something ran.
PROOF: Final = "#!/bin/sh\necho ran > proof-of-running\n"
PROOF_FILE: Final = "proof-of-running"
# STYLE and DESIGN §7: the desk remembers an operator for ten seconds.
NO_OPERATOR_LIMIT_S: Final = 30.0


@dataclass(frozen=True)
class Stage:
    """All the real parts, running."""

    broker: Broker
    agent: Agent
    keyring: SecretService
    database: Postgres
    remote: GitServer
    project: Path
    binaries: Path
    uid: int

    def configure(self, *, approve_s: float = 300, no_operator: str = "wait") -> None:
        """Change the broker's configuration while it runs."""
        self.broker.write_config(
            CONFIG.format(
                uid=self.uid, project=self.project, approve_s=approve_s, no_operator=no_operator
            )
        )
        done = self.broker.run("reload")
        assert done.returncode == 0, done.stderr

    @property
    def values(self) -> tuple[str, str]:
        """The two credentials."""
        return self.database.password, self.remote.password

    def ask(self, *argv: str, want: str = "", stdin: bytes | None = None) -> Call:
        """Have the agent ask for a command by way of `jackin-exec`."""
        wanted = ["--want", want] if want else []
        return self.agent.start("jackin-exec", *wanted, "--", *argv, stdin=stdin)

    @property
    def has_run(self) -> bool:
        """Whether `proof` left its mark."""
        return (self.project / PROOF_FILE).exists()


@contextmanager
def trusted_directory() -> Generator[Path]:
    """A directory that only root can write, outside /tmp, which a confined command cannot see."""
    path = Path(tempfile.mkdtemp(prefix="jx", dir="/srv"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        remove_tree(path)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require_root()
    require_bwrap()
    with ExitStack() as parts:
        keyring = parts.enter_context(secret_service())
        database = parts.enter_context(postgres())
        remote = parts.enter_context(git_server())
        project = parts.enter_context(short_directory(0o777))
        binaries = parts.enter_context(trusted_directory())
        keyring.store("database", "operator", database.password)
        keyring.store("git", "agent", remote.password)
        write_proof(binaries)
        uid = unused_uid()
        env = {
            "PATH": f"{binaries}:{PROGRAMS}:{SEARCH_PATH}",
            "DBUS_SESSION_BUS_ADDRESS": keyring.env["DBUS_SESSION_BUS_ADDRESS"],
        }
        text = CONFIG.format(uid=uid, project=project, approve_s=300, no_operator="wait")
        served = parts.enter_context(broker(text, env=env))
        options = ("--runtime", "bwrap", "--name", "web", "--uid", str(uid))
        agent = parts.enter_context(launched(served, *options))
        yield Stage(served, agent, keyring, database, remote, project, binaries, uid)


def write_proof(binaries: Path, *, more: str = "") -> None:
    """Put `proof` in place as an installer does: a new file, moved over the old one."""
    fresh = binaries / "proof.new"
    fresh.write_text(PROOF + more)
    fresh.chmod(0o755)
    fresh.rename(binaries / "proof")


@pytest.fixture
def operator(stage: Stage) -> Iterator[Picker]:
    """A picker, attached, with an empty desk before and after."""
    (stage.project / PROOF_FILE).unlink(missing_ok=True)
    with picker(stage.broker) as attached:
        attached.wait_until(
            lambda: stage.broker.ask("status")["operators"] == 1, "the picker attaches"
        )
        yield attached
    for waiting in stage.broker.requests():
        stage.broker.run("decide", waiting["id"], "--deny")


def query(stage: Stage, *more: str) -> list[str]:
    """The argv of psql as an agent would write it."""
    _, *rest = stage.database.psql("select 6 * 7")
    return ["psql", *rest, *more]


def assert_denied(stage: Stage, ended: Ended, code: str) -> None:
    """Nothing ran: one error line with the code, one hint line, status 126, and it is on record."""
    assert not stage.has_run
    lines = ended.stderr.decode().splitlines()
    errors = [line for line in lines if line.startswith("jackin-exec: error: ")]
    hints = [line for line in lines if line.startswith("jackin-exec: hint: ")]
    assert ended.status == 126, ended
    assert len(errors) == 1
    assert f"({code})" in errors[0]
    assert len(hints) == 1
    assert ended.stdout == b""
    if code != "audit_failed":
        assert stage.broker.audit()[-1]["code"] == code


# --- it works -----------------------------------------------------------------------------


def test_the_agent_queries_the_database_with_a_password_that_it_never_sees(
    stage: Stage, operator: Picker
) -> None:
    call = stage.ask(*query(stage), want="PGPASSWORD")
    operator.approve("psql", "PGPASSWORD")
    ended = call.wait()
    assert ended.stdout == b"42\n", ended.stderr
    assert ended.status == 0


def test_the_agent_clones_over_http_with_a_password_that_it_never_sees(
    stage: Stage, operator: Picker
) -> None:
    _, *rest = stage.remote.clone("clone", variable="GIT_PASSWORD")
    call = stage.ask("git", *rest, want="GIT_PASSWORD")
    operator.approve("git", "GIT_PASSWORD")
    ended = call.wait()
    assert ended.status == 0, ended.stderr
    assert (stage.project / "clone" / "README").read_text() == "cloned over HTTP\n"
    assert "200 POST" in stage.remote.requests()[-1]


def test_the_value_comes_back_as_a_marker_that_names_its_binding(
    stage: Stage, operator: Picker
) -> None:
    script = b"\\getenv lent PGPASSWORD\nselect 'lent: ' || :'lent' || '.';\n"
    _, *rest = stage.database.psql("")
    call = stage.ask("psql", *rest[:-2], "-f", "-", want="PGPASSWORD", stdin=script)
    operator.approve("psql", "PGPASSWORD")
    ended = call.wait()
    assert ended.stdout == b"lent: [redacted:PGPASSWORD].\n", ended.stderr


def test_only_what_was_ticked_is_lent(stage: Stage, operator: Picker) -> None:
    call = stage.ask(*query(stage), want="PGPASSWORD")
    operator.approve("psql", "GIT_PASSWORD")
    ended = call.wait()
    assert ended.status == 2
    assert b"password" in ended.stderr


# --- and nobody else has it ---------------------------------------------------------------


def host_command_lines() -> dict[str, bytes]:
    """Every argv on the machine, whoever runs it."""
    found: dict[str, bytes] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[str(folder / "cmdline")] = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
    return found


def operator_files(stage: Stage) -> dict[str, bytes]:
    """Everything that the broker and the launch wrote: audit, log, configuration, output."""
    paths = [path for path in stage.broker.folder.rglob("*") if path.is_file()]
    assert stage.broker.audit_file in paths
    return {str(path): path.read_bytes() for path in paths}


def holders_of(value: str) -> set[int]:
    """The processes that have the value in their environment, as root sees them."""
    pids: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile
        if value.encode() in environ:
            pids.add(int(folder.name))
    return pids


def test_while_it_runs_the_value_is_in_the_command_and_nowhere_else(
    stage: Stage, operator: Picker
) -> None:
    _, *rest = stage.database.psql("select pg_sleep(4)")
    call = stage.ask("psql", *rest, want="PGPASSWORD")
    operator.approve("psql", "PGPASSWORD")
    value = stage.database.password
    wait_until(lambda: bool(holders_of(value)), "the command has the value")
    holders = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in holders_of(value)}
    assert "psql" in holders
    argvs, seen = host_command_lines(), stage.agent.look()
    assert places_of("pg_sleep", argvs)
    assert places_of("pg_sleep", seen), "the agent sees its own call"
    assert places_of(value, argvs) == []
    assert places_of(value, seen) == []
    assert call.wait().status == 0
    assert holders_of(value) == set()


def test_afterwards_no_output_log_record_or_visible_file_has_it(
    stage: Stage, operator: Picker
) -> None:
    clone = ["git", *stage.remote.clone("kept", variable="GIT_PASSWORD")[1:]]
    for argv, name in ((query(stage), "PGPASSWORD"), (clone, "GIT_PASSWORD")):
        call = stage.ask(*argv, want=name)
        operator.approve(argv[0], name)
        ended = call.wait()
        assert ended.status == 0, ended.stderr
        for value in stage.values:
            assert value.encode() not in ended.stdout + ended.stderr
    seen, kept = stage.agent.look(), operator_files(stage)
    assert places_of("cloned over HTTP", seen)
    assert places_of("GIT_PASSWORD", kept)
    for value in stage.values:
        assert places_of(value, seen) == []
        assert places_of(value, kept) == []
        assert value.encode() not in operator.written
    assert "PGPASSWORD" in stage.broker.audit_file.read_text()
    assert stage.broker.run("audit", "verify").returncode == 0


# --- nothing runs -------------------------------------------------------------------------


def test_escape_denies(stage: Stage, operator: Picker) -> None:
    call = stage.ask("proof")
    operator.wait_ready("proof")
    operator.press("escape")
    assert_denied(stage, call.wait(), "operator_denied")


def test_an_unanswered_request_expires(stage: Stage, operator: Picker) -> None:
    stage.configure(approve_s=1.5)
    try:
        call = stage.ask("proof")
        operator.wait_for("proof")
        assert_denied(stage, call.wait(), "expired")
    finally:
        stage.configure()


def test_a_killed_picker_approves_nothing(stage: Stage, operator: Picker) -> None:
    stage.configure(no_operator="deny")
    try:
        call = stage.ask("proof")
        operator.wait_ready("proof")
        os.kill(operator.pid, signal.SIGKILL)
        assert_denied(stage, call.wait(NO_OPERATOR_LIMIT_S), "no_operator")
    finally:
        stage.configure()


def test_a_killed_caller_closes_the_prompt(stage: Stage, operator: Picker) -> None:
    call = stage.ask("proof")
    operator.wait_ready("proof")
    call.kill()
    operator.wait_gone("asks to run", limit_s=5)
    assert call.wait().status == -signal.SIGKILL
    assert not stage.has_run
    assert stage.broker.requests() == []
    assert stage.broker.audit()[-1]["code"] == "caller_gone"


def test_a_source_without_the_value_runs_nothing(stage: Stage, operator: Picker) -> None:
    call = stage.ask("proof")
    operator.approve("proof", "ABSENT_KEY")
    assert_denied(stage, call.wait(), "source_failed")


def test_a_locked_keyring_runs_nothing_and_hangs_nothing(stage: Stage, operator: Picker) -> None:
    stage.keyring.lock()
    try:
        call = stage.ask("proof")
        operator.approve("proof", "PGPASSWORD")
        assert_denied(stage, call.wait(), "source_locked")
    finally:
        stage.keyring.unlock()


def test_a_record_that_cannot_be_written_runs_nothing(stage: Stage, operator: Picker) -> None:
    call = stage.ask("proof")
    operator.wait_ready("proof")
    pid, size = stage.broker.pid, stage.broker.audit_file.stat().st_size
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        operator.approve("proof")
        assert_denied(stage, call.wait(), "audit_failed")
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    assert stage.broker.run("audit", "verify").returncode == 0


def test_a_binary_that_is_swapped_while_the_operator_reads_runs_nothing(
    stage: Stage, operator: Picker
) -> None:
    call = stage.ask("proof")
    operator.wait_ready("proof")
    write_proof(stage.binaries, more="echo and something else\n")
    operator.approve("proof")
    assert_denied(stage, call.wait(), "changed_since_approval")
    stage.configure()


def test_after_all_that_a_plain_yes_runs_it(stage: Stage, operator: Picker) -> None:
    call = stage.ask("proof")
    operator.approve("proof")
    ended = call.wait()
    assert ended.status == 0, ended.stderr
    assert stage.has_run
    assert is_running(stage.broker.pid)
