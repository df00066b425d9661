"""When a key arrived: the guard's paste is told by it, however slowly the keys are taken apart."""

from __future__ import annotations

import asyncio
import os
import pty
import time
import tty
from collections.abc import Iterator
from threading import Event, Thread

import pytest
from textual import events
from textual.app import App
from textual.message import Message

from jackin_picker.reading import ReadDriver

LIMIT_S = 20.0


class SlowReader(ReadDriver):
    """A machine so loaded that the next key is taken apart only when the clock has moved on."""

    keys: list[events.Key]
    enough: Event

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key):
            self.keys.append(message)
            started = time.monotonic()
            while time.monotonic() - started < 0.05:
                pass
            if message.key == "enter":
                self.enough.set()


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("text", [b" x\r", b"\xffx\r"], ids=["paste", "no UTF-8"])
def test_the_keys_of_one_read_arrived_at_one_moment(terminal: tuple[int, int], text: bytes) -> None:
    ours, theirs = terminal

    async def made() -> SlowReader:
        return SlowReader(App[None](), size=(80, 24))

    reader = asyncio.run(made())
    reader.fileno, reader.keys, reader.enough = theirs, [], Event()
    os.write(ours, text)
    reading = Thread(target=reader.run_input_thread)
    reading.start()
    try:
        assert reader.enough.wait(LIMIT_S)
    finally:
        reader.exit_event.set()
        reading.join(LIMIT_S)
    assert not reading.is_alive()
    assert [key.key for key in reader.keys][-2:] == ["x", "enter"]
    assert len({key.time for key in reader.keys}) == 1
