"""A terminal that goes away ends the picker, also where the kernel sends no signal for it.

SIGHUP reaches only the session whose controlling terminal it is. It refuses to know how a picker
ends: it raises the very signal. Invariant: it waits in the kernel and costs nothing.
"""

from __future__ import annotations

import os
import select
import signal
import threading


def watch_hangup(descriptor: int) -> None:
    """Send SIGHUP to this process once the terminal at `descriptor` has hung up."""
    threading.Thread(target=_wait, args=(descriptor,), name="hangup", daemon=True).start()


def _wait(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # no event is asked for: what ends the wait is the hang-up
    poll.poll()
    os.kill(os.getpid(), signal.SIGHUP)
