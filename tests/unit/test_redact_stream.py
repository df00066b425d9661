"""The stream: what leaves when, and in whose name. Whose rule: REDACTION §7, DESIGN §10."""

from __future__ import annotations

import hashlib
import random
import time

import pytest

from jackin_broker.bindings import Redact
from jackin_broker.redact.forms import Form
from jackin_broker.redact.needles import NeedleSet, build, of_forms
from jackin_broker.redact.projection import MAX_ESCAPE_BYTES, MAX_GAP_BYTES, MAX_IGNORED_BYTES
from jackin_broker.redact.stream import Redactor, redact_all, redact_parts

TOKEN = b"tok_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQ7rT"
OTHER = b"Zw8yVx6uTs4rQp2oNm0lKj_other"


def plain(*values: bytes) -> NeedleSet:
    """Needles without further forms."""
    forms = [(at, Form(value)) for at, value in enumerate(values)]
    return of_forms([f"S{at}" for at in range(len(values))], forms, {})


def test_with_nothing_to_look_for_the_bytes_themselves_come_back() -> None:
    redactor = Redactor(build([]))
    data = bytes(range(256)) + b"\x1b["
    assert redactor.feed(data) is data
    assert redactor.finish() == b""


def test_a_chunk_without_a_needle_is_not_even_copied() -> None:
    data = b"nothing to see here. " * 100
    assert Redactor(build([("A", TOKEN, Redact.ON)])).feed(data) is data


def test_binary_stays_as_it_is_to_the_bit() -> None:
    """CASES 3a: 4 MiB of random bytes, and the same with a value inside."""
    noise = random.Random(7).randbytes(4 * 1024 * 1024)
    needles = build([("A", TOKEN, Redact.ON)])
    for data, expected in (
        (noise, noise),
        (
            noise[:99_999] + TOKEN + noise[99_999:],
            noise[:99_999] + b"[redacted:A]" + noise[99_999:],
        ),
    ):
        redactor = Redactor(needles)
        parts = [redactor.feed(data[at : at + 65_536]) for at in range(0, len(data), 65_536)]
        out = b"".join([*parts, redactor.finish()])
        assert hashlib.sha256(out).digest() == hashlib.sha256(expected).digest()


def test_the_union_has_the_name_of_its_first_and_longest() -> None:
    needles = plain(b"abcdefgh12", b"abcdefgh12ijkl", b"gh12ijklmnop")
    assert redact_all(needles, b"<abcdefgh12ijklmnop>") == b"<[redacted:S1]>"
    assert redact_all(needles, b"<abcdefgh12abcdefgh12>") == b"<[redacted:S0][redacted:S0]>"


def test_the_first_binding_of_two_with_the_same_value_gives_the_name() -> None:
    needles = build([("A", TOKEN, Redact.ON), ("B", TOKEN, Redact.ON)])
    assert redact_all(needles, TOKEN) == b"[redacted:A]"


def test_a_marker_leaves_before_the_union_is_closed() -> None:
    """A flood that overlaps itself can neither grow the buffer nor hold the marker back."""
    redactor = Redactor(plain(b"abcabcabcabd", b"abcabcabcabc"))
    assert redactor.feed(b"abcabcabcabcabc").startswith(b"[redacted:S1]")
    for _ in range(1000):
        assert redactor.feed(b"abc") == b""
        assert redactor.held_bytes < 12
    assert redactor.feed(b"abx") + redactor.finish() == b"abx"
    assert redactor.redacted_count == 1


def test_a_long_value_is_held_whole_and_no_more() -> None:
    value = bytes(random.Random(3).choices(range(33, 127), k=3000))
    redactor = Redactor(plain(value))
    for at in range(2999):
        assert redactor.feed(value[at : at + 1]) == b""
    assert redactor.held_bytes == 2999
    assert redactor.feed(value[2999:]) == b"[redacted:S0]"
    redactor.feed(b"-" + value[:2000])
    assert redactor.feed(b"~") == value[:2000] + b"~"


@pytest.mark.parametrize(
    ("gap", "is_masked"),
    [(b" " * MAX_GAP_BYTES, True), (b" " * (MAX_GAP_BYTES + 1), False), (b"\x1b[31m" * 51, True),
     (b"\x1b[31m" * 52, False), (b"\x1b]0;x\x07", False), (b"\x1b(B\x0f", True), (b"\b", False)],
)  # fmt: skip
def test_so_much_may_stand_between_two_bytes(gap: bytes, is_masked: bool) -> None:
    shown = TOKEN[:20] + gap + TOKEN[20:]
    out = redact_all(plain(TOKEN), shown)
    assert out == (b"[redacted:S0]" if is_masked else shown)


