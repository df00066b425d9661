"""The desk under load, and with more than one operator at it (DESIGN §6 and §7, CASES 3c)."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from jackin_broker import operator_protocol as op
from jackin_broker.operator_client import BlockingClient
from jackin_broker.protocol import ExecDenied, ExecPending, ExecResult, ExecStarted
from support.agent import finish
from support.allowed import Allowed, allowed
from support.broker import Broker
from support.desk import OperatorAtDesk
from support.raw_request import RawRequest
from support.real import wait_until

LAB = """[capsules.lab]
kind = "none"
host_binaries = ["sh"]
[capsules.lab.binaries.sh]
confine = false
"""
RAISED = """[limits]
waiting_per_capsule = 2000
ask_burst = 2000
ask_per_s = 2000
connections_per_capsule = 2000
"""
# Far above what a refusal takes, far below what any answer of a person would.
AT_ONCE_S = 5.0


@pytest.fixture
def desk() -> Generator[Allowed]:
    with allowed("true", asked=("sh", "printenv"), more=LAB) as running:
        yield running


class Screen:
    """One attached operator's client, and everything it was told."""

    def __init__(self, broker: Broker) -> None:
        self.client = BlockingClient(broker.runtime_dir / "operator.sock")
        attached = self.client.call(op.Attach(0, op.OPERATOR_PROTOCOL_VERSION))
        assert isinstance(attached, op.Attached)
        self.requests = {view.id: view for view in attached.requests}
        self.output = b""
        self.skipped = 0

    def hear(self, timeout_s: float = 20) -> op.Push | None:
        """The next push, noted."""
        push = self.client.next_push(timeout_s)
        if isinstance(push, op.RequestChanged):
            self.requests[push.request.id] = push.request
        elif isinstance(push, op.Output):
            self.output += push.data
            self.skipped += push.skipped_bytes
        return push

    def wait_state(self, request_id: str, *states: op.RequestState) -> op.RequestView:
        """The request once it is in one of these states."""
        until = time.monotonic() + 20
        while (view := self.requests.get(request_id)) is None or view.state not in states:
            assert time.monotonic() < until, f"{request_id} is {view and view.state}"
            self.hear(1)
        return view

    def decide(self, view: op.RequestView, *, approve: bool) -> op.Decided:
        reply = self.client.call(op.Decide(0, view.id, op.view_digest(view), approve))
        assert isinstance(reply, op.Decided)
        return reply

    def close(self) -> None:
        self.client.close()


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_of_a_thousand_requests_those_that_fit_wait_and_the_rest_are_refused_at_once(
    desk: Allowed,
) -> None:
    """CASES 3c: a looping model floods the approver (posthog#67967, cadis#1107)."""
    path = desk.broker.socket_of("web")
    with ExitStack() as open_requests:
        waiting, refused = 0, 0
        for number in range(1000):
            request = RawRequest(path, "sh", "-c", str(number))
            if number < 32:
                request.reply(ExecPending)
                open_requests.callback(request.close)
                waiting += 1
                continue
            began = time.monotonic()
            assert request.reply(ExecDenied).code == "too_many_pending"
            assert time.monotonic() - began < AT_ONCE_S
            request.close()
            refused += 1
        assert len(OperatorAtDesk(desk.broker).waiting()) == waiting == 32
        assert refused == 968
        # What is refused is counted on the record, not repeated.
        assert sum(line["event"] == "refused" for line in desk.broker.audit()) < 100
        other = RawRequest(desk.broker.socket_of("lab"), "sh", "-c", "x")
        open_requests.callback(other.close)
        other.reply(ExecPending)


def test_requests_that_were_cancelled_have_paid_too(desk: Allowed) -> None:
    """DESIGN §6: a token bucket, burst 40; cancelled ones cost too."""
    path = desk.broker.socket_of("web")
    codes: list[str] = []
    for _ in range(60):
        with closing(RawRequest(path, "sh", "-c", "x")) as request:
            try:
                request.reply(ExecPending)
            except AssertionError as denied:
                codes.append(str(denied))
    assert codes
    assert all("too_many_pending" in code for code in codes)


def test_a_thousand_may_wait_where_the_limits_are_raised() -> None:
    """DESIGN §15: no error, less than 64 KiB each."""
    with allowed("true", asked=("sh",), more=RAISED) as desk, ExitStack() as open_requests:
        path, operator = desk.broker.socket_of("web"), OperatorAtDesk(desk.broker)
        screen = Screen(desk.broker)
        open_requests.callback(screen.close)
        before = resident_bytes(desk.broker.pid)
        requests: list[RawRequest] = []
        for number in range(1000):
            requests.append(RawRequest(path, "sh", "-c", f"echo {number}"))
            open_requests.callback(requests[-1].close)
        for request in requests:
            request.reply(ExecPending)
        views = operator.waiting()
        assert [view.position for view in views] == list(range(1, 1001))
        assert (resident_bytes(desk.broker.pid) - before) / 1000 < 64 * 1024
        began = time.monotonic()
        assert operator.decide(views[500]).accepted
        assert time.monotonic() - began < AT_ONCE_S
        done = operator.call(op.DenyAll(0, "web", "enough"), op.Done)
        assert done.notes == ("denied 999 requests",)
        assert operator.waiting() == ()
        for number, request in enumerate(requests):
            if f"echo {number}" == views[500].args[1]:
                request.reply(ExecStarted)
                assert request.reply(ExecResult).exit_code == 0
            else:
                assert request.reply(ExecDenied).code == "operator_denied"


