"""From the command to the caller: redacted, streamed or gathered, never held whole.

It refuses to know what runs. Invariants: no byte leaves before the redactor let it go; a caller
that wants no stream gets each one capped after redaction, cut between characters; what a limit
keeps back is still read, redacted and counted.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Final

from . import protocol
from .connection import Channel
from .frames import Stream
from .guessing import Suspicion
from .intake import Intake
from .live_output import Feed
from .protocol import EndedBy
from .redact.needles import NeedleSet
from .redact.stream import Redactor

_log = logging.getLogger(__name__)

# Without data for so long the redactor may let at most three held bytes go (REDACTION.md §7): a
# peer that waits for the end of a line must not wait for ever. Longer than a burst's gaps.
SILENCE_S: Final = 0.04
# No command writes so much.
_ENDLESS: Final = 1 << 62
TRUNCATION_MARKER: Final = "[truncated: {size} bytes in all]"


class Output:
    """The sink of one command's two streams."""

    def __init__(
        self,
        connection: Channel,
        needles: NeedleSet,
        started: protocol.ExecStarted,
        *,
        streams: bool,
        max_bytes: int = 0,
        intake: Intake,
        suspicion: Suspicion,
        feed: Feed,
    ) -> None:
        """`max_bytes`: so much of both streams is passed on; 0 for all."""
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._started: protocol.ExecStarted | None = started
        self._intake = intake
        self._suspicion = suspicion
        self._feed = feed
        self._is_withheld = False
        self._silences: dict[Stream, asyncio.TimerHandle] = {}
        self._redactors = {
            stream: Redactor(needles, keeps_verdicts=True)
            for stream in (Stream.STDOUT, Stream.STDERR)
        }
        self._kept: dict[Stream, bytearray] | None = (
            None if streams else {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
        )
        self._left_bytes = max_bytes or _ENDLESS
        self.is_truncated = False
        self.sizes: Final = {Stream.STDOUT: 0, Stream.STDERR: 0}

    def announce(self) -> None:
        """Say once, and before any output, that the command runs."""
        if self._started is not None:
            self._connection.send(self._started)
            self._started = None

    def output(self, stream: Stream, data: bytes) -> None:
        self._redact(stream, lambda redactor: redactor.feed(data), data)
        self._watch_silence(stream)

    def output_end(self, stream: Stream) -> None:
        self._redact(stream, lambda redactor: redactor.finish())
        self._stop_watching(stream)

    def settle(self) -> None:
        """The command has ended: who watches is shown the rest."""
        self._redact(Stream.STDOUT, lambda _: b"", after=self._feed.finish)

    def drop(self) -> None:
        """Nobody is told any more, whatever is held or comes."""
        self._is_withheld = True
        for stream in tuple(self._silences):
            self._stop_watching(stream)

    def stdin_consumed(self, size: int) -> None:
        self._intake.stdin_consumed(size)

    @property
    def redacted_count(self) -> int:
        """How many masks the two streams have."""
        return sum(redactor.redacted_count for redactor in self._redactors.values())

    def text(self, stream: Stream) -> str | None:
        """The capped text of a stream that was not streamed; None for one that was."""
        if self._kept is None:
            return None
        kept, size = self._kept[stream], self.sizes[stream]
        if size == len(kept):
            return kept.decode("utf-8", "replace")
        whole = _cut_between_characters(bytes(kept)).decode("utf-8", "replace")
        return whole + TRUNCATION_MARKER.format(size=size)

    def _watch_silence(self, stream: Stream) -> None:
        """A prompt's last bytes may begin a needle's form: after a while they are shown."""
        self._stop_watching(stream)
        is_held = self._redactors[stream].held_bytes or self._feed.holds
        if is_held and not self._is_withheld:
            self._silences[stream] = self._loop.call_later(SILENCE_S, self._silent, stream)

    def _silent(self, stream: Stream) -> None:
        self._redact(stream, Redactor.idle, after=self._feed.idle)

    def _stop_watching(self, stream: Stream) -> None:
        timer = self._silences.pop(stream, None)
        if timer is not None:
            timer.cancel()

    def _redact(
        self,
        stream: Stream,
        work: Callable[[Redactor], bytes],
        raw: bytes = b"",
        after: Callable[[], None] | None = None,
    ) -> None:
        """Pass on what the redactor lets go; when it fails, or is used to guess, the run ends."""
        if self._is_withheld:
            return
        redactor = self._redactors[stream]
        try:
            clean = work(redactor)
            misses = redactor.take_near_misses()
            self._feed.put(stream, raw, redactor.take_verdicts())
            if after is not None:
                after()
        except Exception as error:  # data must not stop us; what is not redacted stays here
            # Its message could quote what was looked for, so only its kind and place are told.
            place = "".join(traceback.format_tb(error.__traceback__))
            kind = type(error).__name__
            _log.error("redaction failed (%s), the rest of the output is withheld\n%s", kind, place)
            self._withhold(EndedBy.INTERNAL_ERROR, "the output could not be redacted")
            return
        self._pass_on(stream, clean)
        if misses and (spent := self._suspicion.note(misses, now_s=self._loop.time())):
            _log.warning("guesses at %s: the command is ended", ", ".join(spent))
            self._withhold(EndedBy.GUESSING, f"someone guesses at {', '.join(spent)}")

    def _withhold(self, ended_by: EndedBy, words: str) -> None:
        self._is_withheld = True
        self._intake.leave(ended_by, words)

    def _pass_on(self, stream: Stream, data: bytes) -> None:
        self.announce()
        self.sizes[stream] += len(data)
        if len(data) > self._left_bytes:
            data = data[: self._left_bytes]
            self.is_truncated = True
        self._left_bytes -= len(data)
        if self._kept is None:
            self._connection.send_data(stream, data)
            return
        kept = self._kept[stream]
        kept += data[: protocol.UNSTREAMED_OUTPUT_MAX_BYTES - len(kept)]
        self.is_truncated = self.is_truncated or self.sizes[stream] > len(kept)


def _cut_between_characters(data: bytes) -> bytes:
    """Without the beginning of a character that the cap cut in two, at most three bytes."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        needed = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return data[:-back] if needed > back else data
    return data