def test_ignored_bytes_are_bounded_in_all() -> None:
    """Memory: a needle dribbled with the widest gaps is let go, not collected."""
    redactor = Redactor(plain(bytes(random.Random(5).sample(range(33, 127), 90))))
    text = next(iter(plain(bytes(random.Random(5).sample(range(33, 127), 90))).needles())).text
    most = 0
    for byte in text[:-1]:
        redactor.feed(bytes([byte]) + b"\n" * MAX_GAP_BYTES)
        most = max(most, redactor.held_bytes)
    assert most <= MAX_IGNORED_BYTES + 90 + MAX_GAP_BYTES


def test_an_unfinished_escape_is_held_and_an_endless_one_is_not() -> None:
    redactor = Redactor(plain(TOKEN))
    assert redactor.feed(b"ab\x1b[3") == b"ab"
    assert redactor.feed(b"1mcd") == b"\x1b[31mcd"
    assert redactor.feed(b"\x1b[" + b"1;" * MAX_ESCAPE_BYTES)[:2] == b"\x1b["
    assert redactor.held_bytes == 0


def test_an_escape_that_is_still_open_takes_no_part_of_a_value_away() -> None:
    """`printf '\\033[%s' "$TOKEN"`: terminals take the first letter for the escape's end."""
    for value, escapes in (
        (TOKEN, (b"\x1b[", b"\x1b[1;31", b"\x1b[ ", b"\x1b(")),
        (b"77;8kA-Sup3rSecret", (b"\x1b[", b"\x1b[1;", b"\x1b%")),
        (b"/-k9-Sup3rSecret!", (b"\x1b[", b"\x1b[31")),
    ):
        needles = build([("A", value, Redact.ON)])
        for escape in escapes:
            shown = b"a " + escape + value + b" z"
            assert redact_all(needles, shown) == b"a [redacted:A] z", shown
            for cut in range(len(shown) + 1):
                redactor = Redactor(needles)
                out = redactor.feed(shown[:cut]) + redactor.feed(shown[cut:]) + redactor.finish()
                assert out == b"a [redacted:A] z", (shown, cut)
        rest = value[1:]
        assert redact_all(needles, b"a " + rest) == b"a " + rest  # nothing took its first letter


def test_an_escape_that_took_nothing_of_a_value_leaves_after_a_silence() -> None:
    redactor = Redactor(build([("A", TOKEN, Redact.ON)]))
    assert redactor.feed(b"$ \x1b[0m") == b"$ \x1b[0m"
    assert redactor.feed(b"$ \x1b[8t") == b"$ "
    assert redactor.idle() == b"\x1b[8t"
    assert redactor.feed(TOKEN[1:] + b"!") == b"[redacted:A]!"
    assert redactor.redacted_count == 1


def test_the_character_before_a_core_waits_for_it() -> None:
    """Whichever of the needles that begin alike it belongs to; and only within reach."""
    forms = [Form(b"kAAAAAAAAAAAAAAAA"), Form(b"kBBBBBBBBBBBBBBBB", lead=b"QR", trail=b"wx")]
    needles = of_forms(["S"], [(0, form) for form in forms], {})
    for core, lead, trail in ((b"kA", b"Q", b"w"), (b"kB", b"", b"")):
        whole = core + core[1:] * 15
        redactor = Redactor(needles)
        shown = redactor.feed(b"-Q") + redactor.feed(core[:1]) + redactor.feed(whole[1:])
        assert shown + redactor.feed(b"w;") == b"-" + lead + b"[redacted:S]" + trail + b";"
    core = b"kBBBBBBBBBBBBBBBB"
    for gap in (b" " * MAX_GAP_BYTES, b" " * (MAX_GAP_BYTES + 1)):
        out = redact_all(needles, b"-Q" + gap + core + gap + b"w;")
        near = len(gap) <= MAX_GAP_BYTES
        assert out == (b"-[redacted:S];" if near else b"-Q" + gap + b"[redacted:S]" + gap + b"w;")
        for cut in range(len(gap) + 4):
            redactor = Redactor(needles)
            data = b"-Q" + gap + core + b";"
            assert redactor.feed(data[:cut]) + redactor.feed(data[cut:]) == (
                b"-[redacted:S];" if near else b"-Q" + gap + b"[redacted:S];"
            )


