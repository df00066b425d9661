"""`launch`, as an operator uses it: the installed program, a real broker, real capsules."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from support.broker import Broker, broker, program
from support.namespaces import descendants_of
from support.real import (
    end_process,
    is_running,
    require_bwrap,
    require_root,
    short_directory,
    wait_until,
)
from support.second_uid import AGENT_UID
from support.terminal import Terminal, terminal

_LIMIT_S = 40


def _config(project: Path, uid: int) -> str:
    return f"""
schema = 1
[broker]
keyring = "vault"
no_operator = "deny"
[env]
LENT = {{ value = "lent-and-never-given", on_demand = true }}
GIVEN = "given-at-launch"
[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = ["true", "uname"]
mounts = [{{ capsule = "/workspaces/app", host = "{project}" }}]
[[rules]]
action = "allow"
capsule = "*"
argv = ["true"]
stdin = "live"
[[rules]]
action = "allow"
capsule = "*"
argv = ["uname", "..."]
stdin = "live"
"""


@pytest.fixture
def project() -> Iterator[Path]:
    """A project that the agent's uid owns."""
    require_root()
    with short_directory(0o755) as folder:
        os.chown(folder, AGENT_UID, AGENT_UID)
        yield folder


@pytest.fixture
def served(project: Path) -> Iterator[Broker]:
    """A broker with one capsule of kind bwrap, for another uid."""
    require_bwrap()
    with broker(_config(project, AGENT_UID)) as made:
        yield made


def _launch(served: Broker, *words: str) -> list[str]:
    return [program("jackin-broker"), "launch", "--quiet", *words]


def _run(
    served: Broker, script: str, *options: str, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _launch(served, *options, "--", "sh", "-c", script),
        env={**served.env, **(env or {})},
        cwd=served.folder / "home",
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )


def _lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_agent_runs_as_its_own_uid_in_its_project_and_reaches_the_host(
    served: Broker, project: Path
) -> None:
    done = _run(served, "id -u; pwd; touch made; jackin-exec uname -s; uname -s; /bin/uname -s")
    assert _lines(done) == [str(AGENT_UID), "/workspaces/app", "Linux", "Linux", "Linux"]
    assert (project / "made").stat().st_uid == AGENT_UID
    assert done.stderr == ""


def test_the_exit_status_is_the_commands_own(served: Broker) -> None:
    assert _run(served, "exit 7").returncode == 7
    assert _run(served, "kill -TERM $$").returncode == 128 + signal.SIGTERM
    missing = subprocess.run(
        _launch(served, "--", "no-such-agent"),
        env=served.env,
        capture_output=True,
        timeout=_LIMIT_S,
    )
    assert missing.returncode == 127


def test_stdin_stdout_and_stderr_are_the_launchers(served: Broker) -> None:
    done = _run(served, "cat; echo to-stderr >&2", stdin="through and through")
    assert done.stdout == "through and through"
    assert done.stderr == "to-stderr\n"


def test_the_environment_is_an_allow_list_with_names_and_never_lent_values(
    served: Broker,
) -> None:
    session = {
        "SSH_AUTH_SOCK": "/tmp/agent",
        "TMUX": "/tmp/tmux",
        "DISPLAY": ":0",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/tmp/bus",
        "XAUTHORITY": "/tmp/x",
        "SOME_TOKEN": "of the operator",
    }
    lines = _lines(_run(served, "env", env=session))
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert not set(found) & {*session, "XDG_RUNTIME_DIR", "XDG_STATE_HOME"}
    assert found["HOME"] == "/home/agent"
    assert found["PATH"].startswith("/jackin/bin:")
    assert found["JACKIN_EXEC_BINDINGS"] == "LENT"
    assert found["JACKIN_HOST_BINARIES"] == "true,uname"
    assert found["GIVEN"] == "given-at-launch"
    assert "JACKIN_BROKER_SOCKET" not in found
    assert "lent-and-never-given" not in "\n".join(lines)


def test_the_capsule_sees_nothing_of_the_operators_side(served: Broker) -> None:
    script = (
        f"ls -d {served.folder} {served.state_dir} {served.runtime_dir} /root /etc/shadow 2>&1; "
        "ls /home /run /tmp; ls /proc/self/fd | wc -l; "
        "touch /x /etc/x /usr/x /jackin/x /jackin/bin/x /jackin/run/x 2>&1"
    )
    lines = _run(served, script).stdout.splitlines()
    assert sum("No such file" in line for line in lines[:5]) == 5, lines
    assert lines[5:8] == ["/home:", "agent", ""]
    assert [line for line in lines if line.isdigit()] == ["4"], "0, 1, 2 and the listing's own"
    assert sum("Read-only file system" in line for line in lines) == 6, lines


@contextmanager
def _running(served: Broker, script: str) -> Generator[subprocess.Popen[bytes]]:
    """A launched agent, ended on the way out; its stdout is a pipe, and so are the others."""
    agent = subprocess.Popen(
        _launch(served, "--", "sh", "-c", script),
        env=served.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield agent
    finally:
        end_process(agent)


def _next_line(pipe: IO[bytes] | None) -> bytes:
    """One line that an agent writes, within a limit."""
    assert pipe is not None
    ready, _, _ = select.select([pipe], [], [], _LIMIT_S)
    assert ready, "no line came"
    return pipe.readline()


def test_the_agents_init_and_its_launch_are_on_record(served: Broker) -> None:
    with _running(served, "echo up; cat") as agent:
        _next_line(agent.stdout)
        assert _init_pid(served) in descendants_of(agent.pid)
        second = _run(served, "true")
        assert second.returncode == 1
        assert "already launched" in second.stderr
    wait_until(lambda: _init_pid(served) == 0, "the broker has forgotten the init")


def _init_pid(served: Broker) -> int:
    return int(served.ask("status")["capsules"][0]["init_pid"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_when_the_launcher_ends_nothing_of_the_capsule_is_left(
    served: Broker, number: signal.Signals
) -> None:
    with _running(served, "setsid sleep 600 & echo up; wait") as agent:
        _next_line(agent.stdout)
        inside = descendants_of(agent.pid)
        assert len(inside) >= 4
        agent.send_signal(number)
        assert agent.wait(_LIMIT_S) in (-signal.SIGKILL, 128 + number)
        wait_until(lambda: not any(map(is_running, inside)), "all of the capsule has ended")
        wait_until(lambda: _init_pid(served) == 0, "the broker has noticed")


def test_a_capsule_outlives_its_broker_and_is_served_again_by_the_next(served: Broker) -> None:
    script = "while read -r _; do jackin-exec true </dev/null; echo $?; done"
    with _running(served, script) as agent:

        def call() -> bytes:
            assert agent.stdin is not None
            agent.stdin.write(b"\n")
            agent.stdin.flush()
            return _next_line(agent.stdout)

        assert call() == b"0\n"
        served.stop()
        assert call() == b"126\n"
        assert _next_line(agent.stderr).startswith(b"jackin-exec: error: ")
        served.start()
        assert call() == b"0\n", "whoever asks at once waits for the launcher to come back"
        served.stop()
        served.start()
        assert call() == b"0\n", "and again: the launcher watches the connection that it made anew"


def test_a_restarted_broker_asks_no_source_for_what_a_running_agent_has(
    served: Broker, project: Path, short_tmp: Path
) -> None:
    """A vault that is locked after a restart, an `op` that wants a finger: neither is met."""
    (short_tmp / "value").write_text("of the source")
    config = _config(project, AGENT_UID).replace(
        'GIVEN = "given-at-launch"',
        f'GIVEN = {{ command = ["cat", "{short_tmp}/value"] }}',
    )
    served.write_config(config)
    assert served.run("reload").returncode == 0
    script = 'read -r _; echo "$GIVEN"; jackin-exec true </dev/null; echo $?; cat'
    with _running(served, script) as agent:
        wait_until(lambda: _init_pid(served) != 0, "it was launched")
        served.stop()
        (short_tmp / "value").unlink()
        served.start()
        assert agent.stdin is not None
        agent.stdin.write(b"\n")
        agent.stdin.flush()
        assert _next_line(agent.stdout) == b"of the source\n"
        assert _next_line(agent.stdout) == b"0\n"


def test_a_capsule_that_is_not_opened_again_says_who_knows_why(
    served: Broker, project: Path
) -> None:
    script = "while read -r _; do echo $(jackin-exec true 2>&1 </dev/null; echo $?); done"
    with _running(served, script) as agent:
        wait_until(lambda: _init_pid(served) != 0, "it was launched")
        served.stop()
        served.write_config(_config(project, AGENT_UID).replace("bwrap", "podman"))
        served.start()
        wait_until(
            lambda: "not opened again" in served.run("status").stdout, "the operator can read it"
        )
        assert agent.stdin is not None
        agent.stdin.write(b"\n")
        agent.stdin.flush()
        told = _next_line(agent.stdout)
        assert b"the broker does not open it again for its launcher" in told
        assert b"jackin-broker status" in told
        assert told.endswith(b" 126\n")
        served.write_config(_config(project, AGENT_UID))
        assert served.run("reload").returncode == 0
        wait_until(lambda: _init_pid(served) != 0, "opened again, once it can be")
        agent.stdin.write(b"\n")
        agent.stdin.flush()
        assert _next_line(agent.stdout) == b"0\n"


def test_more_mounts_are_mapped_and_read_only_ones_are_read_only(
    served: Broker, project: Path
) -> None:
    with short_directory(0o755) as more:
        (more / "file").write_text("of the host")
        script = "cat /more/file; touch /more/x 2>&1; cd /more && jackin-exec true && echo mapped"
        lines = _lines(_run(served, script, "--mount", f"/more={more}:ro"))
    assert lines[0].startswith("of the host")
    assert "Read-only file system" in lines[0] + lines[1]
    assert lines[-1] == "mapped"


def test_a_mount_by_its_own_option_is_read_only(served: Broker) -> None:
    with short_directory(0o755) as more:
        done = _run(served, "touch /more/x", "--ro-mount", f"/more={more}")
    assert "Read-only file system" in done.stderr


def test_known_agents_are_told_in_the_capsules_own_home_unless_that_is_not_wanted(
    served: Broker,
) -> None:
    script = "ls -A $HOME; grep -c LENT $HOME/.claude/CLAUDE.md"
    lines = _lines(_run(served, script))
    assert {".claude", ".claude.json", ".codex"} <= set(lines)
    assert int(lines[-1]) > 0
    assert _run(served, "ls -A $HOME", "--no-teach").stdout == ""


def test_without_network_there_is_only_an_empty_loopback(served: Broker) -> None:
    (line,) = _lines(_run(served, "tail -n +3 /proc/net/dev", "--no-network"))
    assert line.split(":")[0].strip() == "lo"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--uid", "77"], "capsules.web.uids: 77 is not among them"),
        (["--name", "other"], "capsules.other: is not configured"),
        (["--runtime", "none"], "is bwrap, not none"),
        (["--mount", "relative"], "expected CAPSULE=HOST"),
        (["--mount", "/x=/no/such/place"], "/no/such/place"),
        (["--socket", "/nowhere/operator.sock"], "no broker answers at /nowhere/operator.sock"),
        (["--tmux"], "there can be no private tmux session here"),
    ],
)
def test_what_cannot_be_launched_says_why_in_two_lines(
    served: Broker, options: list[str], words: str
) -> None:
    done = _run(served, "true", *options)
    assert done.returncode in (1, 2)
    error, *hints = done.stderr.splitlines()
    assert error.startswith("jackin-broker: error: ")
    assert words in error
    assert len(hints) <= 1


def test_without_bubblewrap_the_package_is_named(served: Broker, short_tmp: Path) -> None:
    done = _run(served, "true", env={"PATH": str(short_tmp)})
    assert done.returncode == 1
    assert "bwrap is missing" in done.stderr
    assert "apt-get install bubblewrap" in done.stderr


def test_a_mount_that_overlaps_the_brokers_own_places_is_refused(served: Broker) -> None:
    done = _run(served, "true", "--mount", f"/x={served.state_dir}")
    assert done.returncode == 1
    assert served.state_dir.name in done.stderr


def test_the_banner_says_what_was_opened(served: Broker) -> None:
    done = served.run("launch", "--", "true")
    assert "web (bwrap)" in done.stderr
    assert "to answer, in another terminal: jackin-broker attach" in done.stderr
    assert "LENT: may be lent" in done.stderr
    assert "true, uname: may run on the host and do anything their arguments ask" in done.stderr
    assert "true is a host binary too: this starts the capsule's own" in done.stderr
    assert "host binary too" not in served.run("launch", "--", "/bin/true").stderr


@pytest.mark.parametrize("options", [[], ["--no-teach"]])
def test_an_agent_whose_name_is_listed_for_the_host_is_the_capsules_own(
    served: Broker, options: list[str]
) -> None:
    """`launch -- bash` with bash among the host binaries: no agent lives on the host."""
    done = served.run("launch", "--quiet", *options, "--", "uname", "-n")
    assert done.stdout == "web\n"
    assert not any(line["event"] == "started" for line in served.audit())


@pytest.fixture
def plain(short_tmp: Path) -> Iterator[Broker]:
    """A broker with one capsule of kind none."""
    text = _config(short_tmp, os.geteuid()).replace('kind = "bwrap"', 'kind = "none"')
    text = "\n".join(line for line in text.splitlines() if not line.startswith("mounts"))
    with broker(text) as made:
        yield made


def test_kind_none_runs_as_it_would_without_us_and_says_so(plain: Broker) -> None:
    done = plain.run("launch", "--runtime", "none", "--", "sh", "-c", "jackin-exec true; echo $?")
    assert done.stdout == "0\n", done.stderr
    assert "the agent can approve itself" in done.stderr
    assert _run(plain, "exit 9").returncode == 9
    assert _run(plain, "kill -KILL $$").returncode == 128 + signal.SIGKILL


# --- the capsule's own terminal -----------------------------------------------------------


@pytest.fixture
def shell(served: Broker) -> Iterator[Terminal]:
    """A shell on a terminal, in which the operator launches."""
    env = {**served.env, "PS1": "outer> ", "ENV": "", "HISTFILE": ""}
    with terminal(["/bin/sh", "-i"], env=env, cwd=str(served.folder / "home")) as made:
        made.wait_for("outer>$")
        yield made


def _start(shell: Terminal, command: str = "env PS1='inner> ' sh -i") -> None:
    shell.type(f"jackin-broker launch --quiet -- {command}\r")
    shell.wait_for("inner>$")


def test_a_shell_in_a_capsule_works_as_in_any_terminal(shell: Terminal) -> None:
    _start(shell)
    shell.type("stty size; cat\r")
    shell.wait_for("24 80")
    shell.type("echoed\r")
    shell.wait_for("echoed\nechoed")
    shell.press("ctrl-c")
    shell.wait_for(r"\^C\ninner>$")
    shell.resize(30, 100)
    shell.type("until test \"$(stty size)\" = '30 100'; do :; done; echo 're'sized\r")
    shell.wait_for("^resized\ninner>$")
    shell.type("sh -c \"echo 'go'ing; exec sleep 60\"\r")
    shell.wait_for("^going")
    shell.press("ctrl-z")
    shell.wait_for("Stopped.*\ninner>$")
    shell.type("exit 5\r")
    shell.wait_for("stopped jobs.*\ninner>$")
    shell.type("exit 5\r")
    shell.wait_for("outer>$")
    shell.type("echo status=$?\r")
    shell.wait_for("^status=5")


def test_with_its_output_in_a_pipe_the_terminal_goes_on_editing_lines(shell: Terminal) -> None:
    shell.type("jackin-broker launch --quiet -- cat | sed 's/^/got /'\r")
    shell.type("one line\r")
    shell.wait_for("^one line")
    shell.press("ctrl-d")
    shell.wait_for("^got one line\n(.*\n)*outer>$")


def test_the_launchers_terminal_gets_its_settings_back(shell: Terminal) -> None:
    for end in ("exit 0", "kill -9 $PPID; kill -9 1; exit 1"):
        shell.type("stty -g > before\r")
        _start(shell)
        shell.type(end + "\r")
        shell.wait_for("outer>$")
        shell.type("clear; stty -g | cmp - before && echo 'same' again\r")
        shell.wait_for("^same again")


def test_a_terminated_launcher_gives_the_terminal_back(shell: Terminal, served: Broker) -> None:
    shell.type("stty -g > before\r")
    _start(shell)
    launcher = _launcher_below(shell.pid)
    os.kill(launcher, signal.SIGTERM)
    shell.wait_for("outer>$")
    shell.type("clear; stty -g | cmp - before && echo 'same' again\r")
    shell.wait_for("^same again")


def _launcher_below(pid: int) -> int:
    for below in descendants_of(pid):
        if b"jackin-broker" in Path(f"/proc/{below}/cmdline").read_bytes():
            return below
    raise AssertionError("no launcher below the shell")


def test_the_agent_never_holds_the_launchers_terminal(shell: Terminal, project: Path) -> None:
    """With it the agent could read the operator's keys, or type into the shell afterwards."""
    (project / "attack.py").write_text(
        "import fcntl, os, termios\n"
        "for fd in (0, 1, 2):\n"
        "    print('has', fd, os.isatty(fd) and os.fstat(fd).st_rdev, flush=True)\n"
        "    for letter in b'echo typed-by-the-agent\\n':\n"
        "        try: fcntl.ioctl(fd, termios.TIOCSTI, bytes([letter]))\n"
        "        except OSError: pass\n"
    )
    shell.type("python3 -c 'import os; print(\"outer has\", os.fstat(0).st_rdev)'\r")
    outer = shell.wait_for(r"^outer has (\d+)$")[1]
    attack = "jackin-broker launch --quiet -- python3 /workspaces/app/attack.py"
    commands = (attack, f"true | {attack}", f"{attack} | cat", f"{attack} 2>/dev/null")
    for number, command in enumerate(commands):
        shell.type(f"clear; {command}; echo 'now' over {number}\r")
        shell.wait_for(f"^now over {number}\nouter>$")
        held = re.findall(r"^has \d (\w+)", shell.text, re.MULTILINE)
        assert len(held) == 3
        assert outer not in held
        shell.type(f"echo 'still' alive {number}\r")
        shell.wait_for(f"^still alive {number}")
        assert not re.search("^(outer> )?typed-by-the-agent", shell.text, re.MULTILINE)
