"""Plain mode's pages: what the picker's pages say and do, line by line, under the same guard."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from jackin_broker.operator_protocol import (
    CredentialView,
    Failed,
    GrantView,
    KillRequest,
    Output,
    RequestState,
    RevokeAll,
    RevokeGrant,
    RuleView,
    Watch,
)
from support.agent import finish
from support.allowed import allowed
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.picker_scenes import STORED, fill
from support.plain import Plain, plain, plain_at

HOSTILE: Final = "\x1b[2J\x1b]52;c;eA==\x07\u202ed\u200b\x9b1m[/]\r\nRunning, revoke all 123"


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        fill(running)
        yield running


@contextmanager
def listening(broker: OperatorPlaybook) -> Generator[Plain]:
    """Plain mode, attached; what is typed before that is dropped."""
    with plain_at(broker.path, env={"PATH": "/usr/bin:/bin", "TERM": "dumb"}) as operator:
        operator.wait_said("Nothing waits for an answer.")
        yield operator


def code_of(operator: Plain, pattern: str) -> str:
    """The number that was said last in a line of this pattern."""
    found = re.findall(pattern, operator.heard)
    assert found, pattern
    return str(found[-1])


def test_a_grant_is_revoked_with_the_number_that_was_said_with_it(
    broker: OperatorPlaybook,
) -> None:
    with listening(broker) as operator:
        operator.enter("grants", " ends all that runs.")
        said = operator.heard
        for words in (
            *("Grant 1, capsule web, ", "Grant 3, capsule web, a rule in the configuration"),
            *("3 uses left, never used", "gh pr list --limit 30"),
        ):
            assert words in said, words
        operator.enter("grants 1", '│ argv = ["gh", "pr", "list", "--limit", "30"]')
        first = code_of(operator, r"Grant 1,.*\n.*\n +revoke (\d+) takes it back")
        operator.enter(f"revoke {first}", "Revoked: it will be asked about again.")
        assert broker.wait_call(RevokeGrant).id == "g1"
        operator.enter(f"revoke {first}", "nothing was revoked")


def test_a_wrong_number_makes_the_others_worthless(broker: OperatorPlaybook) -> None:
    with listening(broker) as operator:
        operator.enter("grants", " ends all that runs.")
        one = code_of(operator, r"Grant 2,.*\n.*\n +revoke (\d+) takes it back")
        everything = code_of(operator, r"revoke all (\d+) revokes all")
        operator.enter(f"revoke all {one}", "nothing was revoked")
        operator.enter(f"revoke {one}", "nothing was revoked")
        operator.enter(f"revoke all {everything}", "nothing was revoked")
    calls = list(broker.calls.queue)
    assert not [call for call in calls if isinstance(call, RevokeGrant | RevokeAll)]


def test_all_is_revoked_and_what_runs_is_ended(broker: OperatorPlaybook) -> None:
    with listening(broker) as operator:
        operator.enter("grants", " ends all that runs.")
        code = code_of(operator, r"revoke all (\d+) revokes all")
        operator.enter(f"revoke all {code}", "Every grant is revoked, and what ran is being ended.")
        assert broker.wait_call(RevokeAll).kill
        operator.enter("grants", "there is no grant")


def test_rules_credentials_and_what_ended_are_said(broker: OperatorPlaybook) -> None:
    killed = a_request("k1", state=RequestState.DONE, outcome="operator", exit_code=143)
    broker.history = (killed, *broker.history)
    with listening(broker) as operator:
        operator.enter("rules", "rules and a number says all of one.")
        operator.enter("rules 3", 'argv = ["psql", "..."]')
        operator.enter("credentials", "keyring db/prod")
        operator.enter("history", "history and a number says all of one.")
        operator.enter("history 1", "asked by")
        operator.enter("history 99", "say the list first")
        said = operator.heard
    for words in (
        *("Rule 1, deny, no end", "Rule 3, ask, has ended", "    ! argv: a wildcard stands"),
        *("Credential GH_TOKEN\n", "Credential ADMIN_KEY, the agent has it"),
        *("Credential PGPASSWORD, capsule web", "Ended 1, ended by the operator after 0:00, web"),
        *("Ended 2, done, exit 0 after", "denied by the operator", "expired: nobody answered"),
        "cancelled: its caller went away",
    ):
        assert words in said, words


def test_what_the_broker_refuses_is_said(broker: OperatorPlaybook) -> None:
    broker.refusals[KillRequest] = Failed(0, "bad_request", "nothing of that id runs")
    with listening(broker) as operator:
        operator.enter("list", "output and the same number")
        code = code_of(operator, r"kill (\d+) ends it: gh")
        operator.enter(f"kill {code}", "Not done: nothing of that id runs")


def test_output_is_followed_held_while_a_request_is_answered_and_let_go(
    broker: OperatorPlaybook,
) -> None:
    with listening(broker) as operator:
        operator.enter("list", "output and the same number")
        code = code_of(operator, r"kill (\d+) ends it: gh")
        operator.enter(f"output {code}", "Its output follows")
        watch = broker.wait_call(Watch)
        assert (watch.id, watch.on) == ("u1", True)
        broker.push(Output("u1", 1, b"first line\n"))
        broker.push(Output("u1", 2, HOSTILE.encode() + b"\n"))
        operator.wait_said("Running, revoke all 123")
        broker.ask(a_request("r9"))
        number = operator.wait_ready()
        broker.push(Output("u1", 1, b"while it was answered\n" * 50))
        operator.enter("help", "A backslash marks")
        assert "while it was answered" not in operator.heard
        operator.enter(f"deny {number}", "Denied.")
        operator.wait_said("  out │ while it was answered", count=40)
        operator.wait_said("  ! 10 lines of it are left out")
        operator.enter("silent", "No output is said any more.")
        assert not broker.wait_call(Watch).on
        said = operator.heard
    assert "  out │ first line\n  err │ \\x1b[2J\\x1b]52;" in said
    assert all(char.isprintable() or char in "\n\a" for char in said)
    assert not re.search("^Running", said, re.MULTILINE)


def test_the_end_of_what_is_followed_is_said(broker: OperatorPlaybook) -> None:
    with listening(broker) as operator:
        operator.enter("list", "output and the same number")
        code = code_of(operator, r"kill (\d+) ends it: gh")
        operator.enter(f"output {code}", "Its output follows")
        broker.wait_call(Watch)
        broker.push(Output("u1", 1, b"no line end"))
        broker.end("u1", RequestState.DONE, outcome="time_limit", exit_code=124, running_s=90)
        operator.wait_said(
            "  out │ no line end\nIts output is over: ended at its time limit after 1:30"
        )
        operator.enter("silent", "None was said.")


def test_hostile_text_in_every_list_is_escapes_and_never_at_the_margin(
    broker: OperatorPlaybook,
) -> None:
    text = HOSTILE
    # A grant is named by its command; its text is the broker's own and has line breaks.
    quoted = STORED.replace('"30"', '"\\u001b[2J\\u202e"')
    broker.grants = (GrantView(text, text, quoted, 0, None, 3, note=text),)
    broker.rules = (RuleView(1, text, quoted, text, (text,)),)
    broker.credentials = (CredentialView(text, text, text, text, text, True, (text,)),)
    broker.history = (
        a_request(text, command=text, capsule=text, state=RequestState.DONE, outcome=text),
    )
    with listening(broker) as operator:
        operator.enter("grants", " ends all that runs.")
        operator.enter("grants 1", "│ trust_cwd = true")
        operator.enter("rules", "rules and a number")
        operator.enter("rules 1", "│ trust_cwd = true")
        operator.enter("credentials", "Credential \\x1b[2J")
        operator.enter("history", "history and a number")
        operator.enter("history 1", "asked by")
        said = operator.heard
    assert all(char.isprintable() or char in "\n\a" for char in said)
    assert not re.search("^Running", said, re.MULTILINE)


def test_a_real_command_is_listened_to_ended_and_said_to_be_ended_by_the_operator() -> None:
    script = "echo $TOKEN; echo on stderr >&2; exec tail -f /dev/null"
    with allowed("sh") as made, plain(made.broker) as operator:
        operator.wait_said("Nothing waits for an answer.")
        with made.agent.running("sh", "-c", script) as child:
            operator.wait_until(lambda: made.broker.ask("status")["running"] == 1, "it runs")
            operator.enter("list", "output and the same number")
            code = code_of(operator, r"kill (\d+) ends it: sh")
            operator.enter(f"output {code}", "Its output follows")
            operator.wait_said("  out │ [redacted:TOKEN]")
            operator.wait_said("  err │ on stderr")
            operator.enter(f"kill {code}", "It is being ended.")
            operator.wait_said("Its output is over: ended by the operator after ")
            assert b"the operator ended the command" in finish(child).stderr
        operator.enter("history", "history and a number")
        assert "Ended 1, ended by the operator after " in operator.heard
        assert made.token.encode() not in operator.written
