"""Forms: the ways in which programs print a value other than as it is.

Pure. Each form is a function from the value to its printed text, or several. Which bytes of a
form are public follows from encoding the value's public head in the same way.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, quote_plus

from jackin_broker.redact.alignment import core_length, cores
from jackin_broker.redact.projection import swallowed_heads
from jackin_broker.redact.values import MIN_NEEDLE_BYTES, Piece

# What encodeURIComponent and encodeURI leave as it is, beyond letters, digits and `-_.~`.
_COMPONENT_SAFE: Final = "!'()*"
_URI_SAFE: Final = _COMPONENT_SAFE + ";,/?:@&=+$#"
_HEX_VALUE: Final = re.compile(
    rb"[0-9A-Fa-f]{8,}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
)
_SHELL_SAFE: Final = re.compile(rb"[^A-Za-z0-9_./:=@%+,\-\x80-\xff]")
_CONTROL_NAMES: Final = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r"}
_UNICODE_ESCAPE: Final = re.compile(r"\\u([0-9a-f]{4})")
# Longer pieces are not sought as lists of their bytes, nor in base64 twice: four times their size
# would be held back.
_MAX_LISTED_BYTES: Final = 1024
# Digits begin like other digits: the head of a list tells nothing until it is this long.
_LISTED_PUBLIC_BYTES: Final = 6
_FIRST_PRINTABLE: Final = 0x20
_DELETE: Final = 0x7F


@dataclass(frozen=True, slots=True, repr=False)
class Form:
    """One way to print a value. `lead` and `trail`: characters beside it that hold bits of it.

    `behind`: the rest of a value of which an escape, still open, has taken this head.
    """

    text: bytes
    public: int = 0
    lead: bytes = b""
    trail: bytes = b""
    behind: bytes = b""

    def __repr__(self) -> str:
        return f"<form of {len(self.text)} bytes>"


def forms_of(piece: Piece) -> Iterator[Form]:
    """The piece itself and each form of it. Some may be equal."""
    text, public = piece.text, piece.public
    yield Form(text, public)
    if _HEX_VALUE.fullmatch(text):
        yield from (Form(text.lower(), public), Form(text.upper(), public))
    if not piece.is_encoded:
        return
    for taken in swallowed_heads(text):
        yield Form(text[len(taken) :], max(0, public - len(taken)), behind=taken)
    head = text[:public]
    heads: set[bytes] = set()
    if head:
        heads.update(written for encode in _SPELLINGS for written in encode(head))
    seen = {text}
    for encode in _SPELLINGS:
        for written in encode(text):
            if written not in seen:
                seen.add(written)
                yield Form(written, max(map(len, filter(written.startswith, heads)), default=0))
    yield from _nested_forms(text, head)
    if len(text) <= _MAX_LISTED_BYTES:
        for listed in _listed(text):
            yield Form(listed, _LISTED_PUBLIC_BYTES)


def fragments_of(text: bytes) -> Iterator[Form]:
    """Every run of MIN_NEEDLE_BYTES bytes, plain and in hex: dumps and cuts show these."""
    for at in range(len(text) - MIN_NEEDLE_BYTES + 1):
        window = text[at : at + MIN_NEEDLE_BYTES]
        yield Form(window)
        yield from (Form(window.hex().encode()), Form(window.hex().upper().encode()))


def _nested_forms(text: bytes, head: bytes) -> Iterator[Form]:
    """In base64: the piece, its quoted and JSON forms, its UTF-16, and its base64."""
    yield from _base64_forms(text, len(head))
    for encode in (_quote, _quote_plus, _json_body):
        if (written := encode(text)) != text:
            yield from _base64_forms(written, len(encode(head)))
    if (wide := _utf16(text)) is not None:
        yield from _base64_forms(wide, 2 * len(head))
    if len(text) <= _MAX_LISTED_BYTES:
        for core in cores(text):  # credentials in a file that is itself shown in base64
            known = core_length(len(head), core.before)
            for outer in cores(core.text):
                seen = core_length(known, outer.before)
                # what is beside it holds no more than bits of one character of the first base64
                yield Form(outer.text, seen)


def _base64_forms(text: bytes, public: int) -> Iterator[Form]:
    for core in cores(text):
        known = core_length(public, core.before)
        yield Form(core.text, known, core.lead, core.trail)
        quoted = _quote(core.text)
        if quoted != core.text:
            yield Form(quoted, min(known, len(quoted)))
        if b"/" in core.text:
            yield Form(core.text.replace(b"/", rb"\/"), known)


def _hex(text: bytes) -> list[bytes]:
    plain = text.hex()
    spaced = text.hex(":")
    return [form.encode() for form in (plain, plain.upper(), spaced, spaced.upper())]


def _listed(text: bytes) -> list[bytes]:
    """Byte by byte, as dumps and debuggers print arrays; spaces vanish by projection."""
    lower = [f"{byte:02x}" for byte in text]
    digits = [str(byte) for byte in text]
    written = ["-".join(lower), "".join(f"\\x{byte}" for byte in lower)]
    written += [",".join(f"0x{byte}" for byte in lower)]
    written += [form.upper().replace("X", "x") for form in written]
    written += ["".join(f"%{byte}" for byte in lower).upper(), ",".join(digits), "".join(digits)]
    return [form.encode() for form in written]


def _quote(text: bytes) -> bytes:
    return quote(text, safe="").encode()


def _quote_plus(text: bytes) -> bytes:
    return quote_plus(text).encode()


def _url(text: bytes) -> list[bytes]:
    quoted = [quote(text, safe=safe) for safe in ("", "/", _COMPONENT_SAFE, _URI_SAFE)]
    return [_quote_plus(text), *(form.encode() for form in quoted)]


def _json(text: bytes) -> list[bytes]:
    """JSON string bodies: as ASCII and as UTF-8, with `\\/`, with `\\u0026`, and twice over."""
    decoded = _text(text)
    if decoded is None:
        return []
    once = {json.dumps(decoded)[1:-1], json.dumps(decoded, ensure_ascii=False)[1:-1]}
    once |= {body.replace("/", "\\/") for body in once}
    once |= {_go(body) for body in once} | {_dotnet(body) for body in once}
    once |= {_UNICODE_ESCAPE.sub(lambda found: "\\u" + found[1].upper(), b) for b in once}
    twice = {json.dumps(body, ensure_ascii=False)[1:-1] for body in once}
    return [body.encode() for body in sorted(once | twice)]


def _json_body(text: bytes) -> bytes:
    """As a JSON string holds it; the bytes themselves where none can."""
    decoded = _text(text)
    return text if decoded is None else json.dumps(decoded, ensure_ascii=False)[1:-1].encode()


def _go(body: str) -> str:
    for character in "&<>":
        body = body.replace(character, f"\\u{ord(character):04x}")
    return body


def _dotnet(body: str) -> str:
    body = body.replace('\\"', "\\u0022")
    for character in "&<>'+`":
        body = body.replace(character, f"\\u{ord(character):04X}")
    return body


def _shell(text: bytes) -> list[bytes]:
    """Single-quote splices, double-quote escapes, `printf %q`, `$'…'`."""
    return [
        text.replace(b"'", rb"'\''"),
        text.replace(b"'", b"'\"'\"'"),
        re.sub(rb'[\\"$`]', lambda found: b"\\" + found[0], text),
        re.sub(rb'[\\"$`!]', lambda found: b"\\" + found[0], text),
        _SHELL_SAFE.sub(lambda found: b"\\" + found[0], text),
        _escaped(text, b"'", rb"\%03o"),
    ]


def _program(text: bytes) -> list[bytes]:
    """Go's `%q`, Python's `repr`, doubled quotes of SQL and CSV."""
    written = [
        _escaped(text, b'"', rb"\x%02x"),
        _escaped(text, b"'", rb"\x%02x"),
        repr(text)[2:-1].encode(),
        text.replace(b"'", b"''"),
        text.replace(b'"', b'""'),
    ]
    if (decoded := _text(text)) is not None:
        written.append(repr(decoded)[1:-1].encode())
        written.append(_escaped(text, b'"', rb"\x%02x", keep_high=True))
    return written


def _html(text: bytes) -> list[bytes]:
    """Named and numeric entities, in the spellings of Python, PHP, Go and JavaScript."""
    decoded = _text(text)
    if decoded is None:
        return []
    named = html.escape(decoded, quote=False)
    quotes = (("&quot;", "&#x27;"), ("&quot;", "&#39;"), ("&#34;", "&#39;"), ("&quot;", "&apos;"))
    bodies = [named, *(named.replace('"', dq).replace("'", sq) for dq, sq in quotes)]
    plain = (decoded, *bodies)
    bodies += [body.encode("ascii", "xmlcharrefreplace").decode() for body in plain]
    for pattern in ("&#{};", "&#x{:x};", "&#x{:X};"):
        marked = (c if c.isascii() and c.isalnum() else pattern.format(ord(c)) for c in decoded)
        bodies.append("".join(marked))
    return [body.encode() for body in bodies]


def _escaped(text: bytes, quote: bytes, other: bytes, *, keep_high: bool = False) -> bytes:
    """C-like escapes: names for the controls that have one, `other` for the rest."""
    out = bytearray()
    for byte in text:
        if byte in _CONTROL_NAMES:
            out += b"\\" + _CONTROL_NAMES[byte]
        elif byte in quote or byte == ord("\\"):
            out += b"\\" + bytes([byte])
        elif _FIRST_PRINTABLE <= byte < _DELETE or (keep_high and byte > _DELETE):
            out.append(byte)
        else:
            out += other % byte
    return bytes(out)


def _charsets(text: bytes) -> list[bytes]:
    """Other charsets; what is ASCII is the same in all, as NUL is projected away."""
    decoded = _text(text)
    if decoded is None or decoded.isascii():
        return []
    written = [decoded.encode("utf-16-le"), decoded.encode("utf-16-be")]
    return [*written, decoded.encode("latin-1", "replace")]


def _text(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _utf16(text: bytes) -> bytes | None:
    decoded = _text(text)
    return None if decoded is None else decoded.encode("utf-16-le")


_SPELLINGS: Final[tuple[Callable[[bytes], list[bytes]], ...]] = (
    _hex,
    _url,
    _json,
    _shell,
    _program,
    _html,
    _charsets,
)
