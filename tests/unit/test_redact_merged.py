"""The merged view of a command's streams. Whose rule: REDACTION §7 ("a second pass over the merged
order") and §9.7, issue "Redaction that nobody gets past": halves on both."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.bindings import Redact
from jackin_broker.redact.forms import Form
from jackin_broker.redact.merged import MergedView, Piece
from jackin_broker.redact.needles import NeedleSet, build, of_forms
from jackin_broker.redact.projection import MAX_ESCAPE_BYTES, MAX_IGNORED_BYTES
from jackin_broker.redact.stream import Redactor, redact_all
from support.redaction_strategies import Scene, bounded, scenes

VALUE = b"tok_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQ7rT"
NEEDLES = build([("A", VALUE, Redact.ON)])
MARKER = b"[redacted:A]"


class Command:
    """A command with two streams, each with its redactor, and the view of both."""

    def __init__(
        self, needles: NeedleSet = NEEDLES, *, backlog: int = 10_000, is_watched: bool = True
    ) -> None:
        self.view: MergedView[str] = MergedView(needles, backlog_bytes=backlog)
        self.redactors = {name: Redactor(needles, keeps_verdicts=True) for name in "oe"}
        self.pieces: list[Piece[str]] = []
        if is_watched:
            self.pieces += self.view.start()

    def _do(self, stream: str, raw: bytes, work: Callable[[Redactor], bytes]) -> None:
        redactor = self.redactors[stream]
        work(redactor)
        self.pieces += self.view.put(stream, raw, redactor.take_verdicts())

    def write(self, stream: str, raw: bytes) -> None:
        self._do(stream, raw, lambda redactor: redactor.feed(raw))

    def idle(self, stream: str) -> None:
        self._do(stream, b"", Redactor.idle)
        self.pieces += self.view.idle()

    def end(self) -> bytes:
        for stream in "oe":
            self._do(stream, b"", Redactor.finish)
        self.pieces += self.view.finish()
        return self.text

    @property
    def text(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)


@pytest.mark.parametrize("cut", range(1, len(VALUE)))
def test_halves_on_both_streams_are_masked_where_both_are_seen(cut: int) -> None:
    command = Command()
    command.write("o", b"< " + VALUE[:cut])
    command.write("e", VALUE[cut:] + b" >")
    assert command.end() == b"< " + MARKER + b" >"


def test_a_byte_here_and_a_byte_there_is_masked() -> None:
    command = Command()
    for at in range(len(VALUE)):
        command.write("oe"[at % 2], VALUE[at : at + 1])
        assert command.text in (b"", MARKER)
    assert command.end() == MARKER


def test_a_value_on_one_stream_with_another_line_between_is_masked_as_on_its_own() -> None:
    command = Command()
    command.write("o", b"< " + VALUE[:20])
    command.write("e", b"a warning\n")
    command.write("o", VALUE[20:] + b" >")
    assert command.end() == b"< a warning\n" + MARKER + b" >"


def test_one_value_has_one_marker_and_two_have_two() -> None:
    command = Command()
    command.write("o", VALUE + VALUE)
    command.write("e", VALUE)
    assert command.end() == 3 * MARKER
    assert [piece.stream for piece in command.pieces] == ["o", "o", "e"]


def test_what_leaves_is_each_streams_own_bytes_in_the_order_of_writing() -> None:
    command = Command()
    writes = [("o", b"one\n"), ("e", b"two\n"), ("o", b"three\n"), ("e", b"four\n")]
    for stream, raw in writes:
        command.write(stream, raw)
    assert [tuple(piece) for piece in command.pieces] == writes
    assert command.end() == b"one\ntwo\nthree\nfour\n"


def test_who_looks_in_late_sees_the_last_of_it_and_no_half_of_a_value() -> None:
    for size in range(1, 60):
        command = Command(backlog=size, is_watched=False)
        command.write("o", b"x" * 100_000 + VALUE[:20])
        command.write("e", VALUE[20:] + b" ~~~~")
        before = command.view.start()
        shown = b"".join(piece.data for piece in before)
        assert shown == (b" ~~~~"[-size:] if size < 45 else b"x" * (size - 45) + MARKER + b" ~~~~")
        command.write("o", b"!")
        assert command.text == b"!"


def test_a_half_that_waited_since_long_before_is_not_shown_by_its_other_half() -> None:
    """Its beginning is no longer there, but its own stream's redactor remembers."""
    command = Command(backlog=100, is_watched=False)
    command.write("o", VALUE[:20])
    command.write("e", b"y" * 200_000)
    command.pieces += command.view.start()
    assert command.text == b"y" * 100
    command.write("o", VALUE[20:] + b".")
    assert command.end() == b"y" * 100 + b"."


