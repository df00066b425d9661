"""The contract of a delivery, one short subclass each, and what `prepare` promises for all."""

from __future__ import annotations

import asyncio
import base64
import secrets
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest

from jackin_broker.bindings import Binding, Credential, Delivery, ValueSource
from jackin_broker.deliveries import Place, Prepared, Scratch, check_deliverable, prepare
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.protocol import StdinKind, Target
from support.real import require_program
from support.ssh_server import make_key

ANY_VALUE = (b"", b"plain", b"a\nb\n", b"\xff\xfe", b"x" * 100_000)


def binding_of(delivery: Delivery = Delivery.ENV, name: str = "API_KEY", **more: str) -> Binding:
    """A binding with these settings."""
    return Binding(name, ValueSource("unused"), delivery=delivery, **more)  # type: ignore[arg-type]  # texts alone


def credential(value: bytes, name: str = "API_KEY", **more: str) -> Credential:
    """A resolved credential, delivered as a variable."""
    return Credential(binding_of(Delivery.ENV, name, **more), value)


def token() -> bytes:
    return b"tok" + secrets.token_hex(12).encode()


@pytest.fixture(params=["confined", "unconfined"])
def place(request: pytest.FixtureRequest, short_tmp: Path) -> Place:
    """Where a command can run; its directory on the host, if any, is below a test's own."""
    return Place(request.param == "confined", Scratch(short_tmp / "commands"), lifetime_s=60)


def leftovers(place: Place) -> list[Path]:
    """What is on the host for commands."""
    return list(place.scratch.root.iterdir()) if place.scratch.root.exists() else []


def with_prepared(
    place: Place, look: Callable[[Prepared], Awaitable[None]], *credentials: Credential
) -> Prepared:
    """What was prepared for these, looked at, and cleaned twice."""

    async def go() -> Prepared:
        made = await prepare(credentials, place)
        await look(made)
        await made.clean()
        await made.clean()
        return made

    return asyncio.run(go())


class DeliveryContract(ABC):
    """What every delivery keeps."""

    delivery: Delivery
    # Values that can go this way.
    values: ClassVar[tuple[bytes, ...]] = ANY_VALUE

    @abstractmethod
    async def received(self, made: Prepared) -> bytes | None:
        """What the command gets."""

    def expected(self, value: bytes) -> bytes:
        """What it should get."""
        return value

    def secret(self, value: bytes) -> bytes:
        """The part of a value that must be nowhere else."""
        return value

    @pytest.fixture
    def value(self) -> bytes:
        """A value that nobody else has."""
        return token()

    def make(self, value: bytes) -> Credential:
        return Credential(binding_of(self.delivery, prompt="word: $"), value)

    def test_values_arrive_to_the_byte(self, place: Place) -> None:
        async def look(made: Prepared) -> None:
            assert await self.received(made) == self.expected(value)

        for value in self.values:
            with_prepared(place, look, self.make(value))

    def test_no_value_is_in_a_repr_or_in_the_notes(self, place: Place, value: bytes) -> None:
        async def look(made: Prepared) -> None:
            assert self.secret(value).decode() not in f"{made!r} {made.notes!r}"

        with_prepared(place, look, self.make(value))

    def test_cleaning_takes_everything_back_and_may_be_repeated(
        self, place: Place, value: bytes
    ) -> None:
        async def look(made: Prepared) -> None:
            assert await self.received(made) is not None

        made = with_prepared(place, look, self.make(value))
        assert (made.env, made.stdin, made.files, made.sockets, made.prompts) == (
            {},
            None,
            [],
            [],
            [],
        )
        assert leftovers(place) == []

    def test_what_fails_half_way_leaves_nothing(self, place: Place, value: bytes) -> None:
        bad = credential(b"\0", name="BAD")
        with pytest.raises(Refusal, match="NUL"):
            asyncio.run(prepare([self.make(value), bad], place))
        assert leftovers(place) == []


class TestEnvDelivery(DeliveryContract):
    delivery = Delivery.ENV

    async def received(self, made: Prepared) -> bytes | None:
        return made.env.get(b"API_KEY")


class TestFileDelivery(DeliveryContract):
    delivery = Delivery.FILE
    values = (*ANY_VALUE, b"a NUL \0", b"-----BEGIN A KEY-----\nx\n-----END A KEY-----")

    async def received(self, made: Prepared) -> bytes | None:
        path = made.env[b"API_KEY_FILE"].decode()
        inside = {file.path: file.content for file in made.files}
        return inside[path] if inside else await asyncio.to_thread(Path(path).read_bytes)

    def expected(self, value: bytes) -> bytes:
        """Armour ends with a newline, which its source took away."""
        return value + b"\n" if value.startswith(b"-----BEGIN ") else value


class TestStdinDelivery(DeliveryContract):
    delivery = Delivery.STDIN

    async def received(self, made: Prepared) -> bytes | None:
        return made.stdin


class TestPromptDelivery(DeliveryContract):
    delivery = Delivery.PROMPT
    values = (b"", b"plain", b"with a space and \xc3\xa4", b"x" * 4095)

    async def received(self, made: Prepared) -> bytes | None:
        (prompt,) = made.prompts
        assert prompt.pattern == b"word: $"
        return prompt.answer


