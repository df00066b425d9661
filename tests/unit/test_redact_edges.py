"""The redactor's edges: each spelling letter by letter, each number by one more and one less.

Whose rule: REDACTION §7 and §8. What a mutation run (`tests/mutation/`) found that no other test
would notice stands here.
"""

from __future__ import annotations

from base64 import b64encode

import pytest

from jackin_broker.bindings import Redact
from jackin_broker.redact.alignment import core_length, cores
from jackin_broker.redact.blocks import Blocks
from jackin_broker.redact.budget import BUDGET, Depth, NearMisses, depth_of
from jackin_broker.redact.forms import Form, forms_of, fragments_of
from jackin_broker.redact.heads import Heads, Miss
from jackin_broker.redact.needles import NeedleSet, build, of_forms
from jackin_broker.redact.projection import MAX_GAP_BYTES, MAX_IGNORED_BYTES, View
from jackin_broker.redact.stream import Redactor, Verdict, redact_all
from jackin_broker.redact.values import Piece

ODD = b"q'\"\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&<>/+k"
SPELLINGS = {
    "posix splice": b"q'\\''\"\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&<>/+k",
    "posix, double quotes": b"q'\"'\"'\"\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&<>/+k",
    "shell, double-quoted": b"q'\\\"\\\\\\$\\`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&<>/+k",
    "shell, history too": b"q'\\\"\\\\\\$\\`\\! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&<>/+k",
    "shell, backslashes": (
        b"q\\'\\\"\\\\\\$\\`\\!\\ \\\a\\\b\\\t\\\n\\\v\\\f\\\r\\\x01\\\x7f\xc3\xa9\\&\\<\\>/+k"
    ),
    "shell, $'…'": b"q\\'\"\\\\$`! \\a\\b\\t\\n\\v\\f\\r\\001\\177\\303\\251&<>/+k",
    "go": b"q'\\\"\\\\$`! \\a\\b\\t\\n\\v\\f\\r\\x01\\x7f\\xc3\\xa9&<>/+k",
    "go, utf-8": b"q'\\\"\\\\$`! \\a\\b\\t\\n\\v\\f\\r\\x01\\x7f\xc3\xa9&<>/+k",
    "c": b"q\\'\"\\\\$`! \\a\\b\\t\\n\\v\\f\\r\\x01\\x7f\\xc3\\xa9&<>/+k",
    "python, bytes": b"q\\'\"\\\\$`! \\x07\\x08\\t\\n\\x0b\\x0c\\r\\x01\\x7f\\xc3\\xa9&<>/+k",
    "python, text": b"q\\'\"\\\\$`! \\x07\\x08\\t\\n\\x0b\\x0c\\r\\x01\\x7f\xc3\xa9&<>/+k",
    "sql": b"q''\"\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&<>/+k",
    "csv": b'q\'""\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&<>/+k',
    "json": b"q'\\\"\\\\$`! \\u0007\\b\\t\\n\\u000b\\f\\r\\u0001\\u007f\\u00e9&<>/+k",
    "json, utf-8": b"q'\\\"\\\\$`! \\u0007\\b\\t\\n\\u000b\\f\\r\\u0001\x7f\xc3\xa9&<>/+k",
    "json, php": b"q'\\\"\\\\$`! \\u0007\\b\\t\\n\\u000b\\f\\r\\u0001\\u007f\\u00e9&<>\\/+k",
    "json, go": (
        b"q'\\\"\\\\$`! \\u0007\\b\\t\\n\\u000b\\f\\r\\u0001\x7f\xc3\xa9\\u0026\\u003c\\u003e/+k"
    ),
    "json, .net": (
        b"q\\u0027\\u0022\\\\$\\u0060! \\u0007\\b\\t\\n\\u000B\\f\\r\\u0001\\u007F\\u00E9"
        b"\\u0026\\u003C\\u003E/\\u002Bk"
    ),
    "json in json": (
        b"q'\\\\\\\"\\\\\\\\$`! \\\\u0007\\\\b\\\\t\\\\n\\\\u000b\\\\f\\\\r\\\\u0001\x7f"
        b"\xc3\xa9&<>/+k"
    ),
    "html": b"q'\"\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&amp;&lt;&gt;/+k",
    "html, python": b"q&#x27;&quot;\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&amp;&lt;&gt;/+k",
    "html, php": b"q&#39;&quot;\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&amp;&lt;&gt;/+k",
    "html, go": b"q&#39;&#34;\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&amp;&lt;&gt;/+k",
    "xml": b"q&apos;&quot;\\$`! \a\b\t\n\v\f\r\x01\x7f\xc3\xa9&amp;&lt;&gt;/+k",
    "xml, ascii": b"q&apos;&quot;\\$`! \a\b\t\n\v\f\r\x01\x7f&#233;&amp;&lt;&gt;/+k",
    "url": b"q%27%22%5C%24%60%21%20%07%08%09%0A%0B%0C%0D%01%7F%C3%A9%26%3C%3E%2F%2Bk",
    "url, path": b"q%27%22%5C%24%60%21%20%07%08%09%0A%0B%0C%0D%01%7F%C3%A9%26%3C%3E/%2Bk",
    "url, form": b"q%27%22%5C%24%60%21+%07%08%09%0A%0B%0C%0D%01%7F%C3%A9%26%3C%3E%2F%2Bk",
    "url, component": b"q'%22%5C%24%60!%20%07%08%09%0A%0B%0C%0D%01%7F%C3%A9%26%3C%3E%2F%2Bk",
    "url, whole": b"q'%22%5C$%60!%20%07%08%09%0A%0B%0C%0D%01%7F%C3%A9&%3C%3E/+k",
    "latin-1": b"q'\"\\$`! \a\b\t\n\v\f\r\x01\x7f\xe9&<>/+k",
}


