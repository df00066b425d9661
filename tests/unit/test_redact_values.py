"""Which values get needles, and which parts of them. Whose rule: REDACTION §7, CASES 3a."""

from __future__ import annotations

import json
import secrets
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.bindings import Redact
from jackin_broker.redact.needles import build
from jackin_broker.redact.stream import redact_all
from jackin_broker.redact.values import MAX_PIECE_BYTES, pieces_of, refusal_of
from support.redaction_strategies import bounded

ARMOURED = (
    "-----BEGIN FAKE TEST KEY-----\n"
    "cGFydC1vbmUtb2YtYS1mYWtlLWtleQ0123456789\n"
    "cGFydC10d28tb2YtYS1mYWtlLWtleQ9876543210\n"
    "-----END FAKE TEST KEY-----\n"
)


def texts(value: str | bytes) -> set[bytes]:
    raw = value.encode() if isinstance(value, str) else value
    return {piece.text for piece in pieces_of(raw)}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "shorter"),
        (b"a", "shorter"),
        (b"none", "shorter"),
        (b"true", "shorter"),
        (b" \n ", "shorter"),
        (b"'seven77'", "shorter"),
        (b"a b c d e f g", "shorter"),  # seven bytes once white space is projected away
        (b"\x1b[31mseven77\x1b[0m", "shorter"),
        (b"aaaaaaaaaaaaaaaa", "different"),
        (b"abababababababab", "different"),
        (b"abcabcabcabcabc", "different"),
        (b"aaaaaaaaaabcd", "easy"),
        (b"password", "common"),
        (b"PassWord\n", "common"),
        (b"localhost", "common"),
        (b"-----BEGIN FAKE TEST KEY-----\n-----END FAKE TEST KEY-----", "shorter"),
    ],
)
def test_what_cannot_be_told_from_ordinary_output_is_refused(value: bytes, reason: str) -> None:
    """actions/runner 4531, buildkite/agent 3588: with a reason that holds no byte of it."""
    refusal = refusal_of(value)
    assert refusal is not None
    assert reason in refusal
    needles = build([("A", value, Redact.ON)])
    assert needles.refused == {"A": refusal}
    assert len(needles) == 0
    assert redact_all(needles, b"x" + value + b"y") == b"x" + value + b"y"


@pytest.mark.parametrize(
    "value",
    [b"eight-88", b"REDACTED", b"abc12345\n\n", b"9fK2mQ7x", b"\x80\x81\x82\x83\x84\x85\x86\x87"],
)
def test_what_can_be_told_is_accepted(value: bytes) -> None:
    assert refusal_of(value) is None


@given(st.binary(max_size=200))
@bounded(150)
def test_a_value_is_refused_exactly_when_it_gets_no_needle(value: bytes) -> None:
    """Nothing is accepted and then not looked for; nothing breaks the judge."""
    needles = build([("A", value, Redact.ON)])
    assert (len(needles) == 0) == (refusal_of(value) is not None)


def test_redact_off_gives_no_needle_and_no_refusal() -> None:
    needles = build([("A", b"k9-Sup3rSecret!", Redact.OFF), ("B", b"a", Redact.OFF)])
    assert len(needles) == 0
    assert needles.refused == {}


def test_lines_count_from_sixteen_bytes_on() -> None:
    """GitHub's per-line registration, without the lines that are ordinary text."""
    found = texts("short line 1\nthis-line-is-long-enough\n{\n}\n")
    assert b"this-line-is-long-enough" in found
    assert b"short line 1" not in found


def test_a_setting_counts_without_its_key() -> None:
    found = texts("[default]\naccess_key = QWxhZGRpbjpvcGVuIHNlc2FtZQ\nregion = xx-1\n")
    assert b"QWxhZGRpbjpvcGVuIHNlc2FtZQ" in found
    assert b"xx-1" not in found


def test_armour_is_public_and_its_lines_are_not() -> None:
    """concourse/concourse 9424."""
    found = texts(ARMOURED)
    assert not any(b"-----" in text for text in found)
    assert b"cGFydC1vbmUtb2YtYS1mYWtlLWtleQ0123456789" in found


def test_a_key_kept_on_one_line_counts_as_the_file_that_it_becomes() -> None:
    assert texts(ARMOURED) <= texts(ARMOURED.strip().replace("\n", "\\n"))


def test_json_members_count_alone() -> None:
    """actions/runner 2232: nested, armoured, and not what is short or a number."""
    value = json.dumps(
        {"id": 12345678901, "a": [{"key": "mbr-9fK2mQ7x"}], "pem": ARMOURED, "k": "no"}
    )
    found = texts(value)
    assert b"mbr-9fK2mQ7x" in found
    assert b"cGFydC1vbmUtb2YtYS1mYWtlLWtleQ0123456789" in found
    assert b"12345678901" not in found
    assert b"service_account" not in texts('{"type": "service_account", "key": "mbr-9fK2mQ7x"}')


@pytest.mark.parametrize(
    "value", ["{", "[1, 2", '{"a": \\ud800}', "[" * 5000, '{"a": "\\ud800abcdefgh1"}']
)
def test_what_only_looks_like_json_is_taken_as_it_is(value: str) -> None:
    assert (refusal_of(value.encode()) is None) == bool(texts(value))


def test_the_userinfo_of_a_url_counts_alone_quoted_or_not() -> None:
    found = texts("db://app:9fK2mQ7x%21z@host/d")
    assert {b"9fK2mQ7x%21z", b"9fK2mQ7x!z", b"app:9fK2mQ7x%21z", b"app:9fK2mQ7x!z"} <= found
    assert b"9fK2mQ7xzzz" in texts("https://9fK2mQ7xzzz@host/")


def test_outer_quotes_are_no_part_of_a_value_unless_they_do_not_pair() -> None:
    """azure-pipelines-agent 2525."""
    assert texts('"quoted-secret"') == {b"quoted-secret"}
    assert texts("quoted-secret'") == {b"quoted-secret", b"quoted-secret'"}


def test_a_huge_value_is_cut_so_that_little_is_held() -> None:
    value = bytes(33 + (7 * at + at // 90) % 90 for at in range(3 * MAX_PIECE_BYTES + 5))
    found = texts(value)
    assert max(map(len, found)) == MAX_PIECE_BYTES
    needles = build([("A", value, Redact.ON)])
    out = redact_all(needles, b"<" + value + b">")
    assert out.startswith(b"<" + needles.markers[0])
    assert len(out) < 200


def test_a_huge_value_costs_no_more_than_its_lines() -> None:
    value = "".join(f"line-{at:06d}-of-a-large-file\n" for at in range(4000)).encode()
    assert sum(len(needle.text) for needle in build([("A", value, Redact.ON)]).needles()) < 4 * len(
        value
    )


def test_a_long_value_of_letters_alone_is_made_into_needles_in_no_time() -> None:
    """A quadratic search took ten seconds for 128 KiB, at each command."""
    value = secrets.token_hex(64 * 1024).encode()
    start = time.process_time()
    build([("A", value, Redact.ON)])
    assert time.process_time() - start < 2


def test_a_key_file_of_thousands_of_lines_is_made_into_needles_in_bounded_time() -> None:
    """A megabyte took nine seconds and half a gigabyte, once."""
    value = "\n".join(secrets.token_hex(20) for _ in range(5_000)).encode()
    start = time.process_time()
    needles = build([("A", value, Redact.ON)])
    assert time.process_time() - start < 4
    assert redact_all(needles, value[20_500:21_000]).count(b"[redacted:A]") >= 12
