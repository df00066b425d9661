"""The operator: the installed picker on a real terminal, driven by keys, read from its screen.

It refuses to know widgets: it sees what a person sees, and waits as one does, until the prompt
says that it is ready.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from .broker import Broker, program
from .terminal import Terminal

# Whole screens of rows; more presses than rows means that the row is not there.
_MOVES_MAX = 40


class Picker(Terminal):
    """A picker attached to a broker."""

    def wait_ready(self, command: str) -> None:
        """Return when the prompt for this command is armed."""
        self.wait_for(rf"(?s){re.escape(command)}.*● ready")

    def tick(self, name: str) -> None:
        """Tick a credential, wherever its row is."""
        self._move_to(rf"› \[ \] {re.escape(name)}\b")
        self.press("space")
        self.wait_for(rf"\[x\] {re.escape(name)}\b")

    def move_to_run(self) -> None:
        """Put the cursor on *Run*: the deliberate key where nothing is ticked."""
        self._move_to(r"› *\[? *Run\b")

    def approve(self, command: str, *names: str) -> None:
        """Answer yes to this command, with these credentials."""
        self.wait_ready(command)
        for name in names:
            self.tick(name)
        if not names:
            self.move_to_run()
        self.press("enter")

    def _move_to(self, pattern: str) -> None:
        for _ in range(_MOVES_MAX):
            if re.search(pattern, self.text):
                return
            before = self._cursor()
            self.press("down")
            # The cursor, not the screen: its clock changes by itself, and a key pressed twice
            # would go one place too far.
            self.wait_until(lambda was=before: self._is_elsewhere(was), "the cursor moves")
        raise AssertionError(f"the cursor never came to {pattern!r}; the screen:\n{self.text}")

    def choose_term(self, words: str) -> None:
        """For how long the answer holds, by its words in the list of offers."""
        self.press("g")
        self.wait_for(r"› \(•\) ")
        self._move_to(rf"› \( \) {re.escape(words)}")
        self.press("enter")
        self.wait_for("asks to run[\\s\\S]*● ready")

    def _is_elsewhere(self, before: list[tuple[int, int]]) -> bool:
        """Whether the cursor is drawn at one place, another one: a screen may be half drawn."""
        now = self._cursor()
        return len(now) == 1 and now != before

    def _cursor(self) -> list[tuple[int, int]]:
        """Where the screen shows the cursor's sign."""
        lines = self.text.splitlines()
        return [(y, line.index("›")) for y, line in enumerate(lines) if "›" in line]


@contextmanager
def picker(broker: Broker, *, rows: int = 24, cols: int = 80) -> Generator[Picker]:
    """A picker on a terminal, attached, ended on the way out."""
    argv = [program("jackin-broker"), "attach"]
    running = Picker(argv, env=broker.env, cwd=str(broker.folder), rows=rows, cols=cols)
    try:
        yield running
    finally:
        running.end()
