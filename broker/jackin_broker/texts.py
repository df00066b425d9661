"""Arguments and paths on the wire: UTF-8 as text, anything else as `{"b64": "…"}`.

It refuses to know messages. Inside the broker arguments and paths are bytes; this is the one
place where they change form. Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from .errors import PeerProtocolError


class Bytes64(msgspec.Struct, frozen=True):
    """An argument or path that is not UTF-8: `{"b64": "…"}`."""

    b64: str


Text = str | Bytes64


def text_from_bytes(raw: bytes) -> Text:
    """The wire form of an argument or path."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return Bytes64(base64.b64encode(raw).decode("ascii"))


def bytes_from_text(text: Text) -> bytes:
    """The bytes of an argument or path.

    Raises: PeerProtocolError for base64 that is broken, NUL bytes, or lone surrogates.
    """
    if isinstance(text, Bytes64):
        try:
            raw = base64.b64decode(text.b64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise PeerProtocolError("an argument's base64 is broken") from error
    else:
        try:
            raw = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise PeerProtocolError("an argument is not Unicode text") from error
    if b"\0" in raw:
        raise PeerProtocolError("an argument contains a NUL byte")
    return raw