def forms(text: bytes, public: int = 0) -> dict[bytes, Form]:
    return {form.text: form for form in forms_of(Piece(text, public, is_encoded=True))}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_spelling_is_right_letter_by_letter(spelling: str) -> None:
    assert SPELLINGS[spelling] in forms(ODD)


def test_lists_of_bytes_are_right_letter_by_letter() -> None:
    found = forms(b"kO\x05.9fQ2")
    for listed in (
        b"6b4f052e39665132", b"6B4F052E39665132",
        b"6b:4f:05:2e:39:66:51:32", b"6B:4F:05:2E:39:66:51:32",
        b"6b-4f-05-2e-39-66-51-32", b"6B-4F-05-2E-39-66-51-32",
        b"\\x6b\\x4f\\x05\\x2e\\x39\\x66\\x51\\x32", b"\\x6B\\x4F\\x05\\x2E\\x39\\x66\\x51\\x32",
        b"0x6b,0x4f,0x05,0x2e,0x39,0x66,0x51,0x32", b"0x6B,0x4F,0x05,0x2E,0x39,0x66,0x51,0x32",
        b"%6B%4F%05%2E%39%66%51%32", b"107,79,5,46,57,102,81,50", b"107795465710281" b"50",
    ):  # fmt: skip
        assert listed in found
    assert found[b"107,79,5,46,57,102,81,50"].public == 6  # digits begin like other digits


def test_a_piece_that_is_not_encoded_has_itself_alone() -> None:
    (only,) = forms_of(Piece(b"k9-line-of-a-key-file", 3, is_encoded=False))
    assert (only.text, only.public, only.lead, only.trail) == (
        b"k9-line-of-a-key-file",
        3,
        b"",
        b"",
    )


def test_hex_is_sought_in_both_cases_and_other_text_is_not() -> None:
    assert {b"0a1b2c3d", b"0A1B2C3D"} <= set(forms(b"0a1B2c3D"))
    assert b"0A1B2C3G" not in forms(b"0a1b2c3g")
    assert b"0A1B2C3" not in forms(b"0a1b2c3")


def test_a_head_that_is_public_is_so_in_each_form() -> None:
    """DESIGN §10, counted out: so many characters of each form show the head alone."""
    text, head = b"xox/-Ab3dEf6hIj9k", b"xox/-"
    found = forms(text, len(head))
    assert found[text].public == 5
    assert found[b"xox%2F-Ab3dEf6hIj9k"].public == 7
    assert found[b"xox\\/-Ab3dEf6hIj9k"].public == 6
    assert found[text.hex().encode()].public == 10
    for core in cores(text):
        assert found[core.text].public == core_length(5, core.before)
    for core in cores(b"xox%2F-Ab3dEf6hIj9k"):
        assert found[core.text].public == core_length(7, core.before)
    for core in cores(text.decode().encode("utf-16-le")):
        assert found[core.text].public == core_length(10, core.before)
    for core in cores(text):
        for outer in cores(core.text):
            assert found[outer.text].public == core_length(
                core_length(5, core.before), outer.before
            )
    assert all(form.public == 0 for form in forms(b"k9:/x2-Q%w").values() if form.public != 6)


@pytest.mark.parametrize(("end", "is_sought"), [(b"12345678", True), (b"123456789", False)])
def test_pieces_up_to_one_kib_are_sought_in_base64_twice(end: bytes, is_sought: bool) -> None:
    text = b"abcdefgh" * 127 + end
    assert (cores(cores(text)[0].text)[0].text in forms(text)) == is_sought


