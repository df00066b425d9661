"""The one place where text becomes something that Textual draws.

What comes from outside enters through `literal` or `fitted`, which ask `display.py`; our own
words enter through `own`, which takes nothing but literal strings (the type checker holds it).
Nothing is ever parsed as markup. A test forbids every other constructor in this package.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, LiteralString

from textual.content import Content, Span
from textual.strip import Strip as Strip
from textual.visual import Visual

from jackin_broker.display import Shown, show
from jackin_broker.protocol import Text

from .editor import LineEditor

if TYPE_CHECKING:  # plain mode draws no widget, and need not wait for them
    from textual.widget import Widget

# Styles. Each has a sign or a word beside it: colour is never the only one.
PLAIN: Final = ""
QUIET: Final = "$quiet"
LABEL: Final = "$label"
STRONG: Final = "bold $foreground"
GOOD: Final = "bold $success"
CAREFUL: Final = "bold $warning"
BAD: Final = "bold $error"
ESCAPE: Final = "bold underline $warning"
KEY: Final = "bold $primary"
CURSOR: Final = "bold $primary"
BUTTON: Final = "$quiet on $panel"
BUTTON_RUN: Final = "bold $button-text on $success"
BUTTON_DENY: Final = "bold $button-text on $error"
BAR: Final = "on $panel"
TAB_HERE: Final = "bold reverse $foreground"

NOTHING: Final = Content("")
NEWLINE: Final = Content("\n")


def own(words: LiteralString, style: LiteralString = PLAIN) -> Content:
    """Words of this program."""
    return Content(words, [Span(0, len(words), style)] if style else None)


def number(value: int, style: LiteralString = PLAIN) -> Content:
    """A number, with commas."""
    return _styled(f"{value:,}", style)


def process_id(pid: int, style: LiteralString = PLAIN) -> Content:
    """A number that is a name: no commas."""
    return _styled(str(pid), style)


def clock(seconds: float, style: LiteralString = PLAIN) -> Content:
    """`4:58`; a time that has passed is `0:00`."""
    whole = max(0, int(seconds + 0.5))
    return _styled(f"{whole // 60}:{whole % 60:02d}", style)


def span(seconds: float, style: LiteralString = PLAIN) -> Content:
    """A time for people: `12 s`, `5 min`, `3 h`, `2 days`."""
    whole = max(0, int(seconds))
    if whole < 100:
        return _styled(f"{whole} s", style)
    if whole < 100 * 60:
        return _styled(f"{whole // 60} min", style)
    if whole < 48 * 3600:
        return _styled(f"{whole // 3600} h", style)
    return _styled(f"{whole // 86_400} days", style)


def size(size_bytes: int, style: LiteralString = PLAIN) -> Content:
    """`12 bytes`, `2.1 KiB`, `3.4 MiB`."""
    if size_bytes < 1024:
        return _styled(f"{size_bytes} byte{'' if size_bytes == 1 else 's'}", style)
    if size_bytes < 1024 * 1024:
        return _styled(f"{size_bytes / 1024:.1f} KiB", style)
    return _styled(f"{size_bytes / (1024 * 1024):,.1f} MiB", style)


def literal(text: Text | bytes, style: LiteralString = PLAIN, *, limit: int = 200) -> Content:
    """Text from outside, on one line of at most `limit` characters and the clip's own words."""
    return drawn(show(text, limit=limit), style)


def drawn(shown: Shown, style: LiteralString = PLAIN) -> Content:
    """What `display.py` made, its escapes and its clip marked."""
    line = shown.line
    spans = [Span(0, len(line), style)] if style else []
    spans += [Span(start, end, ESCAPE) for start, end in shown.marks]
    if shown.clipped:
        spans.append(Span(len(shown.text), len(line), ESCAPE))
    return Content(line, spans)


def fitted(
    text: Text | bytes,
    width: int,
    lines: int,
    style: LiteralString = PLAIN,
    *,
    at_words: bool = False,
) -> list[Content]:
    """Text from outside, folded at `width` cells into at most `lines` lines.

    What does not fit is clipped, and the last line says how many characters. `at_words` is for
    sentences; where every character counts, a line is as full as it can be.
    """
    limit = width * lines
    while True:
        line = drawn(show(text, limit=limit), style)
        folded = _folded_at_words(line, width) if at_words else line.fold(width)
        if len(folded) <= lines:
            return folded
        if limit == 0:  # not even the clip's own words fit
            return [own("…", ESCAPE)]
        # Wide characters, and the clip's own words, took more than a cell a character.
        limit = max(0, min(limit - 1, limit - (len(folded) - lines) * width // 2))


def _folded_at_words(line: Content, width: int) -> list[Content]:
    """Nothing is left out: a space stays at the end of its line, a long word is broken."""
    lines: list[Content] = []
    width = max(2, width)  # one character of any width, as `fold` has it
    while line.cell_length > width:
        room = len(line.fold(width)[0])
        end = line.plain.rfind(" ", 0, room) + 1 or room
        lines.append(line[:end])
        line = line[end:]
    return [*lines, line]


def is_cut_in(text: Text | bytes, width: int, lines: int) -> bool:
    """Whether `fitted` leaves something of the text out."""
    shown = show(text, limit=width * lines)
    return shown.clipped > 0 or len(Content(shown.text).fold(width)) > lines


def typed(editor: LineEditor, width: int) -> Content:
    """What the operator types, the end of it where it is long, and the cursor."""
    head, tail = editor.text[: editor.cursor], editor.text[editor.cursor :]
    before = drawn(show(head)) if head else NOTHING
    after = drawn(show(tail)) if tail else NOTHING
    line = row(before, own("▏", CURSOR), after)
    return line if line.cell_length <= width else line[-width:]


def key_line(pairs: list[tuple[Content, Content]], *, is_live: bool) -> Content:
    """Keys and what they do; quiet while they do nothing."""
    gap = own("  ")
    parts: list[Content] = []
    for key, what in pairs:
        mark = key.stylize(KEY) if is_live else key.stylize(QUIET)
        parts += [gap, mark, own(" "), what.stylize(QUIET)]
    return row(*parts)


def row(*parts: Content) -> Content:
    """The parts side by side."""
    return NOTHING.join(parts)


def stack(lines: Iterable[Content]) -> Content:
    """The lines one below the other."""
    return NEWLINE.join(lines)


def spread(left: Content, right: Content, width: int, style: LiteralString = PLAIN) -> Content:
    """Both at the ends of a line of `width` cells; the left one gives way."""
    room = max(0, width - right.cell_length)
    line = row(left.truncate(room, pad=True), right).truncate(width, pad=True)
    return line.stylize_before(style) if style else line


def flush(line: Content, width: int) -> Content:
    """The line at exactly `width` cells."""
    return line.truncate(width, pad=True)


def is_same(line: Content, other: Content) -> bool:
    """Whether both look the same; Textual compares the text alone."""
    return line.plain == other.plain and line.spans == other.spans


def strip_of(line: Content, widget: Widget) -> Strip:
    """The line as the widget draws it, in the colours that hold now."""
    width = widget.size.width
    made = Visual.to_strips(widget, line, width, 1, widget.visual_style)
    return made[0] if made else Strip.blank(width)


def rule(width: int) -> Content:
    """A line across."""
    return _styled("─" * width, "$rule")


def _styled(text: str, style: LiteralString) -> Content:
    return Content(text, [Span(0, len(text), style)] if style else None)
