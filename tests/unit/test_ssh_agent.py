"""DESIGN §8, delivery `ssh-agent`: what opens a key, how long it stays, what may be asked."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from jackin_broker.bindings import Binding, Credential, Delivery, ValueSource, pair
from jackin_broker.deliveries import Place, Prepared, Scratch, prepare
from jackin_broker.deliveries.agent_filter import MESSAGE_MAX_BYTES
from jackin_broker.deliveries.ssh_agent import VARIABLE
from jackin_broker.errors import Refusal
from jackin_broker.masking import has_needles, needles_of
from support.real import END_GRACE_S, START_LIMIT_S, is_running, require_program
from support.ssh_server import make_key

LIST: Final = b"\x0b"
FAILURE: Final = b"\x05"
ANSWER: Final = 12


def key_of(path: Path, passphrase: str = "", **more: object) -> Credential:
    """A new key, for an agent."""
    require_program("ssh-agent", package="openssh-client")
    binding = Binding(
        "KEY",
        ValueSource(""),
        delivery=Delivery.SSH_AGENT,
        passphrase="OPENS" if passphrase else "",
        **more,  # type: ignore[arg-type]  # of the binding's own fields
    )
    made = Credential(binding, make_key(path, passphrase).encode().rstrip(b"\n"))
    if passphrase:
        made.passphrase = Credential(Binding("OPENS", ValueSource("")), passphrase.encode())
    return made


def place_in(folder: Path, **more: object) -> Place:
    return Place(False, Scratch(folder / "commands"), 60, **more)  # type: ignore[arg-type]  # its own fields


def within(
    place: Place, look: Callable[[Prepared], Awaitable[None]], *keys: Credential
) -> Prepared:
    """Look at what was prepared while the agent runs."""

    async def go() -> Prepared:
        async with asyncio.timeout(START_LIMIT_S):
            made = await prepare(keys, place)
            try:
                await look(made)
            finally:
                await made.clean()
        return made

    return asyncio.run(go())


def agents_below(folder: Path) -> list[int]:
    """The ssh-agents whose socket is there."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if b"-D" in words and any(word.startswith(bytes(folder)) for word in words):
            found.append(int(entry.name))
    return found


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def binding_message(*, is_forwarding: bytes) -> bytes:
    """What ssh says of the session that a connection is for."""
    parts = (b"session-bind@openssh.com", b"host key", b"session", b"signature")
    return b"\x1b" + b"".join(map(string, parts)) + is_forwarding


async def converse(made: Prepared, *messages: bytes) -> list[bytes]:
    """The answers to these messages on one connection; b"" where it closed."""
    reader, writer = await asyncio.open_unix_connection(made.env[VARIABLE].decode())
    answers: list[bytes] = []
    try:
        for message in messages:
            writer.write(string(message))
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answers.append(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError):
                answers.append(b"")
    finally:
        writer.close()
    return answers


def test_a_passphrase_opens_the_key_and_a_wrong_or_missing_one_is_told(short_tmp: Path) -> None:
    passphrase = "pass" + secrets.token_hex(12)
    key = key_of(short_tmp / "key", passphrase)

    async def look(made: Prepared) -> None:
        assert made.notes["ssh_keys"][0].startswith("SHA256:")

    within(place_in(short_tmp), look, key)
    wrong = "wrong" + secrets.token_hex(12)
    key.passphrase = Credential(Binding("OPENS", ValueSource("")), wrong.encode())
    with pytest.raises(Refusal, match="the passphrase of OPENS does not open it") as caught:
        within(place_in(short_tmp), look, key)
    assert wrong not in str(caught.value) + caught.value.hint
    key.passphrase = None
    with pytest.raises(Refusal, match="is protected by a passphrase"):
        within(place_in(short_tmp), look, key)
    assert not (short_tmp / "commands").exists()


def test_a_key_has_no_needles_and_its_passphrase_has(short_tmp: Path) -> None:
    """DESIGN §8: it never enters the command, so a needle would only be an oracle."""
    key = key_of(short_tmp / "key", "pass" + secrets.token_hex(12))
    assert not has_needles(key.binding)
    assert key.passphrase is not None
    assert has_needles(key.passphrase.binding)


def test_two_keys_are_in_one_agent(short_tmp: Path) -> None:
    async def look(made: Prepared) -> None:
        (answer,) = await converse(made, LIST)
        assert (answer[0], int.from_bytes(answer[1:5], "big")) == (ANSWER, 2)
        assert len(set(made.notes["ssh_keys"])) == 2

    within(place_in(short_tmp), look, key_of(short_tmp / "one"), key_of(short_tmp / "two"))


