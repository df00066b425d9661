"""Answers that may be used again, through the installed programs (DESIGN §6, CASES 3c and 3d)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from jackin_broker import operator_protocol as op
from support.agent import Agent, finish
from support.allowed import Allowed, allowed
from support.broker import program
from support.desk import OperatorAtDesk
from support.real import wait_until

MINUTE = op.GrantTerm(op.GrantKind.MINUTES, 1)
ALWAYS = op.GrantTerm(op.GrantKind.ALWAYS, 90)
MORE = """[capsules.lab]
kind = "none"
host_binaries = ["printenv"]
[capsules.lab.binaries.printenv]
confine = false
"""


@pytest.fixture
def desk() -> Generator[Allowed]:
    with allowed("true", asked=("printenv", "python3", "cat", "sh", "env"), more=MORE) as running:
        yield running


def granted(
    desk: Allowed,
    *argv: str,
    how: op.GrantTerm,
    lent: tuple[str, ...] = ("TOKEN",),
    stdin: bytes | None = None,
) -> str:
    """Run a command that is approved for this term; the grant's id."""
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    operator = OperatorAtDesk(desk.broker)
    with desk.agent.running(*argv, stdin=source) as child:
        if stdin is not None:
            send(child, stdin)
        decided = operator.decide(operator.wait(), *lent, grant=how)
        assert (decided.accepted, decided.code) == (True, "")
        assert finish(child).returncode == 0
    return decided.grant_id


