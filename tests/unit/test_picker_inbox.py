"""What the picker knows of the desk."""

from __future__ import annotations

from jackin_broker.operator_protocol import RequestState
from jackin_picker.inbox import RECENT_MAX, Inbox
from support.operator_playbook import a_request


def test_the_oldest_waiting_request_is_asked_about() -> None:
    inbox = Inbox()
    inbox.replace((a_request("r1", state=RequestState.RUNNING), a_request("r2"), a_request("r3")))
    assert inbox.current is not None
    assert inbox.current.id == "r2"
    assert [view.id for view in inbox.under_way] == ["r1"]


def test_a_request_that_moved_on_is_not_asked_about() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"))
    inbox.take(a_request("r2"))
    inbox.take(a_request("r1", state=RequestState.APPROVED))
    assert inbox.current is not None
    assert inbox.current.id == "r2"
    inbox.take(a_request("r2", state=RequestState.EXPIRED))
    assert inbox.current is None
    assert [view.id for view in inbox.recent] == ["r2"]


def test_a_changed_request_keeps_its_place() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"))
    inbox.take(a_request("r2"))
    inbox.take(a_request("r1", reason="another"))
    assert inbox.current is not None
    assert (inbox.current.id, inbox.current.reason) == ("r1", "another")


def test_what_ended_is_remembered_up_to_a_limit_newest_first() -> None:
    inbox = Inbox()
    for number in range(RECENT_MAX + 5):
        inbox.take(a_request(f"r{number}"))
        inbox.take(a_request(f"r{number}", state=RequestState.DENIED))
    assert len(inbox.recent) == RECENT_MAX
    assert inbox.recent[0].id == f"r{RECENT_MAX + 4}"
    assert inbox.find("r0") is None


def test_after_a_loss_nothing_that_was_known_waits() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"))
    inbox.replace(())
    assert inbox.current is None