def test_a_stream_whose_end_is_held_does_not_hold_the_other() -> None:
    command = Command()
    command.write("o", VALUE[:20])
    for _ in range(50):
        command.write("e", b"~" * 4000)
    assert command.text == b"~" * 200_000
    assert int(repr(command.view).split()[2]) == 0
    command.write("o", b"~")
    assert command.text == b"~" * 200_000 + VALUE[:20] + b"~"


def test_what_is_kept_is_bounded_and_says_nothing_of_itself() -> None:
    command = Command(backlog=1000, is_watched=False)
    for _ in range(100):
        command.write("o", VALUE + b"z" * 4000)
    assert "z" not in repr(command.view)
    size = int(repr(command.view).split()[2])
    assert size <= 1000 + NEEDLES.longest + 17 * 1024
    assert command.end() == b""


def test_every_byte_is_shown_or_dropped_or_held_and_counted_as_such() -> None:
    command = Command(backlog=100, is_watched=False)
    view = command.view
    kept = 100 + NEEDLES.longest + MAX_IGNORED_BYTES + MAX_ESCAPE_BYTES
    command.write("o", b"x" * 50)
    command.write("o", b"x" * (kept - 50))
    assert (view.dropped_bytes, view.held_bytes, view.is_started) == (0, 0, False)
    command.write("e", b"y" * 7)
    assert view.dropped_bytes == 7
    command.write("e", b"z" * kept)  # all of it is kept, and nothing else
    assert view.dropped_bytes == 7 + kept
    command.write("e", b"~" * (kept + 5))
    assert view.dropped_bytes == 7 + 2 * kept + 5
    assert repr(view) == f"<merged view, {kept} bytes>"
    command.pieces += view.start()
    assert (view.dropped_bytes, view.held_bytes, view.is_started) == (
        2 * kept + 12 + kept - 100,
        0,
        True,
    )
    command.write("o", VALUE[:10])
    assert view.held_bytes == 10
    command.write("o", b"!")
    assert (view.held_bytes, command.text) == (0, b"~" * 100 + VALUE[:10] + b"!")


def test_what_was_said_of_the_beginning_of_a_flood_is_not_said_of_its_end() -> None:
    command = Command(backlog=100, is_watched=False)
    most = 100 + NEEDLES.longest + MAX_IGNORED_BYTES + MAX_ESCAPE_BYTES
    command.write("o", b"~" * (most - 100) + VALUE + b"!" * 100)
    command.pieces += command.view.start()
    assert command.end() == b"!" * 100


def test_a_flood_that_is_watched_is_shown_and_what_waits_at_the_end_too() -> None:
    command = Command(backlog=100)
    flood = b"~" * (200 + NEEDLES.longest + MAX_IGNORED_BYTES + MAX_ESCAPE_BYTES)
    command.write("o", flood)
    assert command.text == flood
    command.write("e", VALUE[:5])
    assert command.end() == flood + VALUE[:5]


