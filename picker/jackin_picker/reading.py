"""The terminal's input, as Textual reads it, but for one thing: when each key arrived.

Textual stamps a key when it is taken apart, and on a loaded machine the keys of one paste are
taken apart many milliseconds after each other. It refuses to know what keys mean. Invariants: the
keys of one read arrived at one moment, so that a paste never looks like keys that were pressed one
by one; a byte that is no UTF-8 is a character that means nothing, and ends nothing.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from typing import Final

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

# As Textual has them: how much is read at once, and how long an Esc waits for what may follow.
_READ_BYTES: Final = 4096
_LOOK_S: Final = 0.1


class ReadDriver(LinuxDriver):
    """Textual's driver of a terminal, with the stamps of `jackin_picker.guard`."""

    def run_input_thread(self) -> None:
        """Read until the application gives the terminal back."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_LOOK_S):
                    text = decode(os.read(self.fileno, _READ_BYTES))
                    self._take(parser, text)
                for event in parser.tick():
                    self.process_message(event)

    def _take(self, parser: XTermParser, text: str) -> None:
        arrived_s: float | None = None
        for event in parser.feed(text) if text else ():
            if arrived_s is None:
                arrived_s = event.time
            event.time = arrived_s
            self.process_message(event)
