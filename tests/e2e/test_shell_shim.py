"""The shim for capsules that have neither Python nor bash, jq or base64: sh and curl alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bridge import SHELL_SHIM, Bridged, bridged
from support.real import START_LIMIT_S, is_running, require_program, short_directory, wait_until

# All that the script may need of a capsule.
NEEDED = ("sh", "curl", "wc")
BINARIES = ("sh", "cat", "printf", "sleep", "true", "wc", "pwd")


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridged]:
    with bridged(*BINARIES, asked=["tee"]) as made:
        yield made


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A PATH on which there is nothing else."""
    with short_directory(0o711) as folder:
        for name in NEEDED:
            path = shutil.which(name)
            assert path is not None
            (folder / name).symlink_to(path)
        yield str(folder)


def start(bridge: Bridged, *argv: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(SHELL_SHIM), "--", *argv],
        env=bridge.environ(),
        cwd=bridge.work,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_it_needs_nothing_but_sh_and_curl(bridge: Bridged, bare: str) -> None:
    require_program("dash", package="dash")
    done = bridge.shell("sh", "-c", "echo out; echo err >&2; cat; exit 5", stdin=b"in", PATH=bare)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\nin", b"err\n", 5)


def test_it_is_of_posix_sh(bare: str) -> None:
    """No shell's own words: `dash -n` and, where it is there, `busybox sh -n` read it."""
    for shell in (["dash"], ["bash", "--posix"], ["busybox", "sh"]):
        if shutil.which(shell[0]):
            done = subprocess.run([*shell, "-n", SHELL_SHIM], capture_output=True, timeout=20)
            assert (done.returncode, done.stderr) == (0, b"")
    text = SHELL_SHIM.read_text()
    for word in ("[[", "local ", "function ", "<<<", "jq", "base64", "bash"):
        assert word not in text.replace("without bash", "")


def test_arguments_arrive_as_they_were(bridge: Bridged) -> None:
    argv = [
        "a b",
        'say "it"',
        "two\nlines",
        "$HOME `id` \\",
        "",
        "ü✓",
        "@/etc/passwd",
        "x=y&z",
        "-n",
    ]
    done = bridge.shell("printf", "%s\\0", *argv)
    assert done.stdout.decode().split("\0")[:-1] == argv


def test_an_argument_that_is_no_text_arrives_as_its_bytes(bridge: Bridged) -> None:
    done = subprocess.run(
        [SHELL_SHIM, "printf", "%s", b"\xff\xfe\x01"],
        env=bridge.environ(),
        cwd=bridge.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=START_LIMIT_S,
    )
    assert done.stdout == b"\xff\xfe\x01"


def test_under_another_name_it_is_that_command(bridge: Bridged) -> None:
    argv = bridge.argv_of(SHELL_SHIM, ["printf", "--%s", "-v"])
    done = subprocess.run(
        argv, env=bridge.environ(), cwd=bridge.work, capture_output=True, timeout=START_LIMIT_S
    )
    assert done.stdout == b"---v"


def test_stdin_from_a_file_is_sent_whole_and_can_be_approved_by_its_digest(bridge: Bridged) -> None:
    source = bridge.work / "source"
    source.write_bytes(b"from a file\n")
    with source.open("rb") as file, start(bridge, "tee", "copy", stdin=file.fileno()) as shim:
        request = bridge.broker.wait_for_request()
        assert request["stdin"]["kind"] == "closed"
        assert request["stdin"]["size_bytes"] == len(b"from a file\n")
        bridge.broker.approve(request["id"])
        assert shim.wait(START_LIMIT_S) == 0
    assert (bridge.work / "copy").read_bytes() == b"from a file\n"


def test_stdin_from_a_pipe_streams_both_ways(bridge: Bridged) -> None:
    with start(
        bridge, "sh", "-c", "while read l; do echo got $l; done", stdin=subprocess.PIPE
    ) as shim:
        assert shim.stdin is not None
        assert shim.stdout is not None
        for word in (b"one", b"two"):
            shim.stdin.write(word + b"\n")
            shim.stdin.flush()
            assert shim.stdout.readline() == b"got " + word + b"\n"
        shim.stdin.close()
        assert shim.wait(START_LIMIT_S) == 0


