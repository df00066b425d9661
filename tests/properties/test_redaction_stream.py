"""The redactor against its reference: REDACTION §8, properties 1 to 7.

A bounded number of examples; JACKIN_LONG_PROPERTIES=50 makes a long run of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from jackin_broker.redact.forms import Form
from jackin_broker.redact.needles import MAX_IDLE_BYTES, NeedleSet, of_forms
from jackin_broker.redact.projection import (
    MAX_ESCAPE_BYTES,
    MAX_IGNORED_BYTES,
    project,
    unfinished_escape,
)
from jackin_broker.redact.stream import Redactor, redact_all
from support.redaction_corpus import heads_before_markers
from support.redaction_reference import Reference, escape_length, seen_text
from support.redaction_strategies import Scene, bounded, cuts, scenes


def fed(redactor: Redactor, writes: Iterable[bytes]) -> bytes:
    return b"".join([*map(redactor.feed, writes), redactor.finish()])


@given(scenes(), st.data())
@bounded(150)
def test_1_no_cut_changes_the_output(scene: Scene, data: st.DataObject) -> None:
    """Output equals the reference: whole, at random cuts with empty writes, byte by byte."""
    reference = Reference(scene.needles)
    expected = reference.redact(scene.data)
    every_byte = [scene.data[at : at + 1] for at in range(len(scene.data))]
    for writes in ([scene.data], data.draw(cuts(scene.data)), every_byte):
        redactor = Redactor(scene.needles)
        assert fed(redactor, writes) == expected
        assert redactor.redacted_count == reference.count


@given(scenes())
@bounded(40)
def test_1_no_cut_in_two_changes_the_output(scene: Scene) -> None:
    """Every 2-way split, exhaustively."""
    expected = Reference(scene.needles).redact(scene.data)
    for cut in range(len(scene.data) + 1):
        writes = (scene.data[:cut], scene.data[cut:])
        assert fed(Redactor(scene.needles), writes) == expected, cut


@given(scenes(plain=True))
@bounded(150)
def test_2_no_needle_is_left(scene: Scene) -> None:
    """Neither whole, nor so much of its head at the end that it was recognisably cut off."""
    out = redact_all(scene.needles, scene.data)
    for marker in scene.needles.markers:
        out = out.replace(marker, b"\xff")
    for needle in scene.needles.needles():
        assert needle.text not in out
        for size in range(max(8, needle.public + 1), len(needle.text)):
            assert not out.endswith(needle.text[:size])


@given(scenes(), st.data())
@bounded(150)
def test_3_only_what_may_become_a_needle_is_held(scene: Scene, data: st.DataObject) -> None:
    """After each write: a head of a needle, an unfinished escape, or the rest of a masked run."""
    redactor = Redactor(scene.needles)
    fed_so_far = b""
    for write in data.draw(cuts(scene.data)):
        redactor.feed(write)
        fed_so_far += write
        held = redactor.held_bytes
        assert held <= scene.needles.longest + 1 + MAX_IGNORED_BYTES + MAX_ESCAPE_BYTES
        if held:
            assert is_reason_to_hold(scene.needles, fed_so_far, len(fed_so_far) - held)


def is_reason_to_hold(needles: NeedleSet, data: bytes, start: int) -> bool:
    if data[start:].startswith(b"\x1b") and not escape_length(data, start):
        return True
    seen = seen_text(data)
    size = escape_length(data, start)
    if size and any(data[start + 2 : start + size].endswith(end) for end in needles.behinds):
        start += size
        if not any(s.at >= start for s in seen):
            return True
    tails = {
        bytes(byte for byte, at in pairs if at >= start)
        for pairs in ([(s.byte, s.at) for s in seen], [(s.same_case, s.at) for s in seen])
    }
    # half a percent escape may turn out to be in the other case
    if len(seen) > 1 and seen[-2].byte == ord("%"):
        tails |= {tail[:-1] + tail[-1:].upper() for tail in tails}
    # an unfinished escape at the very end is held but no part of the head
    tails |= {tail[: tail.rfind(b"\x1b")] for tail in tails if b"\x1b" in tail}
    return any(
        needle.text.startswith(tail)
        or (tail[0] in needle.lead and needle.text.startswith(tail[1:]))
        for needle in needles.needles()
        for tail in tails
        if tail
    )


@given(st.lists(st.text("abcdef", min_size=8, max_size=40), max_size=4), st.data())
@bounded(60)
def test_4_a_byte_that_cannot_begin_a_needle_leaves_at_once(
    texts: list[str], data: st.DataObject
) -> None:
    """Prompts appear: the output of each write is the write, and nothing is held."""
    forms = [(0, Form(text.encode())) for text in texts]
    redactor = Redactor(of_forms(["A"], forms, {}))
    for write in data.draw(st.lists(st.text("$ >#:\n0123\0é", max_size=20), max_size=5)):
        assert redactor.feed(write.encode()) == write.encode()
        assert redactor.held_bytes == 0


@given(scenes(), st.data())
@bounded(150)
def test_5_idle_shows_only_short_heads(scene: Scene, data: st.DataObject) -> None:
    """The markers are the reference's; at most MAX_IDLE_BYTES of text more stand before each."""
    expected = Reference(scene.needles).redact(scene.data)
    redactor = Redactor(scene.needles)
    out = b""
    for write in data.draw(cuts(scene.data)):
        out += redactor.feed(write)
        if data.draw(st.booleans()):
            out += redactor.idle()
    out += redactor.finish()
    for head in heads_before_markers(out, expected, scene.needles.markers):
        # an escape that was not finished yet is no part of the needle
        assert len(project(head[: unfinished_escape(head)])) <= MAX_IDLE_BYTES


@given(scenes())
@bounded(150)
@example(Scene(of_forms(["REDACTED"], [(0, Form(b"REDACTED"))], {}), b"x REDACTED REDACTED"))
@example(Scene(of_forms(["A"], [(0, Form(b"[redacted:A]"))], {}), b"[redacted:A]"))
@example(Scene(of_forms(["A"], [(0, Form(b"ends with ["))], {}), b"ends with ends with ["))
def test_6_masking_twice_changes_nothing(scene: Scene) -> None:
    """And no marker holds a needle."""
    out = redact_all(scene.needles, scene.data)
    assert redact_all(scene.needles, out) == out
    for marker in scene.needles.markers:
        assert not any(needle.text in marker for needle in scene.needles.needles())


@given(st.integers(1, 80), st.integers(8, 60), st.sampled_from([1, 3, 40, 90]), st.randoms())
@bounded(60)
def test_7_a_match_at_the_very_end_is_found(
    size: int, length: int, count: int, random: Random
) -> None:
    """Few and many needles (each search there is), buffers of 1 to 80 bytes, last byte included."""
    texts = [bytes(random.choices(b"abcdefgh", k=length)) for _ in range(count)]
    needles = of_forms(["A"], [(0, Form(text)) for text in texts], {})
    data = (bytes(random.choices(b"abcdefgh", k=80)) + random.choice(texts))[-size:]
    assert redact_all(needles, data) == Reference(needles).redact(data)
