"""DESIGN §8: a credential in the shape that a real program can use, from a real capsule.

The agent is in a bubblewrap capsule of another uid and calls `jackin-exec`; the commands run
confined, without a terminal of the caller's, on real servers and files.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.lending import Lender, lender, scratch_of
from support.postgres import Postgres, postgres
from support.real import START_LIMIT_S, require_program
from support.ssh_server import REPOSITORY, SshServer, ssh_server

ENTRIES = {
    "SSH_KEY": 'deliver = "ssh-agent", passphrase = "SSH_PASS"',
    "PLAIN_SSH_KEY": "",  # its name makes it a file
    "LOCKED_SSH_KEY": 'deliver_as = "KEY_PATH"',
    "SSH_PASS": 'deliver = "prompt", prompt = "[Pp]assphrase for key .*: ?$"',
    "DB_PASS": 'deliver = "prompt", prompt = "[Pp]assword.*: ?$"',
    "PIPED": 'deliver = "stdin"',
    "RESTIC_PASSWORD": 'deliver = "file"',
    "GPG_PASS": 'deliver = "file"',
}
BINARIES = ("ssh", "sh", "git", "psql", "openssl", "gpg", "restic", "cat")
MORE = """
[capsules.web.binaries.git]
env = { GIT_SSH_COMMAND = "ssh -F none -o UserKnownHostsFile=known_hosts" }
"""


@dataclass(frozen=True)
class Stage:
    """The lender and the servers that its credentials open."""

    lender: Lender
    ssh: SshServer
    database: Postgres

    @property
    def project(self) -> Path:
        return self.lender.project


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with ExitStack() as parts:
        ssh = parts.enter_context(ssh_server())
        database = parts.enter_context(postgres())
        values = {
            "SSH_KEY": ssh.key,
            "PLAIN_SSH_KEY": ssh.plain_key,
            "LOCKED_SSH_KEY": ssh.key,
            "SSH_PASS": ssh.passphrase,
            "DB_PASS": database.password,
            **{name: "tok" + secrets.token_hex(12) for name in list(ENTRIES)[5:]},
        }
        made = parts.enter_context(lender(BINARIES, ENTRIES, values, more=MORE))
        (made.project / "known_hosts").write_text(ssh.known_hosts)
        yield Stage(made, ssh, database)


@pytest.fixture(autouse=True)
def nothing_is_left(stage: Stage) -> Iterator[None]:
    """Whatever a test did, no value is in what the agent can read and no file stays behind."""
    yield
    assert scratch_of(stage.lender.broker) == []


def run(*argv: str, cwd: Path, stdin: bytes = b"") -> bytes:
    """A program of the operator's, which must succeed."""
    done = subprocess.run(
        argv, cwd=cwd, input=stdin, capture_output=True, timeout=2 * START_LIMIT_S
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


# --- ssh-agent ------------------------------------------------------------------------------


def test_ssh_logs_in_with_a_protected_key_in_its_own_agent(stage: Stage) -> None:
    """Only the key is ticked; what opens it comes from the binding that it names."""
    done = stage.lender.lend(*stage.ssh.argv("id", "-un"), ticked=["SSH_KEY"])
    assert (done.status, done.stdout) == (0, f"{stage.ssh.user}\n".encode()), done.stderr
    started = stage.lender.newest("started")
    assert started["ssh_keys"] == [stage.ssh.fingerprint]
    assert stage.lender.newest("decided")["bindings"] == ["SSH_KEY"]


def test_git_pushes_over_ssh(stage: Stage) -> None:
    git = require_program("git", package="git")
    author = ("-c", "user.name=agent", "-c", "user.email=agent@localhost")
    run(git, "init", "-q", "-b", "main", ".", cwd=stage.project)
    run(git, *author, "commit", "-q", "--allow-empty", "-m", "first", cwd=stage.project)
    where = f"ssh://{stage.ssh.user}@{stage.ssh.host}:{stage.ssh.port}"
    url = f"{where}{stage.ssh.folder / REPOSITORY}"
    done = stage.lender.lend("git", "push", "-q", url, "main", ticked=["SSH_KEY"])
    assert done.status == 0, done.stderr
    heads = (stage.ssh.folder / REPOSITORY / "refs" / "heads" / "main").read_bytes()
    assert heads.strip() == run(git, "rev-parse", "HEAD", cwd=stage.project).strip()


def test_the_agent_signs_and_does_nothing_else(stage: Stage) -> None:
    """The key does not leave it, and nothing can be added to, taken from or asked of it."""
    script = "ssh-add -l && ! ssh-add -D && ! ssh-add -x </dev/null && ssh-add -l"
    done = stage.lender.lend("sh", "-c", script, ticked=["SSH_KEY"])
    fingerprint = stage.ssh.fingerprint.encode()
    assert done.status == 0, done.stderr
    assert done.stdout.count(fingerprint) == 2


def test_an_agent_is_not_passed_on_to_another_host(stage: Stage) -> None:
    """`ssh -A` logs in, and over there the agent answers nothing."""
    argv = stage.ssh.argv('ssh-add -l; test -n "$SSH_AUTH_SOCK"', options=("-A",))
    done = stage.lender.lend(*argv, ticked=["SSH_KEY"])
    assert done.status == 0, done.stderr
    assert stage.ssh.fingerprint.encode() not in done.stdout


def test_without_the_tick_there_is_no_agent(stage: Stage) -> None:
    done = stage.lender.lend(*stage.ssh.argv("true", options=("-o", "BatchMode=yes")))
    assert done.status == 255
    assert b"Permission denied (publickey)" in done.stderr


# --- file -----------------------------------------------------------------------------------


def test_ssh_logs_in_with_a_key_file(stage: Stage) -> None:
    """consul#5964: a bare descriptor is closed by ssh; a private file is what it takes."""
    argv = stage.ssh.argv("id", "-un", options=("-i", "/run/jackin/PLAIN_SSH_KEY"))
    done = stage.lender.lend(*argv, ticked=["PLAIN_SSH_KEY"])
    assert (done.status, done.stdout) == (0, f"{stage.ssh.user}\n".encode()), done.stderr


def test_a_variable_names_the_file_which_only_this_command_can_read(stage: Stage) -> None:
    script = 'stat -c "%n %a" "$PLAIN_SSH_KEY_FILE" /run/jackin; tail -n 1 "$PLAIN_SSH_KEY_FILE"'
    done = stage.lender.lend("sh", "-c", script, ticked=["PLAIN_SSH_KEY"])
    assert done.status == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["/run/jackin/PLAIN_SSH_KEY 600", "/run/jackin 700"]
    assert lines[2] == "-----END OPENSSH PRIVATE KEY-----"


def test_gpg_decrypts_with_a_passphrase_file(stage: Stage) -> None:
    gpg = require_program("gpg", package="gnupg")
    value = stage.lender.values["GPG_PASS"]
    loopback = ("--batch", "--pinentry-mode", "loopback")
    sealed = run(
        *(gpg, "--homedir", str(stage.lender.broker.folder / "home"), *loopback),
        *("--passphrase", value, "--symmetric", "--output", "-"),
        cwd=stage.project,
        stdin=b"sealed words\n",
    )
    (stage.project / "sealed.gpg").write_bytes(sealed)
    how = ("--passphrase-file", "/run/jackin/GPG_PASS")
    argv = ("gpg", *loopback, *how, "--decrypt", "sealed.gpg")
    done = stage.lender.lend(*argv, ticked=["GPG_PASS"])
    assert (done.status, done.stdout) == (0, b"sealed words\n"), done.stderr


def test_restic_reads_its_password_file(stage: Stage) -> None:
    """`RESTIC_PASSWORD` by file is `RESTIC_PASSWORD_FILE`, the variable that restic knows."""
    restic = require_program("restic", package="restic")
    (stage.project / "password").write_text(stage.lender.values["RESTIC_PASSWORD"])
    run(
        *(restic, "init", "-q", "--repo", "backups", "--password-file", "password", "--no-cache"),
        cwd=stage.project,
    )
    (stage.project / "password").unlink()
    argv = ("restic", "--no-cache", "--repo", "backups", "cat", "config")
    done = stage.lender.lend(*argv, ticked=["RESTIC_PASSWORD"])
    assert done.status == 0, done.stderr
    assert b'"chunker_polynomial"' in done.stdout


# --- stdin ----------------------------------------------------------------------------------


def test_a_login_reads_its_password_from_stdin(stage: Stage) -> None:
    """What `--password-stdin` options do; openssl is one that is everywhere."""
    openssl = require_program("openssl", package="openssl")
    value = stage.lender.values["PIPED"]
    out = stage.project / "locked.pem"
    made = ("genpkey", "-algorithm", "ed25519", "-aes-256-cbc", "-pass", "stdin")
    run(openssl, *made, "-out", str(out), cwd=stage.project, stdin=value.encode())
    argv = ("openssl", "pkey", "-in", "locked.pem", "-passin", "stdin", "-noout", "-text_pub")
    done = stage.lender.lend(*argv, ticked=["PIPED"])
    assert done.status == 0, done.stderr
    assert b"ED25519 Public-Key" in done.stdout


def test_stdin_holds_the_value_to_the_byte_and_then_ends(stage: Stage) -> None:
    done = stage.lender.lend("sh", "-c", "wc -c; cat; echo end", ticked=["PIPED"])
    size = len(stage.lender.values["PIPED"])
    assert (done.status, done.stdout) == (0, b"%d\nend\n" % size)
    done = stage.lender.lend("cat", ticked=["PIPED"])
    assert done.stdout == b"[redacted:PIPED]"


def test_a_stdin_of_the_agents_own_is_a_clear_refusal(stage: Stage) -> None:
    done = stage.lender.lend("cat", ticked=["PIPED"], stdin=b"mine")
    assert done.status == 126
    assert b"the agent gave the command a stdin of its own" in done.stderr
    assert b"</dev/null" in done.stderr
    assert stage.lender.newest("refused")["code"] == "source_failed"


# --- prompt ---------------------------------------------------------------------------------


def test_psql_asks_and_is_answered_without_a_terminal_of_the_callers(stage: Stage) -> None:
    """The command gets a terminal of its own, whose newlines are plain."""
    data = stage.database
    where = ("-h", data.host, "-p", str(data.port), "-U", data.user, "-d", data.database)
    argv = ("psql", "-X", "-W", *where, "-At", "-c", "select 40 + 2")
    done = stage.lender.lend(*argv, ticked=["DB_PASS"])
    assert (done.status, done.stdout.splitlines()[-1:]) == (0, [b"42"]), done
    assert b"\r\n42" not in done.stdout
    assert stage.lender.newest("ended")["typed"] == ["DB_PASS"]


def test_a_protected_key_file_is_opened_by_its_prompt(stage: Stage) -> None:
    """Several at once: the key by file, its passphrase typed."""
    argv = stage.ssh.argv("id", "-un", options=("-i", "/run/jackin/LOCKED_SSH_KEY"))
    done = stage.lender.lend(*argv, ticked=["LOCKED_SSH_KEY", "SSH_PASS"])
    assert done.status == 0, done
    assert f"\n{stage.ssh.user}\n".encode() in done.stdout
    assert stage.lender.newest("ended")["typed"] == ["SSH_PASS"]


@pytest.mark.parametrize("terminal", ["-tt", "-T"])
def test_a_question_on_another_host_gets_nothing_typed(stage: Stage, terminal: str) -> None:
    """It is asked through ssh, but not by it: raw mode there, an echo here."""
    remote = 'stty -echo 2>/dev/null; printf "Password: "; read -t 1 -r x; echo "got [$x]"'
    argv = stage.ssh.argv(remote, options=(terminal,))
    done = stage.lender.lend(*argv, ticked=["SSH_KEY", "DB_PASS"])
    assert b"got []" in done.stdout, done
    assert "typed" not in stage.lender.newest("ended")


def test_a_program_of_the_projects_that_asks_gets_nothing_typed(stage: Stage) -> None:
    """The pinned program runs it, or becomes it, and it is not the pinned program."""
    thief = stage.project / "thief"
    thief.write_text(
        '#!/bin/bash\nstty -echo\nprintf "Password: "\nread -t 1 -r x </dev/tty\necho "got [$x]"\n'
    )
    thief.chmod(0o755)
    for script in ("./thief; true", "exec ./thief"):
        done = stage.lender.lend("sh", "-c", script, ticked=["DB_PASS"])
        assert b"got []" in done.stdout, done
        assert "typed" not in stage.lender.newest("ended")