def test_less_than_the_backlog_is_shown_whole() -> None:
    command = Command(backlog=100, is_watched=False)
    writes = [("o", b"one.\n"), ("e", b"two.\n"), ("e", b"and.\n"), ("o", b"three.\n")]
    for stream, raw in writes:
        command.write(stream, raw)
    shown = command.view.start()
    assert b"".join(piece.data for piece in shown) == b"one.\ntwo.\nand.\nthree.\n"
    assert [piece.stream for piece in shown] == ["o", "e", "o"]
    assert command.view.dropped_bytes == 0


def test_a_prompt_that_begins_like_a_value_appears_after_a_silence() -> None:
    command = Command()
    command.write("o", b"say to")
    command.idle("o")
    assert command.text == b"say to"
    command.write("e", VALUE[2:])
    assert command.end() == b"say to" + MARKER


def test_what_both_streams_made_a_value_is_not_told_again_when_its_own_stream_masks_it() -> None:
    command = Command()
    command.write("o", VALUE[:20])
    command.write("e", VALUE[20:])
    command.write("o", VALUE[20:] + b"!")
    assert command.end() == MARKER + b"!"


def test_who_looks_in_late_sees_it_in_the_order_of_writing() -> None:
    command = Command(is_watched=False)
    command.write("o", b"~~" + VALUE[:20])
    command.write("e", b"!")
    command.write("o", VALUE[20:] + b"~.")
    command.pieces += command.view.start()
    assert command.text == b"~~" + MARKER + b"!~."


def test_a_value_that_begins_inside_one_of_both_streams_has_no_marker_of_its_own() -> None:
    values = (b"k9-Sup3r-ab", b"ab-second-Val7e")
    forms = [(at, Form(value)) for at, value in enumerate(values)]
    command = Command(of_forms(["A", "B"], forms, {}))
    command.write("e", values[0][:-2])
    command.write("o", values[1] + b".")
    assert command.end() == MARKER + b"."


@given(scenes(), st.randoms(use_true_random=False), st.booleans())
@bounded(120)
def test_no_cut_and_no_stream_shows_a_needle(
    scene: Scene, random: Random, is_watched: bool
) -> None:
    """What is joined is masked as if it were one stream, and each stream as if it were alone."""
    cuts = sorted(random.choices(range(len(scene.data) + 1), k=6))
    command = Command(scene.needles, is_watched=is_watched)
    alone = {"o": b"", "e": b""}
    for low, high in pairwise([0, *cuts, len(scene.data)]):
        stream = random.choice("oe")
        alone[stream] += scene.data[low:high]
        command.write(stream, scene.data[low:high])
        if not is_watched and random.random() < 0.3:
            command.pieces += command.view.start()
            is_watched = True
    if not is_watched:
        command.pieces += command.view.start()
    shown = command.end()
    together = redact_all(scene.needles, scene.data)
    if "o" in alone and not alone["e"]:
        assert shown == together
    # a byte that is shown is shown by both: so nothing is left of what either masks
    assert visible(scene.needles, shown) <= visible(scene.needles, together)


def visible(needles: NeedleSet, shown: bytes) -> int:
    for marker in needles.markers:
        shown = shown.replace(marker, b"")
    return len(shown)


@given(scenes(), st.integers(0, 400), st.booleans())
@bounded(120)
def test_verdicts_tell_of_every_byte_what_became_of_it(scene: Scene, cut: int, idles: bool) -> None:
    redactor = Redactor(scene.needles, keeps_verdicts=True)
    out = redactor.feed(scene.data[:cut])
    out += redactor.idle() if idles else b""
    out += redactor.feed(scene.data[cut:]) + redactor.finish()
    at, told = 0, b""
    for size, marker in redactor.take_verdicts():
        told += scene.data[at : at + size] if marker is None else marker
        at += size
    assert (at, told) == (len(scene.data), out)
    assert redactor.take_verdicts() == []


def test_who_wants_no_verdicts_keeps_none() -> None:
    redactor = Redactor(build([("A", secrets.token_hex(12).encode(), Redact.ON)]))
    redactor.feed(b"abc")
    assert redactor.take_verdicts() == []