def test_two_operators_see_one_queue_and_the_first_answer_counts(desk: Allowed) -> None:
    """DESIGN §7; the other is told."""
    with closing(Screen(desk.broker)) as one, desk.agent.running("sh", "-c", "exit 3") as child:
        view = OperatorAtDesk(desk.broker).wait()
        with closing(Screen(desk.broker)) as other:
            seen = one.wait_state(view.id, op.RequestState.WAITING)
            assert op.view_digest(other.requests[view.id]) == op.view_digest(seen)
            assert one.decide(seen, approve=True).accepted
            late = other.decide(seen, approve=False)
            assert (late.accepted, late.code) in (
                (False, "already_decided"),
                (False, "unknown_request"),  # it has ended, and left the desk
            )
            assert finish(child).returncode == 3
            assert other.wait_state(view.id, op.RequestState.DONE).exit_code == 3
            assert one.wait_state(view.id, op.RequestState.DONE).decided_by == "operator"


def test_two_identical_requests_and_one_approval_are_one_run(desk: Allowed) -> None:
    """CASES 3c: one click released N identical waiting calls (ha-mcp#2399)."""
    operator = OperatorAtDesk(desk.broker)
    argv = ("sh", "-c", "echo ran >> ran")
    with desk.agent.running(*argv) as one, desk.agent.running(*argv) as other:
        first = operator.wait(count=2)
        answers = [operator.decide(first) for _ in range(3)]
        assert [answer.accepted for answer in answers] == [True, False, False]
        wait_until(lambda: one.poll() is not None or other.poll() is not None, "one ran")
        assert len(operator.waiting()) == 1
        assert (desk.work / "ran").read_text() == "ran\n"
        operator.decide(operator.wait(), approve=False)
        assert sorted([finish(one).returncode, finish(other).returncode]) == [0, 126]


def test_deny_all_is_about_one_capsule(desk: Allowed) -> None:
    """DESIGN §6: "deny all from this capsule" is one key."""
    operator = OperatorAtDesk(desk.broker)
    with ExitStack() as open_requests:
        made = [
            RawRequest(desk.broker.socket_of(name), "sh", "-c", name) for name in ("web", "lab")
        ]
        made += [RawRequest(desk.broker.socket_of("web"), "sh", "-c", "y")]
        for request in made:
            open_requests.callback(request.close)
            request.reply(ExecPending)
        done = operator.call(op.DenyAll(0, "web", "you loop"), op.Done)
        assert done.notes == ("denied 2 requests",)
        for request in (made[0], made[2]):
            denied = request.reply(ExecDenied)
            assert (denied.code, "you loop" in denied.reason) == ("operator_denied", True)
        assert [view.capsule for view in operator.waiting()] == ["lab"]
        assert operator.call(op.DenyAll(0, ""), op.Done).notes == ("denied 1 request",)


def test_the_next_prompt_says_what_differs_from_the_last_that_was_approved(desk: Allowed) -> None:
    operator = OperatorAtDesk(desk.broker)
    with desk.agent.running("sh", "-c", "exit 0") as child:
        assert operator.wait().differences == ()
        operator.decide(operator.wait())
        finish(child)
    with desk.agent.running("sh", "-c", "exit 0", "--force") as child:
        view = operator.wait()
        assert view.differences == ("argument 3: added '--force'",)
        assert "argument 3: added '--force'" in desk.broker.run("requests").stdout
        operator.decide(view, approve=False)
        finish(child)


def test_who_watches_sees_what_a_command_writes_without_the_value(desk: Allowed) -> None:
    """DESIGN §7: live redacted output; two may watch, and one who looks in late sees the last."""
    code = 'echo "early $TOKEN"; read line; echo "late $TOKEN" >&2'
    operator = OperatorAtDesk(desk.broker)
    with (
        closing(Screen(desk.broker)) as one,
        closing(Screen(desk.broker)) as other,
        desk.agent.running("sh", "-c", code, stdin=-1) as child,
    ):
        view = operator.wait()
        operator.decide(view, "TOKEN")
        assert child.stdout is not None
        assert child.stdout.readline() == b"early [redacted:TOKEN]\n"
        for screen in (one, other):
            assert isinstance(screen.client.call(op.Watch(0, view.id)), op.Done)
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
        child.stdin = None
        finish(child)
        for screen in (one, other):
            screen.wait_state(view.id, op.RequestState.DONE)
            assert b"early [redacted:TOKEN]\n" in screen.output
            assert b"late [redacted:TOKEN]\n" in screen.output
            assert desk.token.encode() not in screen.output


