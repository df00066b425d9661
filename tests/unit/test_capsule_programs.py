"""`jackin-capsule`: its help, `ask` and `doctor`, as real processes under `-I -S`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker.protocol import Ask, AskResult, Error, ExecCommand, Outcome
from jackin_capsule import VERSION
from support.scripted_broker import (
    ScriptedBroker,
    ShimPrograms,
    finish,
    interpreters,
    scripted,
)

Scene = tuple[ScriptedBroker, ShimPrograms]
NAME = "jackin-capsule"


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def scene(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scripted(short_tmp, request.param) as both:
        yield both


def test_help_teaches(scene: Scene) -> None:
    """Each sub-command that there is."""
    _, shims = scene
    status, out, err = shims.run("--help", name=NAME)
    assert (status, err) == (0, "")
    for word in ("exec", "ask", "mcp", "prompt", "mcp-config", "doctor", "equip", "init"):
        assert f"jackin-capsule {word}" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    assert shims.run(name=NAME) == (0, out, "")
    assert shims.run("--version", name=NAME) == (0, f"jackin-capsule {VERSION}\n", "")


@pytest.mark.parametrize(
    "word", ["exec", "ask", "mcp", "prompt", "mcp-config", "doctor", "equip", "init"]
)
def test_each_sub_command_has_a_short_help_of_its_own(scene: Scene, word: str) -> None:
    _, shims = scene
    status, out, err = shims.run(word, "--help", name=NAME)
    assert (status, err) == (0, "")
    usage, *more = out.splitlines()
    assert usage.startswith("usage: jackin-" + ("exec" if word == "exec" else f"capsule {word}"))
    assert "jackin-capsule init" not in "".join(more)
    assert all(len(line) <= 100 for line in out.splitlines())
    assert shims.run(word, "-h", name=NAME) == (0, out, "")
    assert shims.run("help", word, name=NAME) == (0, out, "")


def test_help_for_what_there_is_not_says_where_to_look(scene: Scene) -> None:
    _, shims = scene
    for words in (("help", "bogus"), ("bogus", "--help")):
        status, _, err = shims.run(*words, name=NAME)
        assert status == 126
        assert err.splitlines()[0].endswith("error: no such command: bogus")


def test_an_unknown_command_says_where_to_look(scene: Scene) -> None:
    _, shims = scene
    status, out, err = shims.run("bogus", name=NAME)
    assert (status, out) == (126, "")
    assert err.splitlines() == [
        "jackin-capsule: error: no such command: bogus",
        "jackin-capsule: hint: see `jackin-capsule --help`",
    ]


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome.ALLOW, 0), (Outcome.ASK, 3), (Outcome.DENY, 126)]
)
def test_ask_prints_what_rules_say(scene: Scene, outcome: Outcome, status: int) -> None:
    """By exit status, in words, and as JSON."""
    broker, shims = scene
    for options in ([], ["--json"]):
        process = shims.start(
            "ask", *options, "--want", "A,B", "gh", "pr", "--json", b"\xff", name=NAME
        )
        peer = broker.accept()
        asked = peer.expect(Ask)
        assert (asked.command, asked.args[:2], asked.want) == ("gh", ("pr", "--json"), ("A", "B"))
        assert asked.cwd == shims.env["HOME"]
        peer.send(AskResult(outcome, "rule_denied", "rule 3\x1b[2J"))
        found, out, err = finish(process)
        assert (found, err) == (status, b"")
        if options:
            answer = {"outcome": outcome.value, "code": "rule_denied", "reason": "rule 3\x1b[2J"}
            assert json.loads(out) == answer
        else:
            assert out.decode().startswith(("allowed", "asked", "denied"))
            assert "(rule_denied)" in out.decode()
            assert "\x1b" not in out.decode()


def test_ask_that_is_refused_or_unheard_is_126(scene: Scene) -> None:
    broker, shims = scene
    process = shims.start("ask", "gh", name=NAME)
    broker.accept().send(Error("too_many_pending", "too many questions"))
    status, _, err = finish(process)
    assert status == 126
    assert "too many questions (too_many_pending)" in err.decode()
    broker.close()
    status, _, err_text = shims.run("ask", "gh", name=NAME)
    assert status == 126
    assert "no broker listens" in err_text
    assert shims.run("ask", "--bogus", "gh", name=NAME)[0] == 126
    assert shims.run("ask", name=NAME)[0] == 126


def doctor(
    scene: Scene, *, answers: bool = True, reply: AskResult | Error | None = None
) -> tuple[int, dict[str, tuple[str, str, str]]]:
    """Exit status and checks by name; the scripted broker answers where it should."""
    broker, shims = scene
    process = shims.start("doctor", "--json", name=NAME)
    if answers:
        broker.accept()  # the check that only connects
        peer = broker.accept()
        peer.expect(Ask)
        peer.send(reply or AskResult(Outcome.ASK, "", "no rule matches"))
    status, out, err = finish(process)
    assert err == b""
    report = json.loads(out)
    assert report["ok"] is (status == 0)
    rows = {c["name"]: (c["state"], c["found"], c["next"]) for c in report["checks"]}
    assert all(row[2] for row in rows.values() if row[0] == "wrong")
    return status, rows


def test_doctor_is_content_when_all_is_well(scene: Scene) -> None:
    _, shims = scene
    shims.program("jackin-exec")
    shims.program("gh")
    shims.env["JACKIN_HOST_BINARIES"] = "gh"
    status, rows = doctor(scene)
    assert status == 0, rows
    assert [row[0] for row in rows.values()] == ["ok"] * 8
    way = ["socket", "connect", "answer"]
    assert list(rows) == ["python", *way, "PATH", "gh", "directory", "terminal"]


def test_doctor_speaks_to_people_too(scene: Scene) -> None:
    """One line a part, one more with what to do."""
    broker, shims = scene
    broker.close()
    status, out, _ = shims.run("doctor", name=NAME)
    assert status == 1
    assert "ok           python" in out
    assert "wrong        connect" in out
    assert "not checked  answer" in out
    assert "next:" in out
    assert shims.run("doctor", "now", name=NAME)[0] == 126


def test_doctor_finds_a_missing_socket(scene: Scene) -> None:
    _, shims = scene
    shims.program("jackin-exec")
    shims.env["JACKIN_BROKER_SOCKET"] = f"{shims.env['HOME']}/nowhere"
    status, rows = doctor(scene, answers=False)
    assert status == 1
    assert rows["socket"][0] == "wrong"
    assert rows["connect"][0] == rows["answer"][0] == "not checked"


@pytest.mark.parametrize("value", ["/etc/passwd", "/" + "x" * 200])
def test_doctor_finds_what_is_no_socket(scene: Scene, value: str) -> None:
    _, shims = scene
    shims.env["JACKIN_BROKER_SOCKET"] = value
    assert doctor(scene, answers=False)[1]["socket"][0] == "wrong"


def test_doctor_passes_on_why_the_broker_refuses(scene: Scene) -> None:
    _, shims = scene
    shims.program("jackin-exec")
    status, rows = doctor(scene, reply=Error("peer_refused", "not of this capsule"))
    assert status == 1
    assert rows["answer"][:2] == ("wrong", "not of this capsule (peer_refused)")


def test_doctor_finds_a_path_that_leads_elsewhere(scene: Scene) -> None:
    """A listed binary that another directory shadows is not the operator's."""
    _, shims = scene
    shims.program("jackin-exec")
    folder = shims.env["HOME"]
    other = Path(folder) / "other"
    other.mkdir()
    (other / "gh").write_text("#!/bin/sh\n")
    (other / "gh").chmod(0o755)
    shims.env["PATH"] = f"{other}:{folder}:/usr/bin:/bin"
    shims.env["JACKIN_HOST_BINARIES"] = "gh,wicket"
    status, rows = doctor(scene)
    assert status == 1
    assert rows["PATH"][0] == rows["gh"][0] == rows["wicket"][0] == "wrong"
    assert "first on PATH" in rows["PATH"][2]


def test_a_program_installed_by_pip_is_the_same_shim(scene: Scene) -> None:
    """The console script's entry is `jackin_capsule.main:main`."""
    broker, shims = scene
    script = Path(shims.env["HOME"]) / "bin"
    script.mkdir()
    program = script / "jackin-exec"
    text = Path(shims.program("jackin-exec")).read_text()
    text = text.replace("jackin_capsule.shim", "jackin_capsule.main")
    program.write_text(text.replace("main(sys.argv)", "sys.exit(main())"))
    program.chmod(0o755)
    with subprocess.Popen([program, "gh", "pr"], env=shims.env) as process:
        peer = broker.accept()
        assert peer.expect(ExecCommand).command == "gh"
        peer.start()
        peer.end(9)
        assert process.wait(20) == 9
