"""The redactor's bounds: how far a value reaches, where its rest begins, what is public of it.

Whose rule: REDACTION §7 and §8, DESIGN §10. Like `test_redact_edges.py`, for changes that a
mutation run (`tests/mutation/`) found to be noticed by no other test.
"""

from __future__ import annotations

from base64 import b64encode

import pytest

from jackin_broker.bindings import Redact
from jackin_broker.redact.alignment import cores
from jackin_broker.redact.budget import NearMisses
from jackin_broker.redact.forms import Form, forms_of
from jackin_broker.redact.heads import Heads
from jackin_broker.redact.matching import Span, unions
from jackin_broker.redact.needles import NeedleSet, build, of_forms
from jackin_broker.redact.projection import MAX_GAP_BYTES, View
from jackin_broker.redact.search import Searcher
from jackin_broker.redact.stream import Redactor, Verdict, redact_all
from jackin_broker.redact.values import Piece, pieces_of, refusal_of

TOKEN = b"tok_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQ7rT"
LONG = bytes(33 + (7 * at + at // 90) % 90 for at in range(60))
# 64 places for a gap between its 65 characters; the two in front and behind are not of the core.
CORE = b"k" + bytes(48 + at for at in range(10)) + bytes(65 + at for at in range(26)) + b"l" * 28
LEAD, TRAIL = b"<", b">"
WIDE = b" " * MAX_GAP_BYTES


def plain(*values: bytes) -> NeedleSet:
    return of_forms(["S"] * len(values), [(at, Form(value)) for at, value in enumerate(values)], {})


def owned(*values: bytes) -> NeedleSet:
    """Each value another binding's: A, B, …"""
    names = [chr(ord("A") + at) for at in range(len(values))]
    return of_forms(names, [(at, Form(value)) for at, value in enumerate(values)], {})


def in_pieces(needles: NeedleSet, shown: bytes) -> set[bytes]:
    """What becomes of it, cut once at every place."""
    outs: set[bytes] = set()
    for cut in range(len(shown) + 1):
        redactor = Redactor(needles)
        outs.add(redactor.feed(shown[:cut]) + redactor.feed(shown[cut:]) + redactor.finish())
    return outs


def test_a_short_value_of_several_spellings_is_held_for_each() -> None:
    """Where two values differ in white space alone, the head of either waits."""
    needles = plain(b"abcd efghij", b"abcde fghij")
    assert in_pieces(needles, b"x abcd efghij y") == {b"x [redacted:S] y"}
    assert in_pieces(needles, b"x abcde fghij y") == {b"x [redacted:S] y"}
    assert in_pieces(needles, b"x ab cdefghij y") == {b"x ab cdefghij y"}


@pytest.mark.parametrize("size", [20, 56, 57, 58, 400])
@pytest.mark.parametrize("before", [0, 1, 30, 56, 57, 58, 300])
def test_an_escape_that_took_a_head_is_found_wherever_it_stands(before: int, size: int) -> None:
    value = b"31mk9" + bytes(33 + (7 * at + at // 90) % 90 for at in range(size))
    shown = b"~" * before + b"\x1b[" + value + b"~"
    needles = build([("A", value, Redact.ON)])
    assert redact_all(needles, shown) == b"~" * before + b"[redacted:A]~"


def test_an_escape_that_took_another_values_head_masks_nothing() -> None:
    """Nor does it wait: what follows begins no value."""
    needles = build([("A", b"1mAb3dEf6hIj9kLm", Redact.ON), ("B", b"2mXy4zQ7rT~0VeWa", Redact.ON)])
    redactor = Redactor(needles)
    shown = b"\x1b[1mXy4zQ7rT~"
    assert redactor.feed(shown) == shown
    assert redact_all(needles, shown) == shown
    assert redact_all(needles, b"\x1b[2mXy4zQ7rT~") == b"[redacted:B]"


def test_an_escape_that_took_nothing_is_no_guess() -> None:
    redactor = Redactor(build([("A", b"mk9-Ab3dEf6hIj", Redact.ON)]))
    assert redactor.feed(b"~\x1b[1m") == b"~"
    assert redactor.feed(b"~ok~") == b"\x1b[1m~ok~"
    redactor.feed(b"~\x1b[1m")
    redactor.finish()
    assert redactor.take_near_misses() == {}


def test_a_guess_that_failed_at_once_counts_and_the_rest_of_an_escape_does_not() -> None:
    redactor = Redactor(plain(TOKEN))
    redactor.feed(TOKEN[:10] + b"~~~")
    assert redactor.take_near_misses() == {"S": NearMisses(deep=1)}
    rest = of_forms(["S"], [(0, Form(TOKEN[1:], behind=TOKEN[:1]))], {})
    redactor = Redactor(rest)
    redactor.feed(TOKEN[1:11] + b"~~~")
    redactor.finish()
    assert redactor.take_near_misses() == {}


def test_a_guess_counts_for_every_binding_that_begins_so() -> None:
    redactor = Redactor(owned(b"tok_Ab3dEf6hIj9kLm", b"tok_9kLm2nOp5qRs8t"))
    redactor.feed(b"tok_")
    redactor.feed(b"~" * 9)
    assert redactor.take_near_misses() == {"A": NearMisses(shallow=1), "B": NearMisses(shallow=1)}


def test_a_public_head_of_eight_bytes_is_no_secret_at_the_end() -> None:
    needles = build([("A", b"github_pat_Ab3dEf6hIj9kLm2nOp", Redact.ON)])
    assert redact_all(needles, b"x github_pat_") == b"x github_pat_"
    assert redact_all(needles, b"x github_pat_A") == b"x [redacted:A]"


def test_of_two_at_one_place_the_first_gives_the_name() -> None:
    assert unions([Span(0, 5, 1), Span(0, 5, 2)], 0) == [Span(0, 5, 1)]
    assert unions([Span(0, 5, 1), Span(0, 6, 2)], 0) == [Span(0, 6, 2)]
    assert unions([Span(0, 5, 1), Span(3, 5, 2), Span(5, 6, 3)], 0) == [
        Span(0, 5, 1),
        Span(5, 6, 3),
    ]


@pytest.mark.parametrize(("over", "is_near"), [(0, True), (1, False)])
def test_the_character_before_a_core_counts_as_far_away_as_any(over: int, is_near: bool) -> None:
    """Sixteen KiB are ignored in all, and not a byte more; it waits as it is masked."""
    needles = of_forms(["S"], [(0, Form(CORE, lead=LEAD, trail=TRAIL))], {})
    wide = WIDE.join(CORE[at : at + 1] for at in range(64)) + b" " + CORE[64:]
    before = LEAD + b" " * (MAX_GAP_BYTES - 1 + over)
    out = redact_all(needles, b"x" + before + wide + b"y")
    assert out == b"x" + (b"" if is_near else before) + b"[redacted:S]y"
    redactor = Redactor(needles)
    assert redactor.feed(b"x" + before + wide[:-1]) == b"x" + (b"" if is_near else before)


@pytest.mark.parametrize(("over", "is_near"), [(0, True), (1, False)])
def test_the_character_behind_a_core_counts_less_far_with_one_in_front(
    over: int, is_near: bool
) -> None:
    needles = of_forms(["S"], [(0, Form(CORE, lead=LEAD, trail=TRAIL))], {})
    wide = WIDE.join(CORE[at : at + 1] for at in range(64)) + CORE[64:]
    gap = b" " * (MAX_GAP_BYTES - 1 + over)
    out = redact_all(needles, b"x" + LEAD + b" " + wide + gap + TRAIL + b"y")
    assert out == b"x[redacted:S]" + (b"" if is_near else gap + TRAIL) + b"y"


def test_a_character_that_may_stand_before_a_core_waits_within_a_gap_alone() -> None:
    needles = of_forms(["S"], [(0, Form(CORE, lead=LEAD))], {})
    redactor = Redactor(needles)
    assert redactor.feed(LEAD + WIDE) == b""
    assert redactor.feed(b" ") == LEAD + WIDE + b" "
    redactor = Redactor(needles)
    assert redactor.feed(LEAD + WIDE + b" " + CORE[:9]) == LEAD + WIDE + b" "


@pytest.mark.parametrize("seen", [b" ", b"\t", b"\r", b"\n", b"\v", b"\f", b"\0", b"\x0e", b"\x0f"])
def test_each_byte_that_nobody_sees_may_stand_in_a_value(seen: bytes) -> None:
    assert in_pieces(plain(TOKEN), b"-" + TOKEN[:9] + seen + TOKEN[9:]) == {b"-[redacted:S]"}


@pytest.mark.parametrize("digit", [b"a", b"b", b"c", b"d", b"e", b"f"])
def test_half_a_percent_escape_at_the_end_is_masked_whatever_its_digit(digit: bytes) -> None:
    for head in (b"12345678%", b"123456%"):
        needles = plain(head + digit.upper() + b"A-and-more")
        assert redact_all(needles, b"x " + head + digit) == b"x [redacted:S]"


def test_digits_read_as_an_escape_though_their_percent_sign_has_left() -> None:
    assert in_pieces(plain(b"FA-rest-of-it-9"), b"x %fa-rest-of-it-9 y") == {b"x %[redacted:S] y"}


@pytest.mark.parametrize("size", range(500, 514))
def test_an_escape_over_the_grain_at_the_start_moves_no_byte(size: int) -> None:
    escape = b"\x1b[38;5;123m"
    for before in (b"", b"aaa"):
        view = View(before + escape + b"b" * size)
        places = [*range(len(before)), *range(len(before + escape), len(view.raw))]
        assert [view.raw_index(at) for at in range(len(places))] == places


def test_heads_are_told_in_the_order_of_their_places() -> None:
    assert Heads([b"a" * 12 + b"b"]).at_the_end(b"a" * 11)[0] == list(range(11))


def test_a_line_of_sixteen_bytes_counts_alone() -> None:
    found = {piece.text for piece in pieces_of(b"first-line-is-16\nsecond-line-of-15")}
    assert {b"first-line-is-16", b"second-line-of-15"} <= found
    assert b"first-line-of15" not in {p.text for p in pieces_of(b"first-line-of15\nother-line")}


@pytest.mark.parametrize(("count", "is_encoded"), [(8, True), (9, False)])
def test_lines_are_encoded_up_to_eight_not_counting_blank_ones(
    count: int, is_encoded: bool
) -> None:
    lines = [b"line-%d-of-a-value-k9" % at for at in range(count)]
    found = {piece.text: piece.is_encoded for piece in pieces_of(b"\n \n".join(lines))}
    assert [found[line] for line in lines] == [is_encoded] * count


def test_a_value_is_cut_at_thirty_two_kib_and_only_its_head_is_public() -> None:
    value = (LONG * 1000)[: 32 * 1024] + b"npm_Ab3dEf6hIj9kLm"
    found = {piece.text: piece.public for piece in pieces_of(b"glpat-" + value[6:])}
    assert found == {b"glpat-" + value[6 : 32 * 1024]: 6, b"npm_Ab3dEf6hIj9kLm": 0}


def test_a_nul_at_the_end_is_no_part_of_a_value() -> None:
    assert {piece.text for piece in pieces_of(b"\0k9-Sup3rSecret!\0")} == {b"k9-Sup3rSecret!"}


def test_armour_is_no_reason_to_refuse_what_it_holds() -> None:
    refusal = refusal_of(
        b"-----BEGIN FAKE TEST KEY-----\n" + b"a" * 16 + b"\n-----END FAKE TEST KEY-----"
    )
    assert refusal is not None
    assert "different" in refusal


@pytest.mark.parametrize(
    "head",
    [
        b"ghp_", b"github_pat_", b"glpat-", b"xoxb-", b"npm_", b"pypi-", b"hvs.", b"dop_v1_",
        b"sk_live_", b"AKIA", b"SG.", b"AIza", b"ya29.", b"Bearer ", b"basic ", b"postgres://u:",
        b"MII" + b"EvQ" + b"IBADANBgkqhkiG9w0BAQEFAASC" + b"BKcwggSjAgEA",
        b"MII" + b"EpA" + b"IBAAKCA" + b"QEA",
        b"b3BlbnNzaC1rZXktdjE" + b"A" * 63,
        b"M" + b"HcC" + b"AQ" + b"EEIIrYSSNQFa",
    ],
)  # fmt: skip
def test_a_head_that_all_values_of_a_kind_share_is_public_to_its_last_byte(head: bytes) -> None:
    value = head + b"~9fK2mQ7xzRt~" + (b"@host" if b"://" in head else b"")
    assert Piece(value, len(head), is_encoded=True) in set(pieces_of(value))


def test_a_core_is_masked_with_both_characters_beside_it() -> None:
    printed = b64encode(b"x" + LONG + b"y")
    out = redact_all(build([("A", LONG, Redact.ON)]), b"\x01" + printed[1:82] + b"\x01")
    assert out == b"\x01[redacted:A]\x01"


def test_what_a_url_holds_of_secrets_is_sought_in_every_form() -> None:
    """Basic authentication is the userinfo in base64, without the URL."""
    found = set(pieces_of(b"db://app:9fK2mQ7xzzz@host/d"))
    assert {
        Piece(b"9fK2mQ7xzzz", 0, is_encoded=True),
        Piece(b"app:9fK2mQ7xzzz", 4, is_encoded=True),
    } <= found
    assert Piece(b"9fK2mQ7xzzz", 0, is_encoded=True) in set(pieces_of(b"https://9fK2mQ7xzzz@host/"))


def test_the_members_of_a_json_list_count_alone() -> None:
    assert b"mbr-9fK2mQ7x" in {piece.text for piece in pieces_of(b' ["mbr-9fK2mQ7x", "no"]')}


@pytest.mark.parametrize(("value", "shown"), [(b"k9-x2.Qz/7A", b""), (b"k9-x2.Qz/7Ab", b"k9-")])
def test_idle_shows_the_head_of_a_needle_of_twelve_bytes(value: bytes, shown: bytes) -> None:
    redactor = Redactor(plain(value))
    assert redactor.feed(value[:3]) == b""
    assert redactor.idle() == shown


def test_one_needle_with_an_escape_in_it_is_enough_to_look_for_one() -> None:
    needles = plain(b"ab\x1b[\x80!-and-the-rest-of-it", TOKEN)
    redactor = Redactor(needles)
    assert redactor.feed(b"ab\x1b[") == b""
    assert redactor.idle() == b""
    assert needles.has_escapes


def joined(*forms: Form) -> NeedleSet:
    return of_forms(["S"], [(0, form) for form in forms], {})


def test_a_value_that_is_also_the_rest_of_another_is_found_anywhere() -> None:
    rest = TOKEN[2:]
    for forms in ((Form(rest), Form(rest, behind=b"m")), (Form(rest, behind=b"m"), Form(rest))):
        assert redact_all(joined(*forms), b"~" + rest) == b"~[redacted:S]"


def test_a_rest_of_two_values_is_found_behind_either_head_and_nowhere_else() -> None:
    rest = TOKEN[2:]
    needles = joined(Form(rest, behind=b"1m"), Form(rest, behind=b"2m"))
    for taken in (b"1m", b"2m"):
        assert redact_all(needles, b"~\x1b[" + taken + rest) == b"~[redacted:S]"
    assert redact_all(needles, b"~\x1b[3m" + rest) == b"~\x1b[3m" + rest


def test_a_core_of_two_values_has_the_characters_beside_it_of_both() -> None:
    needles = joined(Form(CORE, lead=b"<", trail=b">"), Form(CORE, lead=b"(", trail=b")"))
    for lead, trail in (b"<>", b"()", b"<)"):
        shown = bytes([lead]) + CORE + bytes([trail])
        assert redact_all(needles, b"~" + shown + b"~") == b"~[redacted:S]~"


def test_the_same_text_is_public_only_where_it_is_so_for_both() -> None:
    needles = joined(Form(TOKEN, public=12), Form(TOKEN))
    assert redact_all(needles, b"~" + TOKEN[:9]) == b"~[redacted:S]"


def test_what_is_refused_has_no_name_among_the_needles() -> None:
    needles = build([("A", b"password", Redact.ON), ("B", TOKEN, Redact.ON)])
    assert (needles.names, list(needles.refused)) == (("B",), ["A"])


def test_text_on_both_sides_of_a_marker_is_not_one_text_for_a_later_needle() -> None:
    redactor = Redactor(owned(TOKEN))
    assert redactor.feed(b"12345678") == b"12345678"
    assert redactor.feed(TOKEN + b"abcdefgh;") == b"[redacted:A]abcdefgh;"
    redactor.replace_needles(owned(b"12345678abcdefgh;more", b"abcdefgh;more"))
    assert redactor.feed(b"more.") == b"[redacted:B]."


def test_the_rest_of_a_masked_run_has_no_marker_of_its_own() -> None:
    redactor = Redactor(plain(b"12345678ab", b"ab-second-value"), keeps_verdicts=True)
    redactor.feed(b"12345678ab")
    redactor.feed(b"!")
    said = [verdict for verdict in redactor.take_verdicts() if verdict.size]
    assert said == [Verdict(8, b"[redacted:S]"), Verdict(2, b""), Verdict(1, None)]


@pytest.mark.parametrize("size", range(8, 20))
def test_a_run_of_one_character_is_masked_to_its_end(size: int) -> None:
    """A fragment of a value may be one."""
    found = Searcher([b"a" * 8]).occurrences(b"a" * size)
    assert sorted(at for at, _ in found) == list(range(size - 7))
    assert redact_all(plain(b"a" * 8), b"~" + b"a" * size + b"~") == b"~[redacted:S]~"


def test_a_head_behind_what_has_left_is_still_the_same_head() -> None:
    redactor = Redactor(owned(b"12345678abcd-A-rest", b"abcd-A-other-rest9"))
    assert redactor.feed(b"12345678abcd-A") == b""
    assert redactor.feed(b"-o") == b"12345678"
    redactor.feed(b"~" * 8)
    redactor.finish()
    assert redactor.take_near_misses() == {"A": NearMisses(deep=1), "B": NearMisses(deep=1)}


def test_an_escape_in_the_other_case_is_no_guess_while_it_waits() -> None:
    redactor = Redactor(owned(b"1234%FA-and-more"))
    assert redactor.feed(b"1234%fa") == b""
    assert redactor.feed(b"-and-more~") == b"[redacted:A]~"
    redactor.finish()
    assert redactor.take_near_misses() == {}


def test_a_guess_right_behind_a_value_counts() -> None:
    redactor = Redactor(plain(TOKEN))
    assert redactor.feed(TOKEN + TOKEN[:10] + b"~~~") == b"[redacted:S]" + TOKEN[:10] + b"~~~"
    assert redactor.take_near_misses() == {"S": NearMisses(deep=1)}


def test_what_is_quoted_or_in_json_and_then_in_base64_is_right_letter_by_letter() -> None:
    """A connection string and a document, as a cluster keeps them."""
    text = b'k9 "\xc3\xa9"/Ab3dEf6h'
    found = {form.text for form in forms_of(Piece(text, 0, is_encoded=True))}
    for written in (
        text,
        b"k9%20%22%C3%A9%22%2FAb3dEf6h",
        b"k9+%22%C3%A9%22%2FAb3dEf6h",
        b'k9 \\"\xc3\xa9\\"/Ab3dEf6h',
        b'k\0009\0 \0"\0\xe9\0"\0/\0A\0b\0003\0d\0E\0f\0006\0h\0',
    ):
        assert {core.text for core in cores(written)} <= found


def test_what_is_no_text_has_no_form_that_is_shorter_than_itself() -> None:
    value = b"\xff\xfek9-Ab3dEf6h"
    assert min(map(len, (form.text for form in forms_of(Piece(value, 0, True))))) == len(value)
