"""What ended, newest first, within bounds."""

from __future__ import annotations

from jackin_broker.history import HISTORY_MAX, HISTORY_MAX_BYTES, History
from support.operator_playbook import a_request


def test_history_is_newest_first_and_bounded_by_count() -> None:
    history = History()
    for number in range(HISTORY_MAX + 5):
        history.add(a_request(str(number)), 100)
    views = history.newest()
    assert len(views) == HISTORY_MAX
    assert views[0].id == str(HISTORY_MAX + 4)
    assert [view.id for view in history.newest(2)] == [str(HISTORY_MAX + 4), str(HISTORY_MAX + 3)]


def test_history_is_bounded_by_size() -> None:
    history = History()
    for number in range(9):
        history.add(a_request(str(number)), HISTORY_MAX_BYTES // 4)
    assert [view.id for view in history.newest()] == ["8", "7", "6", "5"]
    history.add(a_request("longest"), HISTORY_MAX_BYTES + 1)
    assert history.newest() == ()
