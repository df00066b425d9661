"""When a key may decide (DESIGN §7): times in, verdicts out."""

from __future__ import annotations

from jackin_picker.guard import ARM_S, BURST_S, Guard, Press


def armed(at_s: float = 10.0) -> Guard:
    """A guard that was armed at that moment."""
    guard = Guard()
    guard.drawn("digest", at_s - ARM_S)
    assert guard.poll(at_s)
    return guard


def test_a_prompt_arms_after_four_tenths_of_a_second_without_a_key() -> None:
    guard = Guard()
    guard.drawn("digest", 10.0)
    assert not guard.poll(10.39)
    assert guard.poll(10.41)
    assert guard.is_armed


def test_a_key_before_that_does_nothing_and_starts_the_silence_anew() -> None:
    guard = Guard()
    guard.drawn("digest", 10.0)
    assert guard.press(10.3) is Press.IGNORED
    assert not guard.poll(10.5)
    assert guard.press(10.6) is Press.IGNORED
    assert not guard.poll(10.9)
    assert guard.poll(11.0)


def test_a_key_that_arrived_before_the_arming_was_shown_does_nothing() -> None:
    """The program was busy: the key waited while the prompt was drawn and armed."""
    guard = armed(at_s=10.0)
    assert guard.press(9.99) is Press.IGNORED
    assert guard.press(10.2) is Press.ACTS


def test_what_was_never_drawn_never_arms() -> None:
    guard = Guard()
    assert not guard.poll(1000.0)
    assert guard.press(1000.0) is Press.IGNORED


def test_armed_it_stays_armed_while_the_same_is_drawn_again() -> None:
    guard = armed()
    guard.drawn("digest", 12.0)
    assert guard.is_armed


def test_another_subject_is_unarmed_and_forgets_what_was_deliberate() -> None:
    guard = armed()
    guard.deliberate()
    guard.drawn("another digest", 12.0)
    assert not guard.is_armed
    assert not guard.may_run
    assert not guard.poll(12.3)
    assert guard.poll(12.5)
    assert not guard.may_run


def test_out_of_sight_is_unarmed() -> None:
    guard = armed()
    guard.hidden()
    assert guard.press(20.0) is Press.IGNORED
    assert not guard.poll(30.0)
    guard.drawn("digest", 30.0)
    assert guard.poll(30.5)


def test_running_takes_a_deliberate_key_since_arming() -> None:
    guard = Guard()
    guard.drawn("digest", 10.0)
    guard.deliberate()
    assert guard.poll(10.5)
    assert not guard.may_run
    guard.deliberate()
    assert guard.may_run


def test_a_stray_key_takes_the_deliberate_one_back() -> None:
    guard = armed()
    guard.deliberate()
    guard.stray()
    assert not guard.may_run


def test_keys_that_arrive_together_never_decide() -> None:
    guard = armed()
    assert guard.press(11.0) is Press.ACTS
    assert guard.press(11.0 + BURST_S / 2) is Press.ACTS_BUT_NEVER_DECIDES
    assert guard.press(11.1) is Press.ACTS


def test_the_fastest_fingers_are_no_burst() -> None:
    guard = armed()
    guard.press(11.0)
    assert guard.press(11.02) is Press.ACTS


def test_the_time_left_to_wait_is_never_negative() -> None:
    guard = Guard()
    assert guard.silence_left_s(5.0) == ARM_S
    guard.drawn("digest", 10.0)
    assert abs(guard.silence_left_s(10.1) - (ARM_S - 0.1)) < 1e-9
    assert guard.silence_left_s(99.0) == 0
