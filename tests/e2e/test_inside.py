"""Commands inside the capsule (DESIGN §9): with a credential, and apart from the agent.

The installed programs, a real bubblewrap capsule, the agent as another uid where that is possible.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.capsule import Call, Ended, places_of
from support.inside import Inside, inside
from support.namespaces import descendants_of
from support.real import require_root, wait_until


@pytest.fixture
def scene() -> Iterator[Inside]:
    with inside() as made:
        yield made


def ask(scene: Inside, script: str, *, stdin: bytes | None = None) -> Ended:
    return scene.agent.run("jackin-exec", "sh", "-c", script, stdin=stdin)


def started(scene: Inside, script: str, before: str = "") -> Call:
    """A running script, as soon as its shim knows that it runs."""
    whole = f"{before}echo up; {script}"
    running = scene.agent.start("/bin/sh", "-c", f'exec jackin-exec sh -c "{whole}" >out')
    out = scene.project / "out"
    wait_until(lambda: out.exists() and out.read_text() == "up\n", "the shim knows that it runs")
    return running


def runs_with(words: str, pid: int) -> bool:
    """Whether a process below `pid` has these words in its command line."""
    for below in descendants_of(pid):
        try:
            line = Path(f"/proc/{below}/cmdline").read_bytes()
        except OSError:
            continue
        if words.encode() in line:
            return True
    return False


def test_an_unlisted_command_runs_inside_with_the_credential_and_its_value_is_taken_out(
    scene: Inside,
) -> None:
    done = ask(scene, 'echo "got $TOKEN"; echo "$GIVEN" >&2; pwd; touch made; exit 5')
    assert done == Ended(5, b"got [redacted:TOKEN]\n/workspace\n", b"given-at-launch\n")
    assert (scene.project / "made").exists()
    assert scene.line("started")["binary"] == "sh"
    assert scene.line("ended")["redacted"] == 1
    (host,) = scene.agent.run("jackin-exec", "uname", "-n").stdout.split()
    assert host == os.uname().nodename.encode(), "a listed one runs on the host"
    assert ask(scene, "uname -n").stdout == b"web\n", "what it calls is the capsule's own"


def test_its_path_is_the_capsules_and_not_the_agents(scene: Inside) -> None:
    (scene.project / "sh").write_text("#!/bin/sh\necho agent-own\n")
    (scene.project / "sh").chmod(0o755)
    script = "PATH=/workspace:$PATH exec jackin-exec sh -c 'echo $PATH; command -v uname'"
    done = scene.agent.run("/bin/sh", "-c", script)
    assert done.stdout.splitlines()[0].startswith(b"/usr/local/sbin:")
    assert b"jackin" not in done.stdout


def test_stdin_is_streamed_and_its_end_is_an_end(scene: Inside) -> None:
    assert ask(scene, "cat; echo over", stdin=b"hello\n").stdout == b"hello\nover\n"
    big = os.urandom(300_000)
    assert ask(scene, "wc -c", stdin=big).stdout.strip() == b"300000"
    assert ask(scene, "cat").stdout == b""


def test_streams_can_be_opened_by_name(scene: Inside) -> None:
    done = ask(scene, "echo a >/dev/stdout; echo b >/dev/stderr; cat /dev/stdin", stdin=b"c\n")
    assert done == Ended(0, b"a\nc\n", b"b\n")


def test_what_is_gone_by_the_time_of_the_answer_says_so(scene: Inside) -> None:
    (scene.project / "gone").mkdir(mode=0o777)
    call = scene.agent.start("jackin-exec", "env", cwd="/workspace/gone")
    request = scene.broker.wait_for_request()
    (scene.project / "gone").rmdir()
    scene.broker.approve(request["id"])
    ended = call.wait()
    assert ended.status == 126
    assert b"cannot be entered inside the capsule: no such file" in ended.stderr
    assert b"(workdir_rejected)" in ended.stderr


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["no-such-thing"], 127, b"no-such-thing: no such command in the capsule"),
        (["/workspace/no-such-thing"], 127, b"no such command in the capsule"),
        (["./no-such-thing"], 127, b"no such command in the capsule"),
        (["/etc/passwd"], 126, b"could not be started in the capsule: permission denied"),
    ],
)
def test_a_program_that_is_not_there_is_known_before_anyone_is_asked(
    scene: Inside, argv: list[str], status: int, words: bytes
) -> None:
    done = scene.agent.run("jackin-exec", "--", *argv)
    assert done.status == status
    assert words in done.stderr
    assert scene.line("refused")["code"] == "spawn_failed"
    assert not any(line["event"] == "asked" for line in scene.broker.audit())
    asked = scene.agent.run("/jackin/bin/jackin-capsule", "ask", "--", *argv)
    assert words in asked.stdout + asked.stderr


def test_a_directory_that_is_not_there_inside_is_known_before_anyone_is_asked(
    scene: Inside,
) -> None:
    """As one is that the agent alone has, in a mount namespace of its own."""
    own = "mount -t tmpfs none /tmp && mkdir /tmp/own && cd /tmp/own && exec jackin-exec env"
    done = scene.agent.run("unshare", "-Urm", "sh", "-c", own)
    assert done.status == 126
    assert b"(workdir_rejected)" in done.stderr
    assert not any(line["event"] == "asked" for line in scene.broker.audit())


def test_an_init_that_does_not_answer_is_a_refusal(scene: Inside) -> None:
    """Fail closed: what could not be looked for is not asked about, and does not run."""
    (init,) = [one["init_pid"] for one in scene.broker.ask("status")["capsules"]]
    os.kill(init, signal.SIGSTOP)
    try:
        done = scene.agent.run("jackin-exec", "env")
    finally:
        os.kill(init, signal.SIGCONT)
    assert done.status == 126
    assert b"the init of capsule web does not answer" in done.stderr
    assert ask(scene, "echo on").stdout == b"on\n"


def test_while_it_runs_the_agent_finds_its_value_nowhere(scene: Inside) -> None:
    """Not in a process's environment, memory or argv, not in a file: it sees no such process."""
    (scene.project / "work.sh").write_text("touch up\nsleep 616\n")
    running = scene.agent.start("jackin-exec", "sh", "work.sh")
    wait_until((scene.project / "up").exists, "the command runs")
    found = scene.agent.look("/proc/self", "/dev/shm", "/tmp", "/run", "/workspace", "/jackin")
    assert places_of(scene.token, found) == []
    others = scene.agent.run("/bin/sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'").stdout
    assert b"616" not in others
    assert others.count(b"\ninit\n") == 1, "the first process of its own namespaces, not init"
    running.kill()
    running.wait()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT]
)
def test_a_signal_arrives_once(scene: Inside, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    running = started(
        scene, "while :; do sleep 0.05; done", f"trap 'echo caught >>seen; exit 9' {name}; "
    )
    running.kill(number)
    assert running.wait().status == 9
    assert (scene.project / "seen").read_text() == "caught\n"


def test_a_command_that_a_signal_ended_says_which(scene: Inside) -> None:
    assert ask(scene, "kill -KILL $$").status == 128 + signal.SIGKILL


def test_when_its_caller_is_killed_its_whole_tree_ends(scene: Inside) -> None:
    script = "setsid sleep 611 & sleep 612 & touch up; wait"
    running = scene.agent.start("jackin-exec", "sh", "-c", script)
    wait_until((scene.project / "up").exists, "the command runs")
    pid = scene.agent.launch.pid
    assert runs_with("611", pid)
    running.kill()
    wait_until(lambda: not runs_with("611", pid) and not runs_with("612", pid), "all has ended")
    wait_until(
        lambda: any(line.get("ended_by") == "caller_gone" for line in scene.broker.audit()),
        "it is on record",
    )


def test_a_leader_that_answers_nobody_is_killed_and_its_command_with_it(scene: Inside) -> None:
    """The last resort, by way of init: it was stopped, as a fault could have it."""
    require_root()
    (scene.project / "work.sh").write_text("touch up\nsleep 618\n")
    running = scene.agent.start("jackin-exec", "sh", "work.sh")
    wait_until(lambda: runs_with("618", scene.agent.launch.pid), "the command runs")
    (sleeper,) = [
        pid
        for pid in descendants_of(scene.agent.launch.pid)
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"618"]
    ]
    os.kill(parent_of(parent_of(sleeper)), signal.SIGSTOP)
    running.kill()
    wait_until(lambda: not runs_with("618", scene.agent.launch.pid), "all has ended")
    assert ask(scene, "echo on").stdout == b"on\n", "init serves the next"