def test_of_two_public_heads_the_longer_is_meant() -> None:
    """`a'` and `a''` both begin what a database prints."""
    assert forms(b"a'k9Ab3dEf6h", 2)[b"a''k9Ab3dEf6h"].public == 3


def test_a_core_is_quoted_with_no_more_public_than_it_has() -> None:
    text = b"??>Ab3dEf6hIj9k"
    found = forms(text, 3)
    assert found[b"Pz8+QWIzZEVmNmhJajlr"].public == 4
    assert found[b"Pz8%2BQWIzZEVmNmhJajlr"].public == 4
    assert b"Pz8-QWIzZEVmNmhJajlr" in found
    slashes = forms(b"?" * 3 + b"Ab3dEf6h", 0)
    assert b"Pz8\\/QWIzZEVmNm" in slashes


def test_fragments_are_every_run_of_eight_and_nothing_else() -> None:
    assert [form.text for form in fragments_of(b"k9-x2.Q")] == []
    assert [form.public for form in fragments_of(b"k9-x2.Qz")] == [0, 0, 0]
    found = [form.text for form in fragments_of(b"k9-x2.Qz/")]
    assert found == [
        b"k9-x2.Qz", b"6b392d78322e517a", b"6B392D78322E517A",
        b"9-x2.Qz/", b"392d78322e517a2f", b"392D78322E517A2F",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "before", "length"),
    [(3, 0, 4), (4, 0, 5), (3, 1, 3), (3, 2, 3), (1, 0, 1), (1, 1, 0), (1, 2, 1), (0, 1, 0)],
)
def test_so_many_characters_of_base64_hold_bits_of_the_value_alone(
    value: int, before: int, length: int
) -> None:
    assert core_length(value, before) == length


def test_the_characters_beside_a_core_are_those_that_can_be() -> None:
    """One byte in front: four of its character's bits are the value's; the last has two free."""
    by_before = {core.before: core for core in cores(b"\x0fABCDEF\xf0")}
    assert len(by_before) == 3
    assert by_before[0].lead == b""
    assert len(by_before[1].lead) == 4
    assert len(by_before[2].lead) == 16
    assert len(by_before[0].trail) == 4
    assert by_before[1].trail == b""
    assert len(by_before[2].trail) == 16
    assert {by_before[1].lead[0:1], by_before[1].lead[3:4]} == {b"A", b"w"}


def test_blocks_are_found_wherever_the_text_begins() -> None:
    """From a base as from the start, in the last whole block and in no half of one."""
    needle = b"0123456789abcdefghijklm"
    for width, stride in ((8, 16), (4, 8), (4, 4), (8, 8)):
        blocks = Blocks([(needle, 0)], width=width, stride=stride)
        window = stride + width - 1
        for base in (0, 3, 16):
            for at in range(base, base + 20):
                text = b"~" * at + needle[:window]
                assert (at, len(needle)) in set(blocks.candidates(text, base))
                assert not set(blocks.candidates(text[: at + width - 1], base))
        assert not list(blocks.candidates(needle, len(needle)))
    assert list(Blocks([], width=8, stride=8).candidates(needle)) == []


def test_blocks_that_are_far_apart_are_found_too() -> None:
    needle = b"0123456789abcdef"
    blocks = Blocks([(needle, 0)], width=8, stride=8)
    text = b"".join(b"~" * 9000 + needle for _ in range(3))
    places = [at for at in range(len(text)) if text.startswith(needle, at)]
    assert [at for at, _ in blocks.candidates(text)] == places


def test_what_is_deep_and_what_is_nothing() -> None:
    assert BUDGET == 24  # the number that the guessing tests measured
    assert depth_of(5, 5, 5) is None
    assert depth_of(4, 40, 5) is None
    assert depth_of(6, 7, 5) is Depth.DEEP  # half of the two that are secret
    assert depth_of(6, 9, 5) is None
    assert depth_of(7, 9, 5) is Depth.DEEP
    assert depth_of(8, 30, 0) is Depth.DEEP


def test_the_forms_of_a_name_belong_to_it_and_short_ones_are_dropped() -> None:
    needles = of_forms(["A", "B"], [(0, Form(b"1234567")), (1, Form(b"12345678"))], {"C": "why"})
    (only,) = needles.needles()
    assert (only.text, only.owner, needles.longest) == (b"12345678", 1, 8)
    assert needles.refused == {"C": "why"}
    assert repr(needles) == "<1 needles of A, B>"
    assert repr(build([("A", b"k9-Sup3rSecret!", Redact.OFF)])) == "<0 needles of nothing>"


