"""The guessing budget. Whose rule: DESIGN §10, issue "Redaction that nobody gets past".

The attacker here is the strongest that the design admits: it chooses what the command writes, sees
every byte that leaves and, without any clock, which ones do not.
"""

from __future__ import annotations

import random
import string
from base64 import b64encode

import pytest

from jackin_broker.bindings import Redact
from jackin_broker.redact.budget import (
    BUDGET,
    FORGIVE_ONE_EVERY_S,
    SHALLOW_BYTES,
    Depth,
    GuessingBudget,
    NearMisses,
    depth_of,
)
from jackin_broker.redact.needles import NeedleSet, build
from jackin_broker.redact.stream import Redactor

ALPHABET = string.ascii_letters + string.digits
TOKEN = b"Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQ7rTu0Ve"


def misses_of(needles: NeedleSet, *writes: bytes, name: str = "A") -> NearMisses:
    redactor = Redactor(needles)
    for write in writes:
        redactor.feed(write)
    redactor.finish()
    return redactor.take_near_misses().get(name, NearMisses())


def token_set(value: bytes = TOKEN) -> NeedleSet:
    return build([("A", value, Redact.ON)])


class Attacker:
    """Finds the next characters of a token by what an echoing terminal holds back."""

    def __init__(self, token: bytes, *, guessed: int) -> None:
        self.needles = build([("A", token, Redact.ON)])
        self.budget = GuessingBudget()
        self.guessed = guessed
        self.is_stopped = False

    def try_one(self, guess: bytes) -> bool:
        """True if the guess was held back; the line is then erased."""
        redactor = Redactor(self.needles)
        is_held = redactor.feed(b"~" + guess) == b"~"
        redactor.feed(b"~" * 4)
        redactor.finish()
        misses = redactor.take_near_misses().get("A", NearMisses())
        self.is_stopped = self.budget.note("A", misses, now_s=0.0)
        return is_held

    def recover(self, rng: random.Random, token: bytes) -> int:
        """How many characters were known when the budget was spent."""
        known = 0
        while not self.is_stopped and known < len(token):
            for guess in self.guesses(rng, known, token[known : known + self.guessed]):
                right = self.try_one(token[:known] + guess)
                if self.is_stopped:
                    return known
                if right:
                    break
            known += self.guessed
        return known

    def guesses(self, rng: random.Random, known: int, right: bytes) -> list[bytes]:
        """Guesses in random order, up to the right one.

        Those that begin too little of the token to be counted are left out: they cost and teach
        nothing. No more are made than end the attack.
        """
        free = max(0, SHALLOW_BYTES - known)
        tried = rng.randrange(len(ALPHABET) ** len(right))
        counted = min(tried // len(ALPHABET) ** free, BUDGET + 1)
        wrong = [
            right[:free] + bytes(rng.choices(ALPHABET.encode(), k=len(right) - free))
            for _ in range(counted)
        ]
        return [*(guess for guess in wrong if guess != right), right]


@pytest.mark.parametrize("guessed", [1, 2, 3])
def test_the_echo_attack_learns_fewer_than_eight_characters(guessed: int) -> None:
    """One, two or three characters at a time; the median is four or five."""
    rng = random.Random(guessed)
    learned: list[int] = []
    for _ in range(60):
        token = "".join(rng.choices(ALPHABET, k=40)).encode()
        attacker = Attacker(token, guessed=guessed)
        learned.append(attacker.recover(rng, token))
        assert attacker.is_stopped
    assert max(learned) < 8
    assert sorted(learned)[30] <= 6


def test_the_cut_tail_attack_ends_within_the_budget() -> None:
    """A head at the end of a stream is masked if it is right: each such look is counted."""
    budget = GuessingBudget()
    looks = 0
    is_spent = False
    while not is_spent:
        looks += 1
        size = 8 + looks % 20
        wrong = TOKEN[: size - 1] + (b"!" if looks % 2 else TOKEN[size - 1 : size])
        misses = misses_of(token_set(), wrong)
        assert misses.deep + misses.shallow == 1
        is_spent = budget.note("A", misses, now_s=0.0)
    assert looks == BUDGET + 1


@pytest.mark.parametrize("write", ["held, then let go", "failed in one write", "a newline behind"])
def test_a_guess_is_counted_however_it_is_written(write: str) -> None:
    head = TOKEN[:10]
    writes = {
        "held, then let go": (head, b"~"),
        "failed in one write": (head + b"~",),
        "a newline behind": (head + b"~\r\n",),
    }[write]
    assert misses_of(token_set(), *writes) == NearMisses(deep=1)


def test_one_guess_is_one_miss_whatever_it_begins() -> None:
    """Raw, quoted and repeated forms of one binding begin alike."""
    needles = token_set(b"a<b>'c\"" + TOKEN)
    assert misses_of(needles, b"a<b>'c\"" + TOKEN[:9], b"~") == NearMisses(deep=1)


def test_what_is_masked_in_the_end_was_no_guess() -> None:
    writes = [TOKEN[at : at + 1] for at in range(len(TOKEN))]
    assert misses_of(token_set(), *writes, b"\n") == NearMisses()
    lines = "first-line-of-value-1\nsecond-line-of-value-2"
    assert misses_of(token_set(lines.encode()), b"first-line-of-value-1") == NearMisses()


def test_short_heads_and_heads_long_past_do_not_count() -> None:
    assert misses_of(token_set(), TOKEN[:3], b"~") == NearMisses()
    assert misses_of(token_set(), TOKEN[:10] + b"~~~~") == NearMisses()
    assert misses_of(token_set(), TOKEN[:10] + b"~~~") == NearMisses(deep=1)
    assert misses_of(token_set(), TOKEN[:4], b"~") == NearMisses(shallow=1)
    assert misses_of(token_set(), TOKEN[:7], b"~") == NearMisses(shallow=1)
    assert misses_of(token_set(), TOKEN[:8], b"~") == NearMisses(deep=1)


@pytest.mark.parametrize(
    "value",
    [
        b"xoxb-" + TOKEN,
        b"https://host.example/" + TOKEN,
        b"db://app:" + TOKEN + b"@h",
        b64encode(b'{"alg":"none"}').rstrip(b"=") + b"." + TOKEN,
        b"-----BEGIN FAKE TEST KEY-----\n" + TOKEN + b"\n-----END FAKE TEST KEY-----",
    ],
)
def test_heads_that_are_public_by_form_do_not_count(value: bytes) -> None:
    public = value[: value.index(TOKEN)]
    for cut in range(1, len(public) + 4):
        assert misses_of(token_set(value), value[:cut], b"~") == NearMisses(), value[:cut]
        assert misses_of(token_set(value), value[:cut].hex().encode(), b"~").deep == 0
    assert misses_of(token_set(value), value[: len(public) + 8], b"~") == NearMisses(deep=1)


def test_a_log_and_a_typist_stay_far_below_the_budget() -> None:
    """64 KiB reads of a build log, and a shell session typed a key at a time."""
    rng = random.Random(11)
    words = "pass postgres select error token build commit merge deploy admin user value"
    secrets = ["pass-" + "".join(rng.choices(ALPHABET, k=20)), "select-star-99x", "hunter2-hunter3"]
    secrets += ["".join(rng.choices(ALPHABET, k=40)) for _ in range(20)]
    needles = build([(f"S{at}", s.encode(), Redact.ON) for at, s in enumerate(secrets)])
    log = "\n".join(" ".join(rng.choices(words.split(), k=9)) for _ in range(20_000)).encode()
    redactor = Redactor(needles)
    for at in range(0, len(log), 65_536):
        redactor.feed(log[at : at + 65_536])
    typed = b"psql -c 'select 1'\r\nls -la; cat passwords.txt\r\ngit commit -m 'merge'\r\n"
    for at in range(len(typed)):
        redactor.feed(typed[at : at + 1])
    redactor.finish()
    worst = max((m.shallow + m.deep for m in redactor.take_near_misses().values()), default=0)
    assert worst <= 3


def test_depth_is_counted_after_the_public_head() -> None:
    assert depth_of(7, 40, 0) is Depth.SHALLOW
    assert depth_of(8, 40, 0) is Depth.DEEP
    assert depth_of(8, 40, 5) is None
    assert depth_of(9, 40, 5) is Depth.SHALLOW
    assert depth_of(13, 40, 5) is Depth.DEEP
    assert depth_of(4, 8, 0) is Depth.DEEP  # half of a short one
    assert depth_of(3, 8, 0) is None
    assert depth_of(5, 10, 0) is Depth.DEEP
    assert depth_of(5, 40, 5) is None


def test_the_budget_adds_up_over_commands_and_bindings_stay_apart() -> None:
    budget = GuessingBudget()
    for _ in range(BUDGET):
        assert not budget.note("A", NearMisses(deep=1), now_s=0.0)
    assert not budget.note("B", NearMisses(deep=1), now_s=0.0)
    assert budget.note("A", NearMisses(shallow=1), now_s=1.0)
    assert budget.is_spent("A", now_s=1.0)
    assert not budget.is_spent("B", now_s=1.0)
    budget.forgive("A")
    assert budget.used("A", now_s=1.0) == 0


def test_time_forgives_shallow_misses_and_never_deep_ones() -> None:
    budget = GuessingBudget()
    budget.note("A", NearMisses(shallow=10, deep=5), now_s=100.0)
    assert budget.used("A", now_s=100.0) == 15
    assert budget.used("A", now_s=100.0 + 4 * FORGIVE_ONE_EVERY_S) == 11
    budget.note("A", NearMisses(shallow=1), now_s=100.0 + 4 * FORGIVE_ONE_EVERY_S)
    assert budget.used("A", now_s=100.0 + 5 * FORGIVE_ONE_EVERY_S) == 11
    assert budget.used("A", now_s=1e9) == 5


def test_misses_are_handed_over_once() -> None:
    redactor = Redactor(token_set())
    redactor.feed(TOKEN[:10])
    redactor.feed(b"~")
    assert redactor.take_near_misses() == {"A": NearMisses(deep=1)}
    assert redactor.take_near_misses() == {}
