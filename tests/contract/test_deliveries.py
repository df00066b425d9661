"""The contract of a delivery, one short subclass each, and what `prepare` promises for all."""

from __future__ import annotations

import asyncio
import base64
import secrets
import traceback
from abc import ABC, abstractmethod

import pytest

from jackin_broker.bindings import Binding, Credential, Delivery, ValueSource
from jackin_broker.deliveries import Prepared, check_supported, is_supported, prepare
from jackin_broker.errors import DenialCode, Refusal


def credential(
    value: bytes, *, name: str = "API_KEY", delivery: Delivery = Delivery.ENV, deliver_as: str = ""
) -> Credential:
    """A resolved credential with these settings."""
    binding = Binding(name, ValueSource("unused"), delivery=delivery, deliver_as=deliver_as)
    return Credential(binding, value)


def token() -> bytes:
    return b"tok" + secrets.token_hex(12).encode()


def prepared(*credentials: Credential) -> Prepared:
    return asyncio.run(prepare(credentials))


class DeliveryContract(ABC):
    """What every delivery keeps."""

    delivery: Delivery

    @abstractmethod
    def delivered(self, made: Prepared, name: str) -> bytes | None:
        """What the command gets for a binding of this name."""

    def make(self, value: bytes) -> Credential:
        return credential(value, delivery=self.delivery)

    def test_it_is_supported(self) -> None:
        assert is_supported(self.delivery)

    @pytest.mark.parametrize("value", [b"", b"plain", b"a\nb\n", b"\xff\xfe", b"x" * 100_000])
    def test_the_value_arrives_to_the_byte(self, value: bytes) -> None:
        assert self.delivered(prepared(self.make(value)), "API_KEY") == value

    def test_no_value_is_in_a_repr(self) -> None:
        value = token()
        assert value.decode() not in repr(prepared(self.make(value)))

    def test_cleaning_takes_the_value_back_and_may_be_repeated(self) -> None:
        made = prepared(self.make(token()))

        async def clean() -> None:
            await made.clean()
            await made.clean()

        asyncio.run(clean())
        assert self.delivered(made, "API_KEY") is None


class TestEnvDelivery(DeliveryContract):
    delivery = Delivery.ENV

    def delivered(self, made: Prepared, name: str) -> bytes | None:
        return made.env.get(name.encode())


def test_deliver_as_names_the_variable() -> None:
    made = prepared(credential(b"value", name="PROD_DB", deliver_as="PGPASSWORD"))
    assert made.env == {b"PGPASSWORD": b"value"}


def test_several_arrive_together() -> None:
    made = prepared(credential(b"one", name="A"), credential(b"two", name="B"))
    assert made.env == {b"A": b"one", b"B": b"two"}


@pytest.mark.parametrize(
    ("value", "name", "deliver_as", "words"),
    [
        (b"%s\0", "A", "", "NUL"),
        (b"%s" + b"x" * 128 * 1024, "A", "", "at most"),
        (b"%s", "A", "NOT A=NAME", "no name of a variable"),
        (b"%s", "A-B", "", "no name of a variable"),
    ],
)
def test_a_value_that_a_variable_cannot_hold_is_refused_without_showing_it(
    value: bytes, name: str, deliver_as: str, words: str
) -> None:
    """The value is in no message and no traceback; the next step is."""
    secret = token()
    given = credential(value.replace(b"%s", secret), name=name, deliver_as=deliver_as)
    with pytest.raises(Refusal) as caught:
        prepared(given)
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.hint
    assert caught.value.code is DenialCode.SOURCE_FAILED
    assert words in str(caught.value)
    assert caught.value.hint
    assert secret.decode() not in shown
    assert base64.b64encode(secret).decode() not in shown


def test_two_values_for_one_variable_are_refused() -> None:
    """Which of them would win is nobody's guess."""
    with pytest.raises(Refusal, match="delivered as TOKEN too"):
        prepared(credential(b"1", name="A", deliver_as="TOKEN"), credential(b"2", name="TOKEN"))


@pytest.mark.parametrize("delivery", [d for d in Delivery if not is_supported(d)])
def test_what_this_version_cannot_deliver_is_refused_before_a_source_is_asked(
    delivery: Delivery,
) -> None:
    binding = credential(b"", delivery=delivery).binding
    with pytest.raises(Refusal, match=f"{delivery.value}, which this version does not do"):
        check_supported([binding])