def test_a_watcher_that_does_not_read_never_slows_the_command(desk: Allowed) -> None:
    """What it missed is left out and counted; the prompts still come through."""
    operator = OperatorAtDesk(desk.broker)
    code = "read go; head -c 50000000 /dev/zero | tr '\\0' x; echo end"
    with (
        closing(Screen(desk.broker)) as idle,
        desk.agent.running("sh", "-c", code, stdin=-1) as child,
    ):
        view = operator.wait()
        operator.decide(view)
        idle.wait_state(view.id, op.RequestState.RUNNING)
        idle.client.call(op.Watch(0, view.id))
        read: list[int] = []
        reader = threading.Thread(target=lambda: read.append(len(finish(child).stdout)))
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.close()
        child.stdin = None
        reader.start()
        reader.join(60)
        assert read == [50_000_004]
        idle.wait_state(view.id, op.RequestState.DONE)
        assert len(idle.output) + idle.skipped <= 50_000_004
        assert len(idle.output) < 50_000_004


def test_what_ended_is_remembered_newest_first(desk: Allowed) -> None:
    operator = OperatorAtDesk(desk.broker)
    desk.agent.run("true")
    with desk.agent.running("sh", "-c", "exit 4") as child:
        operator.decide(operator.wait(), "TOKEN")
        finish(child)
    with desk.agent.running("sh", "-c", "no") as child:
        operator.decide(operator.wait(), approve=False)
        finish(child)

    def ended() -> list[tuple[str, str, str, int | None, tuple[str, ...]]]:
        return [
            (view.state.value, view.outcome, view.decided_by, view.exit_code, view.lent)
            for view in operator.call(op.ListHistory(0), op.Requests).requests
        ]

    wait_until(lambda: len(ended()) == 3, "three have ended")
    assert ended() == [
        ("denied", "operator_denied", "operator", None, ()),
        ("done", "exit", "operator", 4, ("TOKEN",)),
        ("done", "exit", "rule", 0, ("TOKEN",)),
    ]
    newest = operator.call(op.ListHistory(0, 1), op.Requests).requests
    assert [view.state for view in newest] == [op.RequestState.DENIED]


def test_rules_and_credentials_are_listed_without_values(desk: Allowed) -> None:
    operator = OperatorAtDesk(desk.broker)
    rules = operator.call(op.ListRules(0), op.Rules).rules
    assert [(rule.number, rule.action) for rule in rules] == [(1, "allow")]
    assert 'argv = ["true", "..."]' in rules[0].text
    assert any("options too" in warning for warning in rules[0].warnings)
    rows = operator.call(op.ListCredentials(0), op.Credentials).rows
    assert [(row.name, row.source.split()[0], row.on_demand) for row in rows] == [
        ("TOKEN", "file", True)
    ]


def test_what_was_approved_can_be_ended_while_its_value_is_fetched(desk: Allowed) -> None:
    """DESIGN §6: revoking kills what was approved, also where it has not begun.

    The value never comes: nobody opens the gate, and nobody waits for it any more.
    """
    fetch = f"read x < {desk.broker.folder}/gate; cat {desk.broker.folder}/value"
    os.mkfifo(desk.broker.folder / "gate")
    (desk.broker.folder / "value").write_text("tok-" + secrets.token_hex(12))
    text = desk.broker.config_file.read_text()
    slow = f'TOKEN = {{ command = ["sh", "-c", "{fetch}"], on_demand = true }}'
    lines = [slow if line.startswith("TOKEN") else line for line in text.splitlines()]
    desk.broker.write_config("\n".join(lines) + "\n")
    assert desk.broker.run("reload").returncode == 0
    operator = OperatorAtDesk(desk.broker)
    with (
        closing(Screen(desk.broker)) as screen,
        desk.agent.running("sh", "-c", "echo ran > ran") as child,
    ):
        view = operator.wait()
        operator.decide(view, "TOKEN")
        screen.wait_state(view.id, op.RequestState.RESOLVING)
        report = operator.call(op.RevokeAll(0, kill=True), op.Done)
        assert "ended 1 command" in report.notes
        done = finish(child)
        assert (done.returncode, b"before it began" in done.stderr) == (126, True)
        ended = screen.wait_state(view.id, op.RequestState.DENIED)
        assert (ended.lent, ended.outcome) == ((), "operator")
    assert operator.call(op.ListRequests(0), op.Requests).requests == ()
    assert not (desk.work / "ran").exists()