def test_a_percent_escape_may_be_cut_between_its_digits() -> None:
    """In either case, and where the write before ended with the percent sign."""
    needles = plain(b"%fA2%fa-and-more-of-it")
    for shown in (b"%Fa2%fA-and-more-of-it", b"%fa2%FA-and-more-of-it"):
        for cut in range(len(shown) + 1):
            redactor = Redactor(needles)
            out = redactor.feed(shown[:cut]) + redactor.feed(shown[cut:]) + redactor.finish()
            assert out == b"[redacted:S0]"
    assert redact_all(needles, b"100%f") == b"100%f"


def test_what_the_end_cuts_off_is_masked_from_eight_bytes_on() -> None:
    for size in range(1, len(TOKEN)):
        out = redact_all(plain(TOKEN), b"x" + TOKEN[:size] + b"\n")
        assert out == (b"x" + TOKEN[:size] + b"\n" if size < 8 else b"x[redacted:S0]\n")


def test_a_public_head_at_the_end_is_no_secret() -> None:
    """concourse/concourse 9424, and the scheme and host of a URL."""
    needles = build([("A", b"https://host.example/hook/9fK2mQ7xzz", Redact.ON)])
    assert redact_all(needles, b"see https://host.example") == b"see https://host.example"
    assert redact_all(needles, b"see https://host.example/hook/9f") == b"see [redacted:A]"


def test_idle_shows_three_bytes_of_a_long_needle_and_none_of_a_short_one() -> None:
    for value, shown in ((TOKEN, [b"t", b"o", b"k", b""]), (b"tok_12345", [b"", b"", b"", b""])):
        redactor = Redactor(plain(value))
        got: list[bytes] = []
        for at in range(4):
            assert redactor.feed(value[at : at + 1]) == b""
            got.append(redactor.idle())
        assert got == shown
        assert redactor.feed(value[4:]).startswith(b"[redacted:S0]")
        assert redactor.redacted_count == 1


def test_idle_shows_what_goes_on_as_something_else_once() -> None:
    redactor = Redactor(plain(TOKEN))
    out = redactor.feed(b"say to") + redactor.idle() + redactor.feed(b"") + redactor.idle()
    assert out + redactor.feed(b"day") + redactor.finish() == b"say today"


def test_idle_never_shows_what_a_marker_stands_for() -> None:
    """`ab` at the end of one value is the head of the other."""
    redactor = Redactor(plain(b"12345678ab", b"ab-second-value"))
    assert redactor.feed(b"12345678ab") + redactor.idle() == b"[redacted:S0]"
    assert redactor.feed(b"!") == b"!"


def test_a_needle_added_later_is_found_in_what_is_held() -> None:
    """REDACTION §9.11."""
    redactor = Redactor(plain(b"tok_Ab-something-else"))
    assert redactor.feed(b"x tok_Ab") == b"x "
    redactor.replace_needles(plain(TOKEN))
    assert redactor.feed(TOKEN[6:] + b" y") == b"[redacted:S0] y"


def test_a_needle_added_later_has_its_rest_masked_when_half_is_shown() -> None:
    redactor = Redactor(build([]))
    assert redactor.feed(b"nothing, ") == b"nothing, "
    redactor.replace_needles(plain(OTHER))
    shown = [redactor.feed(TOKEN[at : at + 1]) for at in range(20)]
    assert b"".join(shown) == TOKEN[:20]
    redactor.replace_needles(plain(OTHER, TOKEN))
    assert redactor.feed(TOKEN[20:] + b" y") == b"[redacted:S1] y"


def test_what_a_marker_stood_for_is_not_looked_for_again() -> None:
    redactor = Redactor(plain(OTHER))
    assert redactor.feed(b"12345678" + OTHER + b"abcdefgh;") == b"12345678[redacted:S0]abcdefgh;"
    redactor.replace_needles(plain(b"12345678abcdefgh;more", b"abcdefgh;more"))
    assert redactor.feed(b"more.") == b"[redacted:S1]."


def test_a_needle_taken_away_is_let_go() -> None:
    redactor = Redactor(plain(TOKEN))
    assert redactor.feed(TOKEN[:20]) == b""
    redactor.replace_needles(build([]))
    assert redactor.feed(b"!") == TOKEN[:20] + b"!"
    assert redactor.finish() == b""


