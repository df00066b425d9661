"""Needles: the bytes that must not appear in the output, and whose they are.

Pure. A value comes in through `build`, its pieces and their forms become needles; what
`refusal_of` refuses gets none, and the caller decides what that means (`unredactable`, DESIGN
§8). No type here shows a value in its `repr`.

A needle is kept as the projected stream would show it. One of fewer than MIN_LOOSE_BYTES is
*exact*: its white space counts, lest two ordinary words make one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from jackin_broker.bindings import Redact
from jackin_broker.redact.forms import Form, forms_of, fragments_of
from jackin_broker.redact.heads import Heads
from jackin_broker.redact.marker import choose_markers
from jackin_broker.redact.projection import IGNORABLE, canonical, project, without_escapes
from jackin_broker.redact.search import Searcher
from jackin_broker.redact.values import MIN_NEEDLE_BYTES, pieces_of, refusal_of

__all__ = ["MIN_LOOSE_BYTES", "Needle", "NeedleSet", "build", "refusal_of"]

# Needles from here on are matched across white space; shorter ones would join ordinary words.
MIN_LOOSE_BYTES: Final = 16
# `idle` may let go the first bytes of a needle of at least this length …
MIN_IDLE_NEEDLE_BYTES: Final = 12
# … and of those this many: a key is echoed at once, a guess learns nothing worth having.
MAX_IDLE_BYTES: Final = 3


@dataclass(frozen=True, slots=True, repr=False)
class Needle:
    """`text` is projected. `owner` indexes `NeedleSet.names`.

    Its first `public` bytes are no secret; `lead` and `trail` are characters beside it that hold
    bits of it; `exact`, if any, are the spellings with white space that alone count, in upper case:
    that the letters agree is known from `text`. `behind`, if any, are the ends of an escape right
    in front of which one must be there.
    """

    text: bytes
    owner: int
    public: int = 0
    lead: bytes = b""
    trail: bytes = b""
    exact: tuple[bytes, ...] = ()
    behind: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"<needle of {len(self.text)} bytes>"


class NeedleSet:
    """The needles of one command. Immutable; shared by its streams."""

    __slots__ = (
        "_by_text", "behinds", "has_escapes", "heads", "leads", "longest", "markers", "names",
        "refused", "searcher", "short_heads",
    )  # fmt: skip

    def __init__(
        self, names: Sequence[str], needles: Iterable[Needle], refused: dict[str, str]
    ) -> None:
        self.names: Final = tuple(names)
        self.refused: Final = refused
        self._by_text: Final = {needle.text: needle for needle in needles}
        texts = list(self._by_text)
        self.searcher: Final = Searcher(texts)
        self.heads: Final = Heads(texts)
        self.markers: Final = choose_markers(self.names, texts)
        self.longest: Final = max(map(len, texts), default=0)
        self.leads: Final = frozenset(b"".join({n.lead for n in self._by_text.values()}))
        self.behinds: Final = tuple({end for n in self._by_text.values() for end in n.behind})
        self.has_escapes: Final = any(b"\x1b" in text for text in texts)
        self.short_heads: Final = frozenset(
            text[:size]
            for text in texts
            if len(text) < MIN_IDLE_NEEDLE_BYTES
            for size in range(1, MAX_IDLE_BYTES + 1)
        )

    def __repr__(self) -> str:
        return f"<{len(self)} needles of {', '.join(self.names) or 'nothing'}>"

    def __len__(self) -> int:
        return len(self._by_text)

    def needle(self, text: bytes) -> Needle:
        """The needle of this projected text."""
        return self._by_text[text]

    def needles(self) -> Iterable[Needle]:
        """All of them, in the order in which they were registered."""
        return self._by_text.values()


def build(credentials: Iterable[tuple[str, bytes, Redact]]) -> NeedleSet:
    """The needles of these credentials; `.refused` has the reason for each that gets none."""
    names: list[str] = []
    refused: dict[str, str] = {}
    forms: list[tuple[int, Form]] = []
    for name, value, redact in credentials:
        if redact is Redact.OFF:
            continue
        if (reason := refusal_of(value)) is not None:
            refused[name] = reason
            continue
        forms.extend((len(names), form) for form in _forms(value, redact))
        names.append(name)
    return of_forms(names, forms, refused)


def of_forms(
    names: Sequence[str], forms: Iterable[tuple[int, Form]], refused: dict[str, str]
) -> NeedleSet:
    """The needles of forms, each with the index of its owner in `names`; short ones are dropped."""
    table: dict[bytes, Needle] = {}
    for owner, form in forms:
        _register(table, form, owner)
    return NeedleSet(names, table.values(), refused)


def _forms(value: bytes, redact: Redact) -> Iterable[Form]:
    for piece in dict.fromkeys(pieces_of(value)):
        yield from forms_of(piece)
        if redact is Redact.FRAGMENTS:
            yield from fragments_of(project(piece.text))


def _register(table: dict[bytes, Needle], form: Form, owner: int) -> None:
    text = project(form.text)
    if len(text) < MIN_NEEDLE_BYTES:
        return
    spelled = without_escapes(form.text).strip(IGNORABLE).upper()
    exact = () if len(text) >= MIN_LOOSE_BYTES else (spelled,)
    public = len(project(form.text[: form.public]))
    for spelling in {text, canonical(text)}:
        known = table.get(spelling)
        behind = (form.behind,) if form.behind else ()
        needle = Needle(spelling, owner, public, form.lead, form.trail, exact, behind)
        table[spelling] = needle if known is None else _joined(known, needle)


def _joined(known: Needle, other: Needle) -> Needle:
    """One needle for two of equal text: the first one's owner, the classes of both."""
    return replace(
        known,
        public=min(known.public, other.public),
        lead=_union(known.lead, other.lead),
        trail=_union(known.trail, other.trail),
        exact=tuple(dict.fromkeys((*known.exact, *other.exact))),
        # one that stands anywhere is found behind an escape too
        behind=tuple(dict.fromkeys((*known.behind, *other.behind)))
        if known.behind and other.behind
        else (),
    )


def _union(one: bytes, other: bytes) -> bytes:
    return one if one == other else bytes(sorted({*one, *other}))
