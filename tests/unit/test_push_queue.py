"""What an operator's client keeps of the pushes that nobody reads."""

from __future__ import annotations

import pytest

from jackin_broker.operator_protocol import Goodbye, Output, RequestChanged, RequestState
from jackin_broker.push_queue import OUTPUT_BACKLOG_MAX_BYTES, PushQueue
from support.operator_playbook import a_request


def test_pushes_come_out_in_order() -> None:
    queue = PushQueue()
    pushes = [Output("r1", 1, b"a"), RequestChanged(a_request()), Goodbye("stop")]
    for push in pushes:
        queue.put(push)
    assert [queue.get() for _ in pushes] == pushes
    with pytest.raises(IndexError):
        queue.get()


def test_of_a_request_only_the_newest_state_is_kept() -> None:
    queue = PushQueue()
    for number in range(10_000):
        queue.put(RequestChanged(a_request(position=number)))
    queue.put(RequestChanged(a_request("r2")))
    newest = RequestChanged(a_request(state=RequestState.RUNNING))
    queue.put(newest)
    assert len(queue) == 2
    assert queue.get() == newest
    assert queue.get() == RequestChanged(a_request("r2"))


def test_old_output_is_dropped_and_counted_and_nothing_else_is() -> None:
    queue = PushQueue()
    queue.put(Goodbye("stop"))
    piece = bytes(64 * 1024)
    for _ in range(100):
        queue.put(Output("r1", 1, piece))
    kept = len(queue) - 1
    assert kept * len(piece) <= OUTPUT_BACKLOG_MAX_BYTES
    assert queue.dropped_bytes == (100 - kept) * len(piece)
    assert queue.get() == Goodbye("stop")