def test_an_open_silent_pipe_keeps_nothing(bridge: Bridged) -> None:
    with start(bridge, "true", stdin=subprocess.PIPE) as shim:
        assert shim.wait(START_LIMIT_S) == 0


def test_no_stdin_and_a_closed_one_are_none(bridge: Bridged) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" wc -c <&-', SHELL_SHIM],
        env=bridge.environ(),
        cwd=bridge.work,
        capture_output=True,
        timeout=START_LIMIT_S,
    )
    assert done.stdout.strip() == b"0"


def test_binary_data_passes_both_ways_to_the_bit(bridge: Bridged) -> None:
    data = bytes(range(256)) * (16 * 1024)
    assert bridge.shell("cat", stdin=data).stdout == data


def test_output_arrives_while_the_command_runs(bridge: Bridged) -> None:
    with start(bridge, "sh", "-c", "echo first; read l; echo $l", stdin=subprocess.PIPE) as shim:
        assert shim.stdout is not None
        assert shim.stdin is not None
        assert shim.stdout.readline() == b"first\n"
        shim.stdin.write(b"last\n")
        shim.stdin.close()
        assert shim.stdout.readline() == b"last\n"


def test_126_has_the_seeds_meaning_and_says_what_to_do(bridge: Bridged) -> None:
    unreached = bridge.shell("true", JACKIN_EXEC_URL="http://127.0.0.1:9")
    refused = bridge.shell("true", JACKIN_EXEC_TOKEN="0" * 64)
    for done, words in (
        (unreached, b"cannot be reached"),
        (refused, b"the token is wrong or no longer valid"),
    ):
        assert done.returncode == 126
        assert words in done.stderr
        assert b"jackin-broker capsule env NAME" in done.stderr
    done = bridge.shell("id")
    assert (done.returncode, done.stdout) == (126, b"")
    assert b"not_allowed" in done.stderr


def test_a_denial_is_126_with_the_reason(bridge: Bridged) -> None:
    with start(bridge, "tee", "never") as shim:
        bridge.broker.deny(bridge.broker.wait_for_request()["id"])
        out, err = shim.communicate(timeout=START_LIMIT_S)
    assert (shim.returncode, out) == (126, b"")
    assert b"operator_denied" in err


def test_a_signal_before_it_runs_withdraws_the_request(bridge: Bridged) -> None:
    with start(bridge, "tee", "never-made") as shim:
        bridge.broker.wait_for_request()
        shim.send_signal(signal.SIGTERM)
        assert shim.wait(START_LIMIT_S) == 143
    wait_until(lambda: not bridge.broker.requests(), "nothing waits")
    assert not (bridge.work / "never-made").exists()


def test_a_call_can_be_taken_back_before_its_outputs_are_asked_for(bridge: Bridged) -> None:
    curl = ["curl", "-sS", "-H", f"Authorization: Bearer {bridge.token}"]
    form = ["--data-urlencode", "argv=sleep", "--data-urlencode", "argv=600"]
    asked = subprocess.run(
        [*curl, *form, f"{bridge.url}/plain"],
        capture_output=True,
        check=True,
        timeout=START_LIMIT_S,
    )
    wait_until(lambda: bridge.broker.ask("status")["running"] == 1, "it runs")
    place = f"{bridge.url}/plain/{asked.stdout.decode().strip()}"
    subprocess.run([*curl, "-X", "DELETE", place], check=True, timeout=START_LIMIT_S)
    wait_until(lambda: bridge.broker.ask("status")["running"] == 0, "it has ended")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_command(bridge: Bridged, number: signal.Signals, status: int) -> None:
    place = bridge.work / f"leader{number}"
    with start(bridge, "sh", "-c", f"echo $$ > {place.name}; exec sleep 600") as shim:
        wait_until(lambda: place.exists() and bool(place.read_text()), "it runs")
        shim.send_signal(number)
        assert shim.wait(START_LIMIT_S) == status
    pid = int(place.read_text())
    wait_until(lambda: not is_running(pid), "the command has ended")


