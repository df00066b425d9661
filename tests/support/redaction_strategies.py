"""Needle sets and streams that are hard on a redactor, for hypothesis.

Small alphabets make borders and overlaps; needles are built from each other's heads and tails;
streams are noise, whole needles, heads of needles, and needles with ignorable bytes inside.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from jackin_broker.redact.forms import Form
from jackin_broker.redact.needles import NeedleSet, of_forms

# The long run: JACKIN_LONG_PROPERTIES=N multiplies the number of examples by N; a mutation run,
# which goes through all properties for each survivor, by less than one.
LONG = float(os.environ.get("JACKIN_LONG_PROPERTIES", "1"))
ALPHABETS = (
    b"ab",
    b"abcd",
    b"%2fFaAb",  # percent escapes in both cases
    bytes(range(0x21, 0x7F)),
    bytes(range(256)),
    b"ab \n",  # white space inside needles
    b"a%1\x1b[m(B ",  # escapes, whole and broken, inside needles
)
IGNORABLES = (
    b" ", b"\n", b"\r\n", b"\0", b"\t", b"\x1b[31m", b"\x1b[0m", b"\x1b(B", b"\x1b[1;2;3;4;5;6m",
    b" " * 256, b" " * 257, b"\r\n" * 128,
)  # fmt: skip


def bounded(examples: int) -> settings:
    """Settings for a property: no deadline (machines differ), so many examples."""
    return settings(
        max_examples=max(1, round(examples * LONG)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@dataclass(frozen=True)
class Scene:
    """Needles and a stream."""

    needles: NeedleSet
    data: bytes

    def __repr__(self) -> str:
        texts = [(n.text, n.public, n.lead, n.trail, n.exact) for n in self.needles.needles()]
        return f"Scene({texts!r}, {self.data!r})"


@st.composite
def scenes(draw: st.DrawFn, *, plain: bool = False) -> Scene:
    """A scene. `plain`: no white space, escapes or percent signs anywhere."""
    alphabet = draw(st.sampled_from(ALPHABETS[:2] if plain else ALPHABETS))
    run = st.lists(st.sampled_from(list(alphabet)), max_size=60).map(bytes)
    texts: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        text = draw(run)
        if texts and draw(st.booleans()):
            other = draw(st.sampled_from(texts))
            cut = draw(st.integers(0, len(other)))
            text = draw(
                st.sampled_from([other[:cut] + text, text + other[:cut], other[cut:] + text])
            )
        texts.append(text)
    sides = st.sampled_from([b"", b"", b"ab", b"bc"])
    public = st.sampled_from([0, 0, 3, 9])
    forms = [(i, Form(t, draw(public), draw(sides), draw(sides))) for i, t in enumerate(texts)]
    if not plain and draw(st.booleans()):
        behind = st.sampled_from([b"m", b"B", b"1m", b"a", b"b", b"f"])
        rests = [(i, t[draw(st.integers(1, 3)) :]) for i, t in enumerate(texts)]
        forms += [(i, Form(rest, draw(public), behind=draw(behind))) for i, rest in rests]
    needles = of_forms([f"N{i}" for i in range(len(texts))], forms, {})
    parts = draw(st.lists(st.one_of(run, *(part_of(t, plain=plain) for t in texts)), max_size=6))
    return Scene(needles, b"".join(parts))


@st.composite
def part_of(draw: st.DrawFn, text: bytes, *, plain: bool) -> bytes:
    """A needle: whole, cut, with ignorable bytes inside, or in another case."""
    kind = draw(st.sampled_from(["whole", "head", "gaps", "case", "behind"]))
    if kind == "head":
        return text[: draw(st.integers(0, len(text)))]
    if kind == "gaps" and not plain:
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from(IGNORABLES)) + text[at:]
    if kind == "behind" and not plain:
        escapes = [b"\x1b[m", b"\x1b[31m", b"\x1b(B", b"\x1b[a", b"\x1b(b", b"\x1b[ a", b"\x1b%f"]
        rest = text[draw(st.integers(0, 3)) :]
        return draw(st.sampled_from(escapes)) + rest[: draw(st.integers(0, len(rest)))]
    if kind == "case":
        return text.lower() if draw(st.booleans()) else text.upper()
    return text


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in several writes, empty ones too."""
    places = draw(st.lists(st.integers(0, len(data)), max_size=8))
    bounds = [0, *sorted(places), len(data)]
    return [data[low:high] for low, high in pairwise(bounds)]
