r"""The one sanitiser: any text from outside → what may be shown (DESIGN §7).

It feeds picker, plain prompt, live output, notifier, title, log and audit view. It refuses to
know where the text goes: no markup, no styles, no terminal.
Invariants, each held by a test over every code point:
- what comes out holds printable characters and single spaces between them, nothing else: no
  control, format, zero-width, bidirectional, private-use, unassigned or surrogate character;
- different texts look different. Whatever begins with a backslash stands for something else,
  and so a backslash itself is shown doubled, always;
- printable ASCII without a backslash, an edge space or a long run of spaces is shown as it is.

| in the text | shown |
|---|---|
| backslash | `\\` |
| newline, carriage return, tab | `\n` `\r` `\t` |
| other C0 controls and DEL | `\x1b` |
| a byte that is not UTF-8 | `\x80` (a code point above 127 never looks like this) |
| C1, format, bidi, private … | `\u{9b}` `\u{202e}` |
| a letter that only looks like an ASCII one | `\u{430}` |
| a space at an edge | `\x20` |
| a long run of spaces | `\{5000 spaces}` |
| nothing at all | `\{empty}` |
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .lookalikes import is_invisible, is_lookalike_sign, suspicious_letters
from .protocol import Text

# Indentation of a pasted snippet stays as it is; padding that pushes text off the screen does not.
SPACES_SHOWN_MAX: Final = 8
# A letter may carry this many combining marks (Vietnamese needs two); more is a pile that covers
# the neighbouring lines.
MARKS_SHOWN_MAX: Final = 2

# A piece of a long line: made in less than a millisecond whatever it holds.
PIECE_CHARS: Final = 4096

_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}
# Words are looked at whole, because what gives a foreign letter away is its neighbours; a word
# of over 256 characters is looked at in pieces.
_TOKENS: Final = re.compile(
    r"(?P<plain>[!-\[\]-~]+(?: [!-\[\]-~]+)*(?![^\x00-\x7f]))"
    r"|(?P<word>(?:\w[\u0300-\u036f]{0,2}){1,256})"
    r"|(?P<spaces> +)"
    r"|(?P<one>.)",
    re.DOTALL,
)
_PROSE_DASHES: Final = "\u2013\u2014\u2015"
_SPACES: Final = re.compile(" *")
EMPTY: Final = r"\{empty}"


@dataclass(frozen=True, slots=True)
class Shown:
    """What may be shown of a text.

    Shape: `marks` are the spans of `text` that stand for something else, in order and apart.
    Units: `clipped` counts the characters of the original (bytes, where they are not UTF-8)
    that are not shown at all.
    """

    text: str
    escaped: bool = False
    lookalike: bool = False
    clipped: int = 0
    marks: tuple[tuple[int, int], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the text was shown whole and as it is."""
        return not (self.escaped or self.lookalike or self.clipped)

    @property
    def ends_line(self) -> bool:
        """Whether the text ended with a line break."""
        is_marked = bool(self.marks) and self.marks[-1][1] == len(self.text)
        return is_marked and self.text.endswith(r"\n")

    @property
    def line(self) -> str:
        """One line for sinks without styles; the clip is said in the text."""
        return f"{self.text}\\{{{self.clipped:,} more}}" if self.clipped else self.text


def show(text: Text | bytes, *, limit: int | None = None) -> Shown:
    r"""What may be shown of `text`, in at most `limit` characters, never cut inside an escape.

    Units: `limit` counts shown characters; None shows all.
    """
    source = _decoded(text)
    if not source:
        return Shown(EMPTY, marks=((0, len(EMPTY)),))
    return _Writer(source, is_bytes=not isinstance(text, str), limit=limit).write()


def show_lines(text: Text | bytes) -> Iterator[Shown]:
    r"""Each line of `text` by itself, all of it, for a view that shows a whole script.

    Shape: the `\n` stays visible at the end of each line; a very long line comes in pieces.
    """
    whole = _decoded(text)
    is_bytes = not isinstance(text, str)
    start = 0
    if not whole:
        yield show("")
    while start < len(whole):
        end = whole.find("\n", start, start + PIECE_CHARS) + 1 or start + PIECE_CHARS
        if whole[end - 1 : end] == " " and (rest := _SPACES.match(whole, end)):
            end = rest.end()  # a run of spaces stays one
        yield _Writer(whole[start:end], is_bytes=is_bytes, limit=None).write()
        start = end


def show_name(text: Text | bytes) -> str:
    """A name restricted to `[A-Za-z0-9._+-]`, for notifiers and terminal multiplexers."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", _decoded(text)[:64]) or "_"


def _decoded(text: Text | bytes) -> str:
    """The text as code points; bytes that are not UTF-8 become U+DC80 to U+DCFF."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "surrogateescape")
    try:
        raw = base64.b64decode(text.b64, validate=True)
    except (binascii.Error, ValueError):
        return "\ufffd" + text.b64
    return raw.decode("utf-8", "surrogateescape")