def send(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(data)
    child.stdin.close()
    child.stdin = None


def is_asked(desk: Allowed, *argv: str | bytes, agent: Agent | None = None, **how: Any) -> bool:
    """Whether this command waits for the operator; it is denied if it does."""
    operator = OperatorAtDesk(desk.broker)
    with (agent or desk.agent).running(*argv, **how) as child:
        wait_until(lambda: child.poll() is not None or bool(operator.waiting()), "an answer")
        if not operator.waiting():
            assert child.poll() == 0
            return False
        assert operator.decide(operator.wait(), approve=False).accepted
        assert finish(child).returncode == 126
    return True


def grants(desk: Allowed) -> tuple[op.GrantView, ...]:
    return OperatorAtDesk(desk.broker).grants()


def prompts(desk: Allowed) -> int:
    return sum(line["event"] == "asked" for line in desk.broker.audit())


def test_one_prompt_covers_the_same_call_from_ten_fresh_shells(desk: Allowed) -> None:
    """CASES 3c: 11 prompts in a turn (superset#5236); a short grace window (secretive#398)."""
    grant = granted(desk, "printenv", "TOKEN", how=MINUTE)
    for _ in range(10):
        done = desk.agent.run("printenv", "TOKEN", options=["--reason", "again, in other words"])
        assert (done.returncode, done.stdout) == (0, b"[redacted:TOKEN]\n")
    assert prompts(desk) == 1
    decided = desk.line("decided")
    assert (decided["by"], decided["grant"], decided["bindings"]) == ("grant", grant, ["TOKEN"])
    listed = grants(desk)[0]
    assert listed.id == grant
    assert listed.expires_at == listed.made_at + 60
    assert listed.last_used_at is not None
    assert listed.last_used_at >= listed.made_at
    made = desk.line("granted")
    assert (made["grant"], made["kind"], made["amount"]) == (grant, "minutes", 1)
    assert desk.token not in desk.broker.audit_file.read_text()


def test_counted_uses_run_out(desk: Allowed) -> None:
    granted(desk, "printenv", "TOKEN", how=op.GrantTerm(op.GrantKind.USES, 2))
    assert [one.uses_left for one in grants(desk)] == [2]
    assert not is_asked(desk, "printenv", "TOKEN")
    assert not is_asked(desk, "printenv", "TOKEN")
    assert grants(desk) == ()
    assert is_asked(desk, "printenv", "TOKEN")


@pytest.mark.parametrize("how", [MINUTE, ALWAYS], ids=["minutes", "always"])
def test_whatever_would_run_differently_is_asked(desk: Allowed, how: op.GrantTerm) -> None:
    """CASES 3d: not one byte more (openclaw#48586, goclaw#1202, agent-secret#90)."""
    safe, other = desk.work / "safe.py", desk.work / "bad.py"
    safe.write_text("print('safe')\n")
    other.write_text("print('bad')\n")
    (desk.work / "sub").mkdir()
    (desk.work / "sub" / "safe.py").write_text("print('safe')\n")
    granted(desk, "python3", "safe.py", how=how, lent=())
    assert not is_asked(desk, "python3", "safe.py")
    assert is_asked(desk, "python3", "bad.py")
    assert is_asked(desk, "env", "python3", "safe.py")
    assert is_asked(desk, "python3", "safe.py", "")
    assert is_asked(desk, "python3", "-i", "safe.py")
    assert is_asked(desk, "python3", "./safe.py")
    assert is_asked(desk, "python3", "safe.py", options=["--want", "TOKEN"])
    assert is_asked(desk, "python3", "safe.py", agent=Agent(desk.broker, "web", desk.work / "sub"))
    assert not is_asked(desk, "python3", "safe.py")
    safe.write_text("print('not')\n")
    assert is_asked(desk, "python3", "safe.py")


def test_stdin_is_part_of_what_was_approved(desk: Allowed) -> None:
    granted(desk, "cat", how=MINUTE, stdin=b"select 1")
    assert desk.agent.run("cat", stdin=b"select 1").stdout == b"select 1"
    assert prompts(desk) == 1
    assert is_asked(desk, "cat")
    with desk.agent.running("cat", stdin=subprocess.PIPE) as child:
        send(child, b"drop table")
        desk.broker.deny(desk.broker.wait_for_request()["id"])
        assert finish(child).returncode == 126


def test_a_live_stdin_is_never_granted_beyond_once(desk: Allowed) -> None:
    read, write = os.pipe()
    with desk.agent.running("cat", stdin=read) as child:
        request = desk.broker.wait_for_request()
        assert (request["stdin"]["kind"], request["offers"]) == ("live", [])
        done = desk.broker.run("decide", request["id"], "--approve", "--for", "15m")
        assert done.returncode == 1
        assert "once" in done.stderr
        assert desk.broker.requests()[0]["state"] == "waiting"
        os.close(read)
        os.close(write)
        desk.broker.deny(request["id"])
        finish(child)


def test_an_always_sticks_over_a_restart_and_is_stored_as_it_was_offered(desk: Allowed) -> None:
    """CASES 3d: "always" does not stick (openclaw#58662); offer text is the rule, verbatim."""
    before = desk.broker.config_file.read_text()
    with desk.agent.running("printenv", "TOKEN") as child:
        request = desk.broker.wait_for_request()
        offer = next(one for one in request["offers"] if one["term"]["kind"] == "always")
        done = desk.broker.run(
            "decide", request["id"], "--approve", "--with", "TOKEN", "--always", "90d"
        )
        assert done.returncode == 0, done.stderr
        assert finish(child).stdout == b"[redacted:TOKEN]\n"
    stored = offer["text"].replace("bindings = []", 'bindings = ["TOKEN"]')
    assert f"\n{stored}\n" in desk.broker.config_file.read_text()
    assert grants(desk)[0].text == stored
    desk.broker.stop()
    desk.broker.start()
    done = desk.agent.run("printenv", "TOKEN", options=["--reason", "reworded"])
    assert done.stdout == b"[redacted:TOKEN]\n"
    assert (prompts(desk), desk.line("decided")["by"]) == (1, "rule")
    listed = desk.broker.ask("grants", "list")[0]
    assert listed["is_rule"]
    assert listed["expires_at"] > listed["last_used_at"] >= listed["made_at"] > 0
    assert desk.broker.run("grants", "revoke", listed["id"]).returncode == 0
    assert desk.broker.config_file.read_text().split() == before.split()
    assert is_asked(desk, "printenv", "TOKEN")


def test_an_always_for_a_binary_that_changed_is_asked() -> None:
    """Also over a restart, after which the new binary is the one that was always there."""
    with allowed("true", asked=("printenv",)) as desk:
        tools = desk.broker.folder / "tools"
        tools.mkdir()
        tool = tools / "printenv"
        tool.write_text("#!/bin/sh\necho one\n")
        tool.chmod(0o755)
        desk.broker.env["PATH"] = f"{tools}:/usr/bin:/bin"
        desk.broker.stop()
        desk.broker.start()
        granted(desk, "printenv", how=ALWAYS)
        assert not is_asked(desk, "printenv")
        tool.write_text("#!/bin/sh\necho two\n")
        assert is_asked(desk, "printenv")
        desk.broker.stop()
        desk.broker.start()
        assert is_asked(desk, "printenv")
        tool.write_text("#!/bin/sh\necho one\n")
        desk.broker.stop()
        desk.broker.start()
        assert not is_asked(desk, "printenv")


def test_a_grant_belongs_to_its_capsule(desk: Allowed) -> None:
    granted(desk, "printenv", "HOME", how=MINUTE)
    assert is_asked(desk, "printenv", "HOME", agent=Agent(desk.broker, "lab", desk.work))


def test_a_new_grant_releases_nothing_that_waits(desk: Allowed) -> None:
    """DESIGN §6; CASES 3c: one click released N identical waiting calls (ha-mcp#2399)."""
    argv = ("sh", "-c", "echo ran >> ran")
    with desk.agent.running(*argv) as one, desk.agent.running(*argv) as other:
        operator = OperatorAtDesk(desk.broker)
        request = operator.wait(count=2)
        assert operator.decide(request, grant=MINUTE).grant_id
        wait_until(lambda: one.poll() is not None or other.poll() is not None, "one ran")
        left = operator.wait()
        assert left.id != request.id
        assert (desk.work / "ran").read_text() == "ran\n"
        operator.decide(left, approve=False)
        assert {finish(one).returncode, finish(other).returncode} == {0, 126}
    assert (desk.work / "ran").read_text() == "ran\n"


def test_the_caller_can_neither_see_a_grant_nor_ask_for_one(desk: Allowed) -> None:
    """DESIGN §5: Ask says nothing of grants."""
    granted(desk, "printenv", "HOME", how=MINUTE)
    assert not is_asked(desk, "printenv", "HOME")
    assert asked_of_rules(desk, "printenv", "HOME") == ("ask", "no rule names this command")


def asked_of_rules(desk: Allowed, *argv: str) -> tuple[str, str]:
    """What `jackin-capsule ask` says of a command."""
    done = subprocess.run(
        [program("jackin-capsule"), "ask", "--json", "--", *argv],
        env=desk.agent.env,
        cwd=desk.work,
        capture_output=True,
        text=True,
        timeout=30,
    )
    answer = json.loads(done.stdout)
    return answer["outcome"], answer["reason"]


def test_revoking_all_ends_every_grant_and_what_runs(desk: Allowed) -> None:
    """DESIGN §6: one key revokes all and kills what runs."""
    granted(desk, "printenv", "HOME", how=MINUTE)
    granted(desk, "printenv", "PATH", how=ALWAYS)
    with desk.agent.running("sh", "-c", "echo up; sleep 60") as child:
        desk.broker.approve(desk.broker.wait_for_request()["id"])
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert len(grants(desk)) == 2
        shown = desk.broker.run("grants", "list").stdout
        assert '  argv = ["printenv", "HOME"]\n' in shown
        assert shown.count("never used") == 2
        report = desk.broker.ask("grants", "revoke", "--all", "--kill")
        assert report["notes"] == ["ended 2 grants", "ended 1 command"]
        assert finish(child).returncode != 0
    assert grants(desk) == ()
    assert is_asked(desk, "printenv", "HOME")
    assert is_asked(desk, "printenv", "PATH")
    assert desk.line("revoked")["count"] == 2


def test_three_denials_in_a_row_make_a_deny_rule_an_answer(desk: Allowed) -> None:
    for count in range(3):
        with desk.agent.running("sh", "-c", "loop") as child:
            request = desk.broker.wait_for_request()
            assert request["denied_before"] == count
            assert all(offer["approve"] for offer in request["offers"])
            desk.broker.deny(request["id"])
            finish(child)
    with desk.agent.running("sh", "-c", "loop") as child:
        request = desk.broker.wait_for_request()
        offer = next(one for one in request["offers"] if not one["approve"])
        days = f"{offer['term']['amount']}d"
        done = desk.broker.run("decide", request["id"], "--deny", "--always", days)
        assert done.returncode == 0, done.stderr
        finish(child)
    assert offer["text"] in desk.broker.config_file.read_text()
    refused = desk.agent.run("sh", "-c", "loop")
    assert refused.returncode == 126
    assert b"denies it" in refused.stderr
    assert prompts(desk) == 4


def test_grants_outlive_a_restart_only_if_that_is_configured(desk: Allowed) -> None:
    granted(desk, "printenv", "TOKEN", how=MINUTE)
    desk.broker.stop()
    desk.broker.start()
    assert is_asked(desk, "printenv", "TOKEN")
    text = desk.broker.config_file.read_text()
    desk.broker.write_config(text.replace("[broker]\n", "[broker]\nkeep_grants = true\n"))
    assert desk.broker.run("reload").returncode == 0
    granted(desk, "printenv", "TOKEN", how=MINUTE)
    desk.broker.kill()
    desk.broker.start()
    assert not is_asked(desk, "printenv", "TOKEN")
    kept = (desk.broker.state_dir / "grants.json").read_text()
    assert desk.token not in kept
    assert '"TOKEN"' in kept


def test_another_source_of_a_granted_binding_is_asked(desk: Allowed) -> None:
    granted(desk, "printenv", "TOKEN", how=MINUTE)
    other = desk.broker.folder / "other"
    other.touch(mode=0o600)
    other.write_text("tok-" + "0123456789abcdef" * 2)
    text = desk.broker.config_file.read_text()
    lines = [
        f'TOKEN = {{ file = "{other}", on_demand = true }}' if line.startswith("TOKEN") else line
        for line in text.splitlines()
    ]
    desk.broker.write_config("\n".join(lines) + "\n")
    assert desk.broker.run("reload").returncode == 0
    assert is_asked(desk, "printenv", "TOKEN")


def test_a_grant_ends_with_the_session_of_its_capsule(desk: Allowed) -> None:
    """DESIGN §6, CASES 3c: grants belong to our session id."""
    operator = OperatorAtDesk(desk.broker)
    twice = "printenv HOME && printenv HOME"  # links to the shim, in there
    launch = [program("jackin-broker"), "launch", "--runtime", "none", "--name", "web", "--"]
    for prompts_before in (0, 1):
        with subprocess.Popen(
            [*launch, "/bin/sh", "-c", twice],
            env=desk.broker.env,
            cwd=desk.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            try:
                view = operator.wait()
                assert prompts(desk) == prompts_before + 1
                assert operator.decide(view, grant=MINUTE).grant_id
                assert finish(child).returncode == 0
            finally:
                if child.poll() is None:
                    child.kill()
        wait_until(lambda: grants(desk) == (), "the session's grants are gone")


def test_revoking_works_at_once_whatever_state_the_file_is_in(desk: Allowed) -> None:
    granted(desk, "printenv", "HOME", how=ALWAYS)
    whole = desk.broker.config_file.read_text()
    desk.broker.write_config(whole + "[half an ed")
    done = desk.broker.run("grants", "revoke", "--all")
    assert done.returncode == 1
    assert "still stands" in done.stderr
    assert is_asked(desk, "printenv", "HOME")
    desk.broker.write_config(whole)
    granted(desk, "printenv", "LANG", how=ALWAYS)  # which writes the file, and reads it again
    assert is_asked(desk, "printenv", "HOME")
    assert desk.broker.run("reload").returncode == 0
    assert not is_asked(desk, "printenv", "HOME")
    assert desk.broker.run("grants", "revoke", grants(desk)[0].id).returncode == 0
    assert is_asked(desk, "printenv", "HOME")
    assert not is_asked(desk, "printenv", "LANG")


def test_an_always_that_cannot_be_written_leaves_an_answer_for_once(desk: Allowed) -> None:
    with desk.agent.running("printenv", "HOME") as child:
        view = OperatorAtDesk(desk.broker).wait()
        desk.broker.write_config(desk.broker.config_file.read_text() + "[half an ed")
        done = desk.broker.run("decide", view.id, "--approve", "--always", "90d")
        assert finish(child).returncode == 0
        assert done.returncode == 1
        assert "decided for once, and nothing was stored" in done.stderr
    assert grants(desk) == ()
    assert is_asked(desk, "printenv", "HOME")
    assert desk.line("revoked")["by"] == "broker"


def test_a_credential_that_is_named_twice_is_lent_once_and_stored_once(desk: Allowed) -> None:
    """`--with TOKEN,TOKEN` was a yes that ran nothing, and a rule that no broker could read."""
    granted(desk, "printenv", "TOKEN", how=ALWAYS, lent=("TOKEN", "TOKEN"))
    assert not is_asked(desk, "printenv", "TOKEN")
    assert desk.broker.run("reload").returncode == 0
