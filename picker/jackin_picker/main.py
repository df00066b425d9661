"""`jackin-picker`: the program around the screens.

It refuses to know what is on them. Invariants: without a terminal it says so and draws nothing;
it leaves the terminal as it found it on SIGTERM and SIGHUP too; errors are one line and a hint.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from jackin_broker.errors import JackinError
from jackin_broker.operator_client import BlockingClient

from .hangup import watch_hangup

if TYPE_CHECKING:
    from .app import PickerApp

EXIT_FAILED: Final = 1
THEMES: Final = ("auto", "dark", "light")
EXIT_USAGE: Final = 2
_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
# A shell that exports these would fix the size for good: the terminal knows it, and says when it
# changes.
_SIZE_NAMES: Final = ("COLUMNS", "LINES")
# Giving a terminal its settings back takes milliseconds, on a loaded machine a second.
_LEAVE_LIMIT_S: Final = 3.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the picker; the exit status."""
    options = _parser().parse_args(argv)
    socket_path: Path | None = options.socket or _usual_socket()
    if socket_path is None:
        return _fail("no socket was given", "run: jackin-broker attach", EXIT_USAGE)
    if not all(os.isatty(descriptor) for descriptor in (0, 1, 2)):
        return _fail(
            "the picker needs a terminal on stdin, stdout and stderr",
            "without one, answer with: jackin-broker requests, jackin-broker decide",
            EXIT_FAILED,
        )
    try:
        # Before the screen is taken, so that the error is read where it is expected.
        BlockingClient(socket_path).close()
    except JackinError as error:
        return _fail(str(error), error.hint, EXIT_FAILED)
    if options.plain:
        from .plain import run_plain

        session = run_plain(socket_path)
        if session.failure is not None:
            return _fail(str(session.failure), session.failure.hint, EXIT_FAILED)
        return session.status
    for name in _SIZE_NAMES:
        os.environ.pop(name, None)
    # Textual takes a quarter of a second to import; the errors above do not wait for it.
    from .app import PickerApp

    gc.freeze()  # what was imported stays: looking through it again takes longer than a key may
    app = PickerApp(socket_path, look=options.theme, is_popup=options.popup)
    asyncio.run(_run(app))
    if app.failure:
        return _fail(app.failure, app.hint, EXIT_FAILED)
    return app.return_code or 0


async def _run(app: PickerApp) -> None:
    loop = asyncio.get_running_loop()

    def end(number: int, _: FrameType | None) -> None:
        # Not a handler of the loop: where the terminal has gone, Textual waits in it for output
        # that nobody takes, and a picker that stays counts as an operator who can answer.
        deadline = threading.Timer(_LEAVE_LIMIT_S, os._exit, (128 + number,))
        deadline.daemon = True
        deadline.start()
        app.handover.end()
        loop.call_soon_threadsafe(app.end_by_signal, number)

    for number in _END_SIGNALS:
        signal.signal(number, end)
    watch_hangup(sys.stdin.fileno())
    await app.run_async()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jackin-picker",
        description="Show what waits for an answer, and answer it. It can be left at any time.",
    )
    parser.add_argument("--socket", type=Path, help="the broker's operator.sock")
    parser.add_argument(
        "--plain", action="store_true", help="line by line, without a screen: for screen readers"
    )
    parser.add_argument(
        "--popup", action="store_true", help="end by itself when nothing waits any more"
    )
    parser.add_argument(
        "--theme",
        choices=THEMES,
        default="auto",
        help="auto: what JACKIN_PICKER_THEME or the terminal says, else dark",
    )
    return parser


def _usual_socket() -> Path | None:
    """Where a broker without settings of its own listens; `jackin-broker attach` knows better."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "jackin-exec" / "operator.sock" if runtime else None


def _fail(message: str, hint: str, status: int) -> int:
    sys.stderr.write(f"jackin-picker: error: {message}\n")
    if hint:
        sys.stderr.write(f"jackin-picker: hint: {hint}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