TOKEN = b"tok_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQ7rT"


def plain(*values: bytes) -> NeedleSet:
    return of_forms(["S"] * len(values), [(at, Form(value)) for at, value in enumerate(values)], {})


def test_a_percent_sign_in_what_is_held_changes_nothing_in_front_of_it() -> None:
    """`ab` stands in front of it, so it is no escape and stays in its case."""
    needles = plain(b"ab%zz-and-more1", b"zz-and-other-1", b"AB%zz-other-end")
    redactor = Redactor(needles)
    out = redactor.feed(b"ab%zz-") + redactor.feed(b"other-end") + redactor.finish()
    assert out == b"ab%zz-other-end"


def test_half_an_escape_in_the_other_case_is_masked_where_the_end_cuts_it() -> None:
    for shown in (b"x 12345678%f", b"x 12345678%F", b"x 12345678%"):
        assert redact_all(plain(b"12345678%FA-and-more"), shown) == b"x [redacted:S]"


def test_a_head_that_waited_counts_however_much_follows() -> None:
    redactor = Redactor(plain(TOKEN))
    redactor.feed(TOKEN[:10])
    redactor.feed(b"~" * 100)
    assert redactor.take_near_misses() == {"S": NearMisses(deep=1)}


def test_a_head_that_waited_for_other_needles_is_still_the_same_head() -> None:
    redactor = Redactor(plain(TOKEN))
    redactor.feed(b"~" * 100 + TOKEN[:10])
    redactor.replace_needles(plain(TOKEN))
    assert redactor.feed(TOKEN[10:] + b"~") == b"[redacted:S]~"
    redactor.finish()
    assert redactor.take_near_misses() == {}


def test_idle_takes_an_escape_for_text_only_where_a_needle_has_one() -> None:
    redactor = Redactor(plain(TOKEN))
    assert redactor.feed(b"to\x1b[3") == b""
    assert redactor.idle() == b"to\x1b[3"
    redactor = Redactor(plain(b"ab\x1b[\x80!-and-the-rest-of-it"))
    assert redactor.feed(b"ab\x1b[") == b""
    assert redactor.idle() == b""


def test_what_idle_says_of_a_masked_rest_is_that_it_is_masked() -> None:
    redactor = Redactor(plain(b"12345678ab", b"ab-second-value"), keeps_verdicts=True)
    assert redactor.feed(b"12345678ab") == b"[redacted:S]"
    assert redactor.held_bytes == 2
    assert redactor.idle() == b""
    assert redactor.idle() == b""
    assert redactor.feed(b"!") == b"!"
    said = redactor.take_verdicts()
    assert said[0] == Verdict(8, b"[redacted:S]")
    assert [verdict for verdict in said[1:] if verdict.size] == [Verdict(2, b""), Verdict(1, None)]


