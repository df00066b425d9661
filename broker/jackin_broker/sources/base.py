"""The contract of a source: from where a value is to its bytes, or a `SourceError`.

A source runs inside its resolver's deadline and may be cancelled at any await; it then leaves
nothing running. It never logs, and what it raises names the binding and never a value. To add
one: a struct in `bindings.py`, a file here, a line in `resolver.py`, and a short subclass of the
contract test.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from ..errors import SourceError, SourceFault

# The largest credential seen in the wild, a kubeconfig with certificates, is under 100 KB; a
# larger "value" is a log or a disk image, and its needles would fill the redactor.
VALUE_MAX_BYTES: Final = 1024 * 1024

T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)


@dataclass
class Lookup:
    """One value that is being fetched, for the binding `name`.

    A source sets `waits_for_unlock` when it knows that only a person can go on; at the deadline
    the answer is then "locked", not "timed out".
    """

    name: str
    waits_for_unlock: bool = False

    def fault(self, fault: SourceFault, what: str, *, hint: str = "") -> SourceError:
        """The error for the source to raise; the words begin with the binding's name."""
        return SourceError(fault, f"credential {self.name}: {what}", hint=hint)


class SourceReader(ABC, Generic[S_contra]):
    """Reads values of one kind of source."""

    @abstractmethod
    async def read(self, source: S_contra, lookup: Lookup) -> bytes:
        """The value's bytes.

        Raises: SourceError.
        """

    async def close(self) -> None:
        """End what was kept warm; most sources keep nothing."""


def one_newline_less(value: bytes) -> bytes:
    """What a program or an editor wrote, without the newline that ends its last line."""
    return value.removesuffix(b"\n")


def check_size(value: bytes, lookup: Lookup) -> bytes:
    """The value, which is neither empty nor too long.

    Raises: SourceError.
    """
    if not value:
        raise lookup.fault(
            SourceFault.FAILED,
            "the value is empty",
            hint=f"give it one, or: jackin-broker credential remove {lookup.name}",
        )
    if len(value) > VALUE_MAX_BYTES:
        raise lookup.fault(
            SourceFault.FAILED,
            f"the value is over {VALUE_MAX_BYTES // 1024} KiB",
            hint="a credential is short: look at what its source points to",
        )
    return value


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, done in a thread of its own.

    For file systems, which may hang. A thread that hangs is left behind when this is cancelled;
    being a daemon it does not keep the program from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not done.done():
            outcome()

    def run() -> None:
        try:
            result = work()
            outcome = partial(done.set_result, result)
        except BaseException as error:  # handed over whole to who awaits it
            outcome = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended; nobody waits
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name="jackin-source", daemon=True).start()
    return await done
