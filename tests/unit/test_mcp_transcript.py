"""What is kept of a stream, and what is shown of it (STYLE: unit; the rules of `transcript.py`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackin_mcp.transcript import INLINE_MAX_BYTES, KEPT_MAX_BYTES, Budget, Transcript


def of(data: bytes, *, budget: Budget | None = None, step: int = 50_000) -> Transcript:
    made = Transcript(budget or Budget())
    for start in range(0, len(data), step):
        made.add(data[start : start + step])
    return made


def test_short_output_is_whole_and_inline() -> None:
    made = of(b"a" * INLINE_MAX_BYTES)
    assert (made.is_long, made.is_whole) == (False, True)
    assert made.inline("nowhere") == "a" * INLINE_MAX_BYTES


def test_long_output_keeps_head_and_tail_inline_and_all_of_it_beside() -> None:
    data = b"".join(b"%07d\n" % n for n in range(20_000))
    made = of(data)
    text = made.inline("read it THERE")
    assert made.size == len(data)
    assert made.whole() == data
    assert text.startswith("0000000\n")
    assert text.endswith("0019999\n")
    missing = int(text.split(" bytes are left out here; read it THERE]")[0].rpartition("[")[2])
    assert missing == len(data) - INLINE_MAX_BYTES
    assert len(text) < INLINE_MAX_BYTES + 200


def test_beyond_the_bound_the_middle_is_gone_and_counted() -> None:
    data = b"h" + b"m" * (KEPT_MAX_BYTES + 200_000) + b"t"
    made = of(data)
    whole = made.whole()
    assert not made.is_whole
    assert whole.startswith(b"hm")
    assert whole.endswith(b"mt")
    kept, _, rest = whole.partition(b"\n[")
    missing = int(rest.partition(b" ")[0])
    assert len(kept) + missing + len(rest.partition(b"]\n")[2]) == len(data)


def test_the_sessions_budget_is_shared_and_given_back() -> None:
    budget = Budget(100_000)
    first = of(b"1" * (INLINE_MAX_BYTES + 90_000), budget=budget)
    second = of(b"2" * (INLINE_MAX_BYTES + 90_000), budget=budget)
    assert first.is_whole
    assert not second.is_whole
    assert second.inline("").endswith("2")
    assert budget.left == 0
    first.forget()
    assert budget.left == 90_000
    assert of(b"3" * (INLINE_MAX_BYTES + 90_000), budget=budget).is_whole


@given(st.integers(0, 7), st.sampled_from(["ü", "€", "😀"]))
def test_a_cut_falls_between_characters(shift: int, char: str) -> None:
    text = "x" * shift + char * 60_000
    shown = of(text.encode()).inline("THERE")
    assert "�" not in shown
    assert shown.endswith(char)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_split_of_a_stream_is_the_same(data: bytes, step: int) -> None:
    assert of(data, step=step).whole() == data
    assert of(data, step=step).inline("") == data.decode("utf-8", "replace")