def test_a_token_that_is_taken_back_leaves_what_runs_its_exit_status(bridge: Bridged) -> None:
    """`capsule revoke`: what runs goes on, and is told to its end; nothing new begins."""
    gate = bridge.work / "gate"
    script = f"echo runs; while [ ! -e {gate.name} ]; do sleep 0.05; done; echo done; exit 7"
    try:
        with start(bridge, "sh", "-c", script) as shim:
            assert shim.stdout is not None
            assert shim.stdout.readline() == b"runs\n"
            assert bridge.broker.run("capsule", "revoke", bridge.name).returncode == 0
            refused = bridge.shell("true")
            assert (refused.returncode, b"the token is wrong" in refused.stderr) == (126, True)
            gate.touch()
            out, err = shim.communicate(timeout=START_LIMIT_S)
        assert (shim.returncode, out, err) == (7, b"done\n", b"")
    finally:
        bridge.broker.run("capsule", "env", bridge.name, "--renew")
        bridge.refresh()
    assert bridge.shell("true").returncode == 0


def test_a_call_is_its_own_tokens_and_nobody_elses(bridge: Bridged) -> None:
    curl = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H"]
    form = ["--data-urlencode", "argv=sleep", "--data-urlencode", "argv=600"]
    mine = [*curl[:2], "-H", f"Authorization: Bearer {bridge.token}"]
    asked = subprocess.run(
        [*mine, *form, f"{bridge.url}/plain"],
        capture_output=True,
        check=True,
        timeout=START_LIMIT_S,
    )
    place = f"{bridge.url}/plain/{asked.stdout.decode().strip()}"
    stranger = subprocess.run(
        [*curl, f"Authorization: Bearer {'0' * 64}", f"{place}/stdout"],
        capture_output=True,
        timeout=START_LIMIT_S,
    )
    assert stranger.stdout == b"401"
    subprocess.run([*mine, "-X", "DELETE", place], check=True, timeout=START_LIMIT_S)
    wait_until(lambda: bridge.broker.ask("status")["running"] == 0, "it has ended")


def test_when_nobody_reads_its_output_it_ends_as_the_command_would(bridge: Bridged) -> None:
    with start(bridge, "sh", "-c", "while :; do echo y; done") as shim:
        assert shim.stdout is not None
        assert os.read(shim.stdout.fileno(), 2) == b"y\n"
        shim.stdout.close()
        assert shim.wait(START_LIMIT_S) == 141
    wait_until(lambda: bridge.broker.ask("status")["running"] == 0, "nothing runs")


def test_the_token_is_on_no_command_line(bridge: Bridged) -> None:
    place = bridge.work / "runs"
    with start(bridge, "sh", "-c", f"echo > {place.name}; sleep 600") as shim:
        wait_until(place.exists, "it runs")
        lines = [
            path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()
        ]
        shim.terminate()
        shim.wait(START_LIMIT_S)
    assert any(b"/stdout" in line for line in lines)
    assert not any(bridge.token.encode() in line for line in lines)


def test_a_curlrc_neither_sees_the_token_nor_changes_a_call(
    bridge: Bridged, short_tmp: Path
) -> None:
    trace = short_tmp / "trace"
    (short_tmp / ".curlrc").write_text(f'trace-ascii = "{trace}"\ninclude\n')
    done = bridge.shell("sh", "-c", "echo plain", HOME=str(short_tmp))
    assert (done.returncode, done.stdout) == (0, b"plain\n")
    assert not trace.exists()


def test_the_operator_prints_it_for_a_vm(bridge: Bridged) -> None:
    assert bridge.broker.run("capsule", "shim").stdout == SHELL_SHIM.read_text()
