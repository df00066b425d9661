"""Lengths of time as they are typed."""

from __future__ import annotations

import click
import pytest

from jackin_broker.cli.duration import whole

OPTION = click.Option(["--for"])
CONTEXT = click.Context(click.Command("decide"))


@pytest.mark.parametrize(
    ("unit", "text", "amount"),
    [("m", "15m", 15), ("m", "2h", 120), ("m", "5", 5), ("d", "90d", 90), ("d", "2w", 14)],
)
def test_a_length_is_read_in_its_unit(unit: str, text: str, amount: int) -> None:
    assert whole(unit)(CONTEXT, OPTION, text) == amount


@pytest.mark.parametrize(("unit", "text"), [("m", "0m"), ("m", "30s"), ("m", "-1"), ("d", "36h"),
                                            ("d", ""), ("m", "1m1m"), ("m", "9" * 9)])  # fmt: skip
def test_what_is_no_whole_length_is_refused(unit: str, text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected whole"):
        whole(unit)(CONTEXT, OPTION, text)


def test_what_is_not_given_is_nothing() -> None:
    assert whole("m")(CONTEXT, OPTION, None) is None