def parent_of(pid: int) -> int:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    return int(after_name.split()[1])


def test_a_time_limit_ends_it() -> None:
    with inside(limits="run_s = 1") as scene:
        done = ask(scene, "trap '' TERM; sleep 60 & wait; sleep 60")
        assert done.status == 124
        assert scene.line("ended")["ended_by"] == "time_limit"


def test_what_it_left_in_the_background_ends_with_it(scene: Inside) -> None:
    assert ask(scene, "setsid sleep 613 >/dev/null 2>&1 & echo left").stdout == b"left\n"
    wait_until(lambda: not runs_with("613", scene.agent.launch.pid), "it has ended")


def test_the_limits_hold_inside_too() -> None:
    with inside(limits="address_space_bytes = 268435456\noutput_bytes = 7") as scene:
        done = ask(scene, "ulimit -v; echo more")
        assert (done.status, done.stdout) == (0, b"262144\n")
        assert b"12 bytes on stdout" in done.stderr
        assert scene.line("ended")["truncated"] is True


def test_a_broker_restart_ends_it_with_a_clear_status_and_the_next_one_works() -> None:
    with inside() as scene:
        running = started(scene, "sleep 614")
        scene.broker.stop()
        ended = running.wait()
        assert ended.status == 124
        assert b"the broker stopped and ended the command" in ended.stderr
        assert not runs_with("614", scene.agent.launch.pid)
        scene.broker.start()
        wait_until(lambda: scene.broker.ask("status")["capsules"][0]["init_pid"], "known again")
        assert ask(scene, "echo $TOKEN").stdout == b"[redacted:TOKEN]\n"


