"""Every way to print a value, by the encoders that print it. Whose rule: REDACTION §7 and §9."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import textwrap
import xml.sax.saxutils
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.bindings import Redact
from jackin_broker.redact.alignment import cores
from jackin_broker.redact.forms import forms_of
from jackin_broker.redact.needles import build
from jackin_broker.redact.stream import redact_all
from jackin_broker.redact.values import pieces_of, refusal_of
from support.redaction_strategies import bounded

NASTY = 'it\'s <a> "q" & $x/`y` 100%\\n+ä=?'
MARKER = b"[redacted:A]"


def masked(value: str | bytes, printed: str | bytes, redact: Redact = Redact.ON) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    shown = printed.encode() if isinstance(printed, str) else printed
    return redact_all(build([("A", raw, redact)]), shown)


PRINTERS: dict[str, Callable[[str], str]] = {
    "as it is": lambda v: v,
    "json": lambda v: json.dumps(v)[1:-1],
    "json, utf-8": lambda v: json.dumps(v, ensure_ascii=False)[1:-1],
    "json, slashes escaped (PHP)": lambda v: json.dumps(v)[1:-1].replace("/", "\\/"),
    "json, markup escaped (Go)": lambda v: (
        json.dumps(v, ensure_ascii=False)[1:-1]
        .replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    ),
    "json in json": lambda v: json.dumps(json.dumps(v))[3:-3],
    "url": lambda v: quote(v),
    "url, all quoted": lambda v: quote(v, safe=""),
    "url, lower case": lambda v: re.sub("%..", lambda m: m[0].lower(), quote(v, safe="")),
    "form": lambda v: urlencode({"k": v})[2:],
    "encodeURIComponent": lambda v: quote(v, safe="!'()*"),
    "encodeURI": lambda v: quote(v, safe="!'()*;,/?:@&=+$#"),
    "html": html.escape,
    "html, text only": lambda v: html.escape(v, quote=False),
    "xml": lambda v: xml.sax.saxutils.escape(v, {'"': "&quot;", "'": "&apos;"}),
    "html, numeric": lambda v: re.sub("[^0-9A-Za-z]", lambda m: f"&#{ord(m[0])};", v),
    "python": lambda v: repr(v)[1:-1],
    "python bytes": lambda v: repr(v.encode())[2:-1],
    "shlex": lambda v: shlex.quote(v),
    "hex": lambda v: v.encode().hex(),
    "HEX": lambda v: v.encode().hex().upper(),
    "hex with colons": lambda v: v.encode().hex(":"),
    "hex with spaces": lambda v: v.encode().hex(" "),
    "hex in fours (xxd)": lambda v: v.encode().hex(" ", 2),
    "hex with dashes (.NET)": lambda v: v.encode().hex("-").upper(),
    "hex, C array (xxd -i)": lambda v: ", ".join(f"0x{byte:02x}" for byte in v.encode()),
    "hex, C array in capitals": lambda v: ", ".join(f"0x{byte:02X}" for byte in v.encode()),
    "hex, C string": lambda v: "".join(f"\\x{byte:02x}" for byte in v.encode()),
    "percent, every byte": lambda v: "".join(f"%{byte:02x}" for byte in v.encode()),
    "decimal (Go)": lambda v: str(list(v.encode())).replace(",", "")[1:-1],
    "decimal (JavaScript)": lambda v: ",".join(map(str, v.encode())),
    "json, escapes in capitals": lambda v: re.sub(
        r"\\u[0-9a-f]{4}", lambda m: "\\u" + m[0][2:].upper(), json.dumps(v)[1:-1]
    ),
    "html, references beyond ASCII": lambda v: v.encode("ascii", "xmlcharrefreplace").decode(),
    "sql": lambda v: v.replace("'", "''"),
    "csv": lambda v: v.replace('"', '""'),
    "wrapped": lambda v: "\n".join(textwrap.wrap(v, 10, drop_whitespace=False)),
    "carriage returns": lambda v: v.replace(" ", "\r\n"),
    "coloured letters": lambda v: "".join(f"\x1b[38;5;{i % 256}m{c}" for i, c in enumerate(v)),
}  # fmt: skip
values = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=16, max_size=40
)


@pytest.mark.parametrize("printer", PRINTERS)
def test_a_nasty_value_is_masked_however_it_is_printed(printer: str) -> None:
    out = masked(NASTY, "<<" + PRINTERS[printer](NASTY) + ">>")
    # quotes that the printer itself puts around may stay, and escapes in front
    assert re.fullmatch(rb"<<(?:'|\x1b\[38;5;0m)?\[redacted:A\]'?>>", out), out


@given(values.filter(lambda v: refusal_of(v.encode()) is None))
@bounded(100)
def test_any_value_is_masked_however_it_is_printed(value: str) -> None:
    needles = build([("A", value.encode(), Redact.ON)])
    for name, printer in PRINTERS.items():
        shown = printer(value)
        out = redact_all(needles, f"<< {shown} >>".encode())
        assert needles.markers[0] in out, name
        assert len(out) <= len(b"<< '\"'" + b"\x1b[38;5;000m" + MARKER + b"'\"' >>"), name


@given(st.binary(max_size=5), st.binary(min_size=8, max_size=40), st.binary(max_size=5))
@bounded(150)
def test_base64_at_any_place_leaves_no_character_of_the_value(
    before: bytes, value: bytes, after: bytes
) -> None:
    """actions/runner 291: not even the characters that share bits with a neighbour."""
    if refusal_of(value) is not None or value.strip(b" \t\r\n\v\f\0\"'") != value:
        return
    needles = build([("A", value, Redact.ON)])
    for encode in (b64encode, urlsafe_b64encode):
        printed = encode(before + value + after)
        out = redact_all(needles, printed)
        first = 8 * len(before) // 6
        last = -(-8 * (len(before) + len(value)) // 6)
        left = printed[:first] + b"|" + printed[last:]
        assert out.replace(needles.markers[0], b"|") == left


def test_base64_forms_are_nested_too() -> None:
    """REDACTION §9.8."""
    value = "p@ss/w0rd?~~>+x=y"
    std = b64encode(f"u:{value}".encode()).decode()
    for printed in (
        quote_plus(std),
        std.replace("/", "\\/"),
        b64encode(f"u:{quote(value, safe='')}".encode()).decode(),
        b64encode(value.encode("utf-16-le")).decode(),
        "\n".join(textwrap.wrap(std, 7)),
    ):
        out = masked(value, printed)
        assert MARKER in out
        assert len(out.replace(MARKER, b"")) <= 10, out


@pytest.mark.parametrize(
    "script",
    [
        'printf "%q" "$V"',
        'set -x; : "$V"',
        'declare -p V | sed "s/^[^=]*=//"',
        'printf "%s" "${V@Q}"',
        'printf "%s" "$V" | base64 -w 76',
        'printf "%s" "$V" | od -An -v -tx1',
        "export -p | grep V=",
        "echo ${V}",
    ],
)
@pytest.mark.parametrize(
    "value", ["plain-Value_12345/x", NASTY, "two\nlines of-a 'value'", "tab\tand \x01control-char"]
)
def test_what_a_real_shell_prints_is_masked(script: str, value: str) -> None:
    done = subprocess.run(
        ["bash", "-c", script], env={"V": value, "PATH": "/usr/bin:/bin"}, capture_output=True,
        timeout=20, check=True,
    )  # fmt: skip
    out = masked(value, done.stdout + done.stderr)
    assert MARKER in out
    assert not leftovers(value, out)


def leftovers(value: str, out: bytes) -> list[str]:
    """Runs of six characters of the value that are still to be seen."""
    text = out.decode("utf-8", "replace")
    return [value[at : at + 6] for at in range(len(value) - 5) if value[at : at + 6] in text]


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be", "utf-32-le", "latin-1"])
def test_other_charsets_are_masked(charset: str) -> None:
    """REDACTION §9.5, for what is not ASCII too."""
    value = "pässwörd-ünd-móre"
    assert masked(value, value.encode(charset)).strip(b"\0") == MARKER


def test_a_file_of_credentials_shown_in_base64_is_masked() -> None:
    """REDACTION §9.8: a container registry's login, as a cluster prints it."""
    value = "tok_Ab3dEf6hIj9k/Lm2nOp5qRs8tUv1"
    for before in ("", "u:", "us:", "use:"):
        for around in ("", " ", "  ", "   "):
            inner = b64encode(f"{before}{value}".encode()).decode()
            out = masked(value, b64encode(f'{around}{{"auth": "{inner}"}}'.encode()))
            assert MARKER in out
            left = [part[at:] for part in out.split(MARKER) for at in range(4)]
            seen = [b64decode(part[: len(part) // 4 * 4]) for part in left]
            assert not any(inner[8:20].encode() in part for part in seen)


def test_a_key_file_in_json_in_base64_is_masked() -> None:
    lines = "\n".join(f"cGFydC1{number}b2YtYS1mYWtlLWtleQ" for number in range(12))
    out = masked(lines, b64encode(json.dumps({"key": lines}).encode()))
    assert MARKER in out
    assert len(out.replace(MARKER, b"")) < 30


def test_long_pieces_are_not_sought_as_lists_of_their_bytes() -> None:
    """They would hold back four times their size."""
    short, long = (("A", b"abcdefgh" * 127 + end, Redact.ON) for end in (b"12345678", b"123456789"))
    assert build([short]).longest == 5 * 1024 - 1
    assert build([long]).longest == 3 * 1025 - 1


def test_hexdump_of_a_short_value_needs_no_fragments() -> None:
    """openshift/release PR 13646: hex columns and gutter."""
    value = b"tok_9fK2mQ7x"
    row = b"00000000  74 6f 6b 5f 39 66 4b 32  6d 51 37 78              |tok_9fK2mQ7x|\n"
    assert masked(value, row).count(MARKER) == 2


def test_fragments_mask_any_run_of_eight() -> None:
    value = b"tok_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQ7rT"
    for at in range(len(value) - 7):
        part = value[at : at + 8]
        assert masked(value, b"<" + part + b">", Redact.FRAGMENTS) == b"<" + MARKER + b">"
        assert masked(value, part.hex(), Redact.FRAGMENTS) == MARKER
    assert masked(value, b"<" + value[7:15] + b">") == b"<" + value[7:15] + b">"


def test_hex_and_uuids_are_masked_in_either_case() -> None:
    for value in ("3f2a9c1e-77b4-4d0a-9e55-0c1d2e3f4a5b", "0123456789abcdef0123456789abcdef"):
        assert masked(value, value.upper()) == masked(value.upper(), value) == MARKER


def test_no_form_is_shorter_than_a_needle() -> None:
    needles = build([("A", b"k9-x2!qq", Redact.FRAGMENTS)])
    assert min(len(needle.text) for needle in needles.needles()) >= 8


def test_public_heads_stay_public_in_every_form() -> None:
    """What every token of a kind begins with is no secret, encoded or not (DESIGN §10)."""
    (piece,) = pieces_of(b"xoxb-Ab3dEf6hIj9k/Lm2n")
    public = {form.text: form.public for form in forms_of(piece)}
    assert piece.public == 5
    assert public[piece.text] == 5
    assert public[piece.text.hex().encode()] == 10
    assert public[cores(piece.text)[0].text] == 6
    assert public[quote(piece.text, safe="").encode()] == 5


def test_nothing_that_holds_a_value_shows_it() -> None:
    """STYLE: any type that can hold a value has a repr without it."""
    value = b"k9-Sup3rSecret!"
    needles = build([("A", value, Redact.ON)])
    (piece,) = pieces_of(value)
    things = [needles, piece, *forms_of(piece), *cores(value), *needles.needles(), needles.searcher]
    for thing in things:
        assert "Sup3r" not in f"{thing!r} {thing}"
        assert b64encode(value).decode()[:8] not in repr(thing)