def test_the_agent_ends_with_the_command_and_the_keeper_with_it(short_tmp: Path) -> None:
    pids: list[int] = []

    async def look(made: Prepared) -> None:
        pids.extend(agents_below(short_tmp))
        assert len(pids) == 1

    within(place_in(short_tmp), look, key_of(short_tmp / "key"))
    assert not any(is_running(pid) for pid in pids)


@pytest.mark.parametrize(
    "message",
    [
        b"\x13",  # remove all identities
        b"\x12" + string(b"key"),  # remove one
        b"\x11" + string(b"ssh-ed25519"),  # add one
        b"\x19",  # add one, constrained
        b"\x14" + string(b"reader"),  # a smart card
        b"\x16" + string(b"word"),  # lock
        b"\x1b" + string(b"query"),
        b"\x1b" + string(b"restrict-destination-v00@openssh.com"),
        b"\x1b\xff",
        b"\xff",
    ],
)
def test_nothing_but_listing_and_signing_is_passed_on(short_tmp: Path, message: bytes) -> None:
    async def look(made: Prepared) -> None:
        refused, listed = await converse(made, message, LIST)
        assert refused == FAILURE
        assert int.from_bytes(listed[1:5], "big") == 1

    within(place_in(short_tmp), look, key_of(short_tmp / "key"))


@pytest.mark.parametrize("flag", [b"\x01", b"\x02", b"", b"\x00\x00"])
def test_a_connection_that_is_passed_on_is_refused_everything(short_tmp: Path, flag: bytes) -> None:
    """No forwarding: nobody on another host uses the key; what is unclear counts as that."""

    async def look(made: Prepared) -> None:
        answers = await converse(made, binding_message(is_forwarding=flag), LIST, LIST)
        assert answers == [FAILURE] * 3
        (elsewhere,) = await converse(made, LIST)
        assert elsewhere[0] == ANSWER

    within(place_in(short_tmp), look, key_of(short_tmp / "key"))


def test_a_message_that_is_too_long_ends_the_connection_alone(short_tmp: Path) -> None:
    async def look(made: Prepared) -> None:
        reader, writer = await asyncio.open_unix_connection(made.env[VARIABLE].decode())
        writer.write((MESSAGE_MAX_BYTES + 1).to_bytes(4, "big"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        writer.close()
        (answer,) = await converse(made, LIST)
        assert answer[0] == ANSWER

    within(place_in(short_tmp), look, key_of(short_tmp / "key"))


def test_destinations_need_a_known_host_and_go_to_the_agent(short_tmp: Path) -> None:
    """A key for one host is of no use at another; ssh-add looks the host's key up."""
    make_key(short_tmp / "host")
    known = short_tmp / ".ssh" / "known_hosts"
    known.parent.mkdir(mode=0o700)
    words = (short_tmp / "host.pub").read_text().split()[:2]
    known.write_text(f"known.example {' '.join(words)}\n")
    place = place_in(short_tmp, home=str(short_tmp))

    async def look(made: Prepared) -> None:
        (answer,) = await converse(made, LIST)
        assert int.from_bytes(answer[1:5], "big") == 1

    within(place, look, key_of(short_tmp / "one", destinations=("git@known.example",)))
    with pytest.raises(Refusal, match="in no known_hosts file"):
        within(place, look, key_of(short_tmp / "two", destinations=("git@absent.example",)))


def test_a_key_goes_after_its_lifetime(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackin_broker.deliveries.ssh_agent._LIFETIME_SPARE_S", 0)
    place = Place(False, Scratch(short_tmp / "commands"), 1)

    async def look(made: Prepared) -> None:
        count = 1
        async with asyncio.timeout(END_GRACE_S):
            while count:
                (answer,) = await converse(made, LIST)
                count = int.from_bytes(answer[1:5], "big")

    within(place, look, key_of(short_tmp / "key"))


def test_without_openssh_the_refusal_says_what_to_install(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackin_broker.deliveries.ssh_agent._SEARCH_PATH", os.devnull)
    with pytest.raises(Refusal, match="no ssh-agent on this machine") as caught:
        within(place_in(short_tmp), lambda _: asyncio.sleep(0), key_of(short_tmp / "key"))
    assert "openssh-client" in caught.value.hint


def test_a_passphrase_that_is_not_lent_is_masked_under_its_keys_name(short_tmp: Path) -> None:
    """Who guesses at it guesses at the key: that is the binding which is then suspended."""
    key = key_of(short_tmp / "key", "pass" + secrets.token_hex(12))
    opens = key.passphrase
    assert opens is not None
    pair([key], [opens])
    assert (key.passphrase, opens.masked_as) == (opens, "KEY")
    assert needles_of([key, opens]).names == ("KEY",)
    opens.masked_as = "OPENS"
    pair([key, opens], [])
    assert (key.passphrase, opens.masked_as) == (opens, "OPENS")