class _Writer:
    """One text on its way to `Shown`; it stops reading where the limit is reached."""

    def __init__(self, source: str, *, is_bytes: bool, limit: int | None) -> None:
        self._source = source
        self._is_bytes = is_bytes
        self._limit = sys.maxsize if limit is None else limit
        self._parts: list[str] = []
        self._size = 0
        self._marks: list[tuple[int, int]] = []
        self._escaped = False
        self._lookalike = False

    def write(self) -> Shown:
        position = 0
        for token in _TOKENS.finditer(self._source):
            taken = self._token(token)
            position = token.start() + taken
            if taken < token.end() - token.start():
                break
        return Shown(
            "".join(self._parts),
            self._escaped,
            self._lookalike,
            len(self._source) - position,
            tuple(self._marks),
        )

    def _token(self, token: re.Match[str]) -> int:
        """How many characters of the token were written."""
        text = token.group()
        match token.lastgroup:
            case "plain":
                taken = min(len(text), self._limit - self._size)
                return taken if self._put(text[:taken]) else 0
            case "spaces":
                return self._spaces(token)
            case "word":
                return self._word(text)
            case _:
                return self._one(text, token.start())

    def _word(self, word: str) -> int:
        suspects = suspicious_letters(word)
        for index, char in enumerate(word):
            if char in suspects:
                written = self._put_lookalike(char)
            elif is_invisible(char):
                written = self._escape(char)
            else:
                written = self._put(char)
            if not written:
                return index
        return len(word)

    def _one(self, char: str, position: int) -> int:
        if char == "\\":
            return int(self._put(r"\\", is_mark=True))
        if is_invisible(char):
            return int(self._escape(char))
        if _is_mark(char) and not self._has_base(position):
            return int(self._put_escape(_code_point(char)))
        if is_lookalike_sign(char) or self._is_false_option(position):
            return int(self._put_lookalike(char))
        return int(self._put(char))

    def _is_false_option(self, position: int) -> bool:
        """Whether a dash of prose begins a word there, where an option's hyphen would."""
        if self._source[position] not in _PROSE_DASHES:
            return False
        before = self._source[position - 1 : position] if position else ""
        after = self._source[position + 1 : position + 2]
        return before in {"", " "} and after not in {"", " "}

    def _has_base(self, position: int) -> bool:
        """Whether the combining mark there belongs to a letter and is not one too many."""
        start = position
        while (
            start and _is_mark(self._source[start - 1]) and position - start < MARKS_SHOWN_MAX - 1
        ):
            start -= 1
        return start > 0 and self._source[start - 1].isalpha()

    def _spaces(self, token: re.Match[str]) -> int:
        count = token.end() - token.start()
        at_start, at_end = token.start() == 0, token.end() == len(self._source)
        if count > SPACES_SHOWN_MAX:
            return count if self._put_escape(f"\\{{{count} spaces}}") else 0
        pieces = [" "] * count
        if at_start:
            pieces[0] = r"\x20"
        if at_end:
            pieces[-1] = r"\x20"
        for index, piece in enumerate(pieces):
            written = self._put(piece) if piece == " " else self._put_escape(piece)
            if not written:
                return index
        return count

    def _escape(self, char: str) -> bool:
        if char in _SHORT:
            return self._put_escape(_SHORT[char])
        code = ord(char)
        if self._is_bytes and 0xDC80 <= code <= 0xDCFF:
            return self._put_escape(f"\\x{code - 0xDC00:02x}")
        return self._put_escape(f"\\x{code:02x}" if code < 0x80 else _code_point(char))

    def _put_lookalike(self, char: str) -> bool:
        written = self._put(_code_point(char), is_mark=True)
        self._lookalike |= written
        return written

    def _put_escape(self, piece: str) -> bool:
        written = self._put(piece, is_mark=True)
        self._escaped |= written
        return written

    def _put(self, piece: str, *, is_mark: bool = False) -> bool:
        """Whether the piece still fitted and was written."""
        end = self._size + len(piece)
        if end > self._limit:
            return False
        if is_mark:
            if self._marks and self._marks[-1][1] == self._size:
                self._marks[-1] = (self._marks[-1][0], end)
            else:
                self._marks.append((self._size, end))
        self._parts.append(piece)
        self._size = end
        return True


def _is_mark(char: str) -> bool:
    return unicodedata.category(char).startswith("M")


def _code_point(char: str) -> str:
    return f"\\u{{{ord(char):x}}}"