LONG = bytes(33 + (7 * at + at // 90) % 90 for at in range(2000))


@pytest.mark.parametrize(
    "size", [1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 257, 258, 263, 264, 279, 280, 281, 1000, 1999]
)
def test_a_head_is_held_whatever_its_length_also_beside_short_needles(size: int) -> None:
    for needles in (
        plain(LONG),
        plain(b"~short~9fK2", LONG),
        plain(b"~short~9fK2", LONG, LONG[5:]),
    ):
        for before in (b"", b"\n", b"zz" * 1500):
            redactor = Redactor(needles)
            assert redactor.feed(before + LONG[:size]) == before
            assert redactor.held_bytes == size
            assert redactor.feed(LONG[size:] + b"\n") == b"[redacted:S]\n"


def test_where_the_two_ways_of_finding_heads_meet_nothing_falls_between() -> None:
    needles = plain(LONG)
    for size in range(250, 300):
        for before in range(17):
            redactor = Redactor(needles)
            redactor.feed(b"~" * before + LONG[:size])
            assert redactor.held_bytes == size, (size, before)


def test_the_inside_of_a_value_in_front_is_no_head() -> None:
    redactor = Redactor(plain(LONG))
    shown = LONG[5:400] + b"~" + LONG[:5]
    assert redactor.feed(shown) == shown[:-5]
    assert redactor.held_bytes == 5


def test_the_longest_head_counts_of_two_that_the_end_may_be() -> None:
    """A needle that holds the head of another, far back and near."""
    inner = LONG[700:1100]
    needles = plain(LONG, inner)
    redactor = Redactor(needles)
    assert redactor.feed(b"zz" + LONG[:1000]) == b"zz"
    assert redactor.held_bytes == 1000
    assert redactor.feed(b"zz") == LONG[:1000] + b"zz"
    assert redactor.feed(LONG[:999]) == b""
    assert redactor.feed(b"!" + LONG[:300]) == LONG[:999] + b"!"
    assert redactor.held_bytes == 300


def test_a_miss_is_told_of_the_needle_that_was_nearest() -> None:
    """Of its neighbours in the order of their bytes; not of one that is there whole."""
    heads = Heads([b"abcdefgh-1", b"abcdefgh-2", b"abcxyz12-3"])
    assert heads.at_the_end(b"--abcdefgh-1") == ([2], [])
    assert heads.at_the_end(b"--abcdefgx")[1] == [Miss(2, 7, b"abcdefgh-2")]
    assert {miss.needle for miss in heads.at_the_end(b"--abcdefgh-1!")[1]} == {b"abcdefgh-2"}
    assert heads.at_the_end(b"--abcdefgx12")[1] != []
    assert heads.at_the_end(b"--abcdefgx123")[1] == []
    assert heads.at_the_end(b"--abcdefgh-0")[1] == [Miss(2, 9, b"abcdefgh-1")]
    assert Heads([b"abcdefgh-1"]).at_the_end(b"abcdefg~") == ([], [Miss(0, 7, b"abcdefgh-1")])
    assert Heads([b"aaaaaaaab"]).at_the_end(b"aaaaaaa")[0] == [0, 1, 2, 3, 4, 5, 6]
    assert heads.at_the_end(b"abc") == ([0], [])
    assert heads.at_the_end(b"") == ([], [])
    assert list(heads.starting_with(b"abcd")) == [b"abcdefgh-1", b"abcdefgh-2"]
    assert list(heads.starting_with(b"abcdefgh-3")) == []
    assert list(Heads([]).starting_with(b"a")) == []
    assert repr(heads) == "<heads of 3 needles>"


def test_the_longest_escape_may_be_cut_anywhere() -> None:
    escape = b"\x1b[" + b"1" * 48 + b" " * 8 + b"m"
    shown = b"a " + TOKEN[:9] + escape + TOKEN[9:] + b"!"
    for cut in range(len(shown) + 1):
        redactor = Redactor(plain(TOKEN))
        assert redactor.feed(shown[:cut]) + redactor.feed(shown[cut:]) == b"a [redacted:S]!", cut


def test_every_byte_of_text_is_where_it_stands_in_the_raw_stream() -> None:
    """Also where an escape lies over the grain in which positions are counted."""
    escape = b"\x1b[38;5;123m"
    for before in range(480, 530):
        raw = b"a" * before + escape + b"b c" + escape * 60 + b"d" * 700
        hidden = {at + i for at in range(len(raw)) if raw.startswith(escape, at)
                  for i in range(len(escape))}  # fmt: skip
        places = [at for at in range(len(raw)) if at not in hidden and raw[at : at + 1] != b" "]
        view = View(raw)
        assert view.text == bytes(raw[at] for at in places)
        for index in (0, 1, before - 1, before, before + 1, before + 2, len(places) - 1):
            assert view.raw_index(index) == places[index]


def test_so_much_may_be_left_out_before_the_character_beside_a_core() -> None:
    """Sixteen KiB in all, 256 bytes at a time: the last gap counts like the others."""
    value = bytes(33 + (7 * at + at // 90) % 90 for at in range(60))
    needles = build([("A", value, Redact.ON)])
    printed = b64encode(b"x" + value + b"y")
    core, trail = printed[2:81], printed[81:82]
    gap = b" " * MAX_GAP_BYTES
    wide = gap.join(core[at : at + 1] for at in range(64)) + core[64:]
    assert len(gap) * 64 == MAX_IGNORED_BYTES
    out = redact_all(needles, b"\x01" + wide + gap + trail + b"\x01")
    assert out == b"\x01[redacted:A]\x01"
    out = redact_all(needles, b"\x01" + wide + gap + b" " + trail + b"\x01")
    assert out == b"\x01[redacted:A]" + gap + b" " + trail + b"\x01"


@pytest.mark.parametrize(("size", "is_sought"), [(1025, True), (8192, True), (8193, False)])
def test_values_up_to_eight_kib_are_sought_in_base64_too(size: int, is_sought: bool) -> None:
    value = bytes(33 + (7 * at + at // 90) % 90 for at in range(1, size - 1))
    value = b"k" + value + b"k"
    out = redact_all(build([("A", value, Redact.ON)]), b64encode(value))
    assert (b"[redacted:A]" in out) == is_sought