class TestSshAgentDelivery(DeliveryContract):
    """What arrives is the use of the key: the agent lists it, under the socket's name."""

    delivery = Delivery.SSH_AGENT
    values = ()

    @pytest.fixture
    def value(self, tmp_path: Path) -> bytes:
        require_program("ssh-agent", package="openssh-client")
        return make_key(tmp_path / "key").encode()

    def secret(self, value: bytes) -> bytes:
        return value.splitlines()[2]

    async def received(self, made: Prepared) -> bytes | None:
        (fingerprint,) = made.notes["ssh_keys"]
        assert made.env[b"SSH_AUTH_SOCK"]
        return fingerprint.encode()


# --- what one delivery promises, and no other -----------------------------------------------


def prepared(place: Place, *credentials: Credential) -> Prepared:
    found: list[Prepared] = []

    async def look(made: Prepared) -> None:
        found.append(Prepared(env=dict(made.env)))

    with_prepared(place, look, *credentials)
    return found[0]


def test_deliver_as_names_the_variable(place: Place) -> None:
    made = prepared(place, credential(b"value", name="PROD_DB", deliver_as="PGPASSWORD"))
    assert made.env == {b"PGPASSWORD": b"value"}
    file = Credential(binding_of(Delivery.FILE, "RING", deliver_as="RING_PATH"), b"value")
    assert list(prepared(place, file).env) == [b"RING_PATH"]


def test_several_arrive_together(place: Place) -> None:
    made = prepared(place, credential(b"one", name="A"), credential(b"two", name="B"))
    assert made.env == {b"A": b"one", b"B": b"two"}


@pytest.mark.parametrize(
    ("value", "name", "more", "words"),
    [
        (b"%s\0", "A", {}, "NUL"),
        (b"%s" + b"x" * 128 * 1024, "A", {}, "at most"),
        (b"%s", "A", {"deliver_as": "NOT A=NAME"}, "no name of a variable"),
        (b"%s", "A-B", {}, "no name of a variable"),
        (b"%s\n", "A", {"delivery": "prompt"}, "cannot be typed"),
        (b"%s\x03", "A", {"delivery": "prompt"}, "cannot be typed"),
        (b"%s" + b"x" * 4096, "A", {"delivery": "prompt"}, "at most 4095"),
        (b"%s", "A", {"delivery": "ssh-agent"}, "no private key"),
        (b"%s" + b"x" * 20_000, "A", {"delivery": "ssh-agent"}, "at most 16 KiB"),
    ],
)
def test_a_value_that_cannot_go_its_way_is_refused_without_showing_it(
    place: Place, value: bytes, name: str, more: dict[str, str], words: str
) -> None:
    """The value is in no message and no traceback; the next step is."""
    secret = token()
    delivery = Delivery(more.pop("delivery", "env"))
    given = Credential(binding_of(delivery, name, **more), value.replace(b"%s", secret))
    more["delivery"] = delivery.value
    with pytest.raises(Refusal) as caught:
        asyncio.run(prepare([given], place))
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.hint
    assert caught.value.code is DenialCode.SOURCE_FAILED
    assert words in str(caught.value)
    assert caught.value.hint
    assert secret.decode() not in shown
    assert base64.b64encode(secret).decode() not in shown
    assert leftovers(place) == []


def test_two_values_for_one_variable_are_refused(place: Place) -> None:
    """Which of them would win is nobody's guess."""
    two = (credential(b"1", name="A", deliver_as="TOKEN"), credential(b"2", name="TOKEN"))
    with pytest.raises(Refusal, match="delivered as TOKEN too"):
        asyncio.run(prepare(two, place))


@pytest.mark.parametrize(
    ("deliveries", "more", "words"),
    [
        (("stdin", "stdin"), {}, "there is one stdin"),
        (("stdin",), {"stdin": StdinKind.CLOSED}, "a stdin of its own"),
        (("stdin",), {"stdin": StdinKind.LIVE}, "a stdin of its own"),
        (("stdin",), {"has_terminal": True}, "has a terminal"),
        (("prompt",), {"stdin": StdinKind.LIVE}, "a stdin of its own"),
        (("prompt",), {"target": Target.CAPSULE}, "inside a capsule"),
        (("file",), {"why_no_files": "the agent sees them"}, "the agent sees them"),
        (("ssh-agent",), {"why_no_files": "the agent sees them"}, "the agent sees them"),
        (("ssh-agent",), {"why_no_sockets": "of an earlier version"}, "of an earlier version"),
    ],
)
def test_what_cannot_go_there_is_refused_before_a_source_is_asked(
    short_tmp: Path, deliveries: tuple[str, ...], more: dict[str, object], words: str
) -> None:
    where = Place(True, Scratch(short_tmp), 60, **more)  # type: ignore[arg-type]  # checked by use
    named = [binding_of(Delivery(one), f"N{place}") for place, one in enumerate(deliveries)]
    with pytest.raises(Refusal, match=words) as caught:
        check_deliverable(named, where)
    assert caught.value.hint


def test_a_prompt_goes_to_a_caller_with_a_terminal_and_to_one_without_stdin(
    short_tmp: Path,
) -> None:
    for more in ({"has_terminal": True, "stdin": StdinKind.LIVE}, {}):
        where = Place(True, Scratch(short_tmp), 60, **more)  # type: ignore[arg-type]  # checked by use
        check_deliverable([binding_of(Delivery.PROMPT)], where)
