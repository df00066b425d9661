"""What the picker knows of the desk."""

from __future__ import annotations

from jackin_broker.operator_protocol import RequestState
from jackin_picker.inbox import RECENT_MAX, Inbox
from support.operator_playbook import a_request


def test_the_oldest_waiting_request_is_asked_about() -> None:
    inbox = Inbox()
    inbox.replace(
        (a_request("r1", state=RequestState.RUNNING), a_request("r2"), a_request("r3")), 0.0
    )
    assert inbox.current is not None
    assert inbox.current.id == "r2"
    assert [view.id for view in inbox.under_way] == ["r1"]


def test_a_request_that_moved_on_is_not_asked_about() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"), 0.0)
    inbox.take(a_request("r2"), 0.0)
    inbox.take(a_request("r1", state=RequestState.APPROVED), 0.0)
    assert inbox.current is not None
    assert inbox.current.id == "r2"
    inbox.take(a_request("r2", state=RequestState.EXPIRED), 0.0)
    assert inbox.current is None
    assert [view.id for view in inbox.recent] == ["r2"]


def test_a_changed_request_keeps_its_place() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"), 0.0)
    inbox.take(a_request("r2"), 0.0)
    inbox.take(a_request("r1", reason="another"), 0.0)
    assert inbox.current is not None
    assert (inbox.current.id, inbox.current.reason) == ("r1", "another")


def test_what_ended_is_remembered_up_to_a_limit_newest_first() -> None:
    inbox = Inbox()
    for number in range(RECENT_MAX + 5):
        inbox.take(a_request(f"r{number}"), 0.0)
        inbox.take(a_request(f"r{number}", state=RequestState.DENIED), 0.0)
    assert len(inbox.recent) == RECENT_MAX
    assert inbox.recent[0].id == f"r{RECENT_MAX + 4}"
    assert inbox.find("r0") is None


def test_after_a_loss_nothing_that_was_known_waits() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"), 0.0)
    inbox.replace((), 0.0)
    assert inbox.current is None


def test_the_chosen_request_is_asked_about_until_it_waits_no_more() -> None:
    inbox = Inbox()
    for name in ("r1", "r2", "r3"):
        inbox.take(a_request(name), 0.0)
    inbox.choose("r2")
    assert inbox.current is not None
    assert inbox.current.id == "r2"
    inbox.take(a_request("r2", state=RequestState.DENIED), 1.0)
    assert inbox.current is not None
    assert inbox.current.id == "r1"


def test_the_next_one_is_the_one_behind_and_after_the_last_the_first() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"), 0.0)
    inbox.take(a_request("r2"), 0.0)
    assert [getattr(inbox.after(name), "id", None) for name in ("r1", "r2", "r9")] == [
        "r2",
        "r1",
        None,
    ]


def test_a_change_of_a_waiting_request_gives_it_no_more_time() -> None:
    inbox = Inbox()
    view = a_request("r1", expires_in_s=300)
    inbox.take(view, 10.0)
    inbox.take(a_request("r1", reason="another", expires_in_s=300), 100.0)
    assert inbox.left_s(view, 110.0) == 200.0


def test_how_long_it_runs_is_counted_from_when_the_broker_started_it() -> None:
    inbox = Inbox()
    inbox.take(a_request("r1"), 0.0)
    running = a_request("r1", state=RequestState.RUNNING, running_s=5)
    inbox.take(running, 100.0)
    assert inbox.lasted_s(running, 101.0) == 6.0
    inbox.take(a_request("r1", state=RequestState.RUNNING, running_s=0), 102.0)
    assert inbox.lasted_s(running, 110.0) == 15.0