def test_a_killed_broker_leaves_no_command_behind_and_the_next_one_works() -> None:
    with inside() as scene:
        running = started(scene, "setsid sleep 615; wait")
        scene.broker.kill()
        assert running.wait().status == 124
        wait_until(lambda: not runs_with("615", scene.agent.launch.pid), "the command has ended")
        scene.broker.start()
        wait_until(lambda: scene.broker.ask("status")["capsules"][0]["init_pid"], "known again")
        assert ask(scene, "echo $TOKEN").stdout == b"[redacted:TOKEN]\n"


def test_a_terminal_inside_is_a_real_one(scene: Inside) -> None:
    """`script` gives the agent a terminal; the command's own is made inside and has a name."""
    inner = "tty; stty size; echo $TOKEN; test -t 0 && test -t 1 && test -t 2 && echo all"
    asks = f"stty rows 33 cols 99; jackin-exec -t sh -c '{inner}'"
    done = scene.agent.run("script", "-qec", asks, "/dev/null")
    lines = done.stdout.replace(b"\r", b"").replace(b"^@", b"").splitlines()
    assert lines == [lines[0], b"33 99", b"[redacted:TOKEN]", b"all"], done
    assert b"/dev/pts/" in lines[0]


def test_a_file_is_delivered_where_only_the_command_sees_it() -> None:
    with inside(deliver="file") as scene:
        running = scene.agent.start(
            "jackin-exec",
            "sh",
            "-c",
            "cat $TOKEN_FILE; stat -c %a $TOKEN_FILE; touch up; cat up2",
        )
        wait_until((scene.project / "up").exists, "the command has its file")
        found = scene.agent.look()
        assert places_of(scene.token, found) == []
        assert running.wait().stdout == b"[redacted:TOKEN]600\n"


def test_without_a_rule_the_operator_is_asked_and_sees_where_it_runs(scene: Inside) -> None:
    call = scene.agent.start("jackin-exec", "env")
    request = scene.broker.wait_for_request()
    assert request["target"] == "capsule"
    assert "apart from the agent" in request["confinement"]
    assert request["cwd"] == "/workspace"
    assert any("the agent's own" in line for line in request["notices"])
    scene.broker.approve(request["id"], "TOKEN")
    assert b"TOKEN=[redacted:TOKEN]" in call.wait().stdout.splitlines()


def test_a_script_of_the_project_that_changed_while_waiting_does_not_run(scene: Inside) -> None:
    """Also by its path in the capsule, which the host has elsewhere."""
    for path in ("deploy.py", "/workspace/deploy.py"):
        (scene.project / "deploy.py").write_text("print('as shown')\n")
        call = scene.agent.start("jackin-exec", "python3", path)
        request = scene.broker.wait_for_request()
        assert [file["sha256"] != "" for file in request["files"]] == [True]
        (scene.project / "deploy.py").write_text("print('something else')\n")
        scene.broker.approve(request["id"])
        done = call.wait()
        assert done.status == 126
        assert b"changed_since_approval" in done.stderr


def test_a_rule_for_the_host_says_nothing_about_the_capsule() -> None:
    rule = '[[rules]]\naction = "allow"\nargv = ["id"]\n'
    with inside(more=rule) as scene:
        call = scene.agent.start("jackin-exec", "id")
        scene.broker.deny(scene.broker.wait_for_request()["id"])
        assert call.wait().status == 126