def test_a_marker_half_of_which_is_held_survives_a_change_of_needles() -> None:
    redactor = Redactor(plain(b"12345678ab", b"ab-second-value"))
    assert redactor.feed(b"12345678ab") == b"[redacted:S0]"
    redactor.replace_needles(plain(OTHER))
    assert redactor.feed(b"c") + redactor.finish() == b"c"


def test_another_marker_where_the_usual_one_would_hold_a_needle() -> None:
    for value in (
        b"[redacted:S0]",
        b"redacted",
        b"dacted:S",
        b"x[redacted",
        b"S0]-and-more",
        b"abcdefgh[redacted:S0]ijklmnop",
        b"]]]]abcd",
    ):
        needles = plain(value)
        marker = needles.markers[0]
        assert marker != b"[redacted:S0]"
        out = redact_all(needles, b"<" + value + b"." + value + b">")
        assert out == b"<" + marker + b"." + marker + b">"
        assert redact_all(needles, out) == out


def test_a_marker_is_found_whatever_the_needles_are() -> None:
    """Needles that touch every style, then every run of one printable character."""
    heads = [b"[", b"<", b"{", b"(", b"*", b"#"]
    taken = plain(*(b"abcdefgh" + head for head in heads))
    assert taken.markers[0] not in (b"", b"[redacted:S0]")
    everything = plain(*(bytes([byte]) * 9 for byte in range(0x21, 0x7F)), b"[redacted]" * 2)
    assert everything.markers[0] == b""
    first_is_free = plain(*(bytes([byte]) * 9 for byte in range(0x22, 0x7F)), b"[redacted]" * 2)
    assert first_is_free.markers[0] == b"!!!!!"


def test_a_marker_may_end_as_a_needle_does() -> None:
    """Nothing that comes behind it makes one."""
    for value in (b"abcdefgh]", b"abcdefghted:S0]"):
        assert plain(value).markers[0] == b"[redacted:S0]"
        assert redact_all(plain(value), value + b"abcdefgh" + value) == (
            b"[redacted:S0]abcdefgh[redacted:S0]"
        )


def test_a_marker_without_a_name_is_no_part_of_a_needle_either() -> None:
    opens = [b"[redacted:", b"<redacted:", b"{redacted:", b"(hidden:", b"*hidden:"]
    named = [b"12345678" + open_ for open_ in opens]
    assert plain(*named).markers[0] == b"[redacted]"
    assert plain(*named, b"abcdefgh[redacted]ijklmnop").markers[0] == b"<hidden>"


def test_a_redactor_shows_nothing_of_what_it_holds() -> None:
    redactor = Redactor(plain(TOKEN))
    redactor.feed(TOKEN[:30])
    assert "tok_" not in f"{redactor!r} {redactor}"


def test_parts_are_redacted_each_as_if_it_were_alone() -> None:
    needles = build([("A", TOKEN, Redact.ON)])
    for parts in (
        [b"gh", TOKEN, b"--x=" + TOKEN, b""],
        [TOKEN[:20], TOKEN[20:], TOKEN[:39]],
        [TOKEN],
        [b"\x1b", b"\n", TOKEN[:-1], TOKEN[-1:] + TOKEN],
    ):
        assert redact_parts(needles, parts) == tuple(redact_all(needles, part) for part in parts)


def test_as_many_parts_as_a_command_may_have_take_no_time() -> None:
    """65,536 redactors took four seconds, in which the broker answered nobody."""
    needles = build([("A", TOKEN, Redact.ON)])
    start = time.process_time()
    redact_parts(needles, [b"argument"] * 65_536)
    assert time.process_time() - start < 1


def test_what_hundreds_of_values_begin_with_is_read_as_fast_as_what_one_does() -> None:
    """A stream full of it took two seconds a mebibyte: each value was held against each place."""
    head = b"service-production-"
    letters = random.Random(9)
    tails = (bytes(letters.choices(range(97, 123), k=24)) for _ in range(200))
    values = [head + tail for tail in tails]
    needles = build([(f"S{at}", value, Redact.ON) for at, value in enumerate(values)])
    data = (head + b"~ ") * (2 * 1024 * 1024 // 21) + values[-1]
    start = time.process_time()
    assert redact_all(needles, data).endswith(b"~ [redacted:S199]")
    assert time.process_time() - start < 1
