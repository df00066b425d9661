"""A tool's arguments, checked: what an agent sent → what the broker is asked.

It refuses to know the broker's connection. Invariant: what is wrong is said in words that let an
agent correct it, never as a fault of the protocol.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final, cast

from jackin_broker.protocol import (
    CLOSED_STDIN_MAX_BYTES,
    PROTOCOL_VERSION,
    REASON_MAX_CHARS,
    TIMEOUT_MAX_S,
    Ask,
    ExecCommand,
    StdinKind,
    Text,
    bytes_from_text,
)

SHIM_LABEL: Final = "jackin_mcp"
# An agent reads what comes back: no colours, no cursor movements.
_ENVIRONMENT: Final = {"TERM": "dumb", "NO_COLOR": "1"}


class WrongArguments(Exception):
    """What is wrong with the arguments of a call, for the agent."""


class Arguments:
    """The arguments of one call; each is taken once, and what is left over is wrong."""

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._given = dict(given or {})

    def text(self, name: str, *, required: bool = False) -> str:
        """A string, empty where it is left out."""
        value = self._given.pop(name, None)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or (required and not value):
            raise WrongArguments(f"`{name}` must be a string" + (", not empty" * required))
        if "\0" in value:
            raise WrongArguments(f"`{name}` contains a NUL character")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._given.pop(name, None)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise WrongArguments(f"`{name}` must be a list of strings, one an item")
        items = cast(list[object], value)
        if not all(isinstance(item, str) for item in items):
            raise WrongArguments(f"`{name}` must be a list of strings, one an item")
        texts = tuple(cast(list[str], items))
        if any("\0" in text for text in texts):
            raise WrongArguments(f"`{name}` contains a NUL character")
        return texts

    def stdin(self) -> bytes | None:
        """The input, None for none at all."""
        if self._given.get("stdin") is None:
            self._given.pop("stdin", None)
            return None
        value = self._given.pop("stdin")
        if not isinstance(value, str):
            raise WrongArguments("`stdin` must be a string")
        data = value.encode("utf-8", "surrogatepass")
        if len(data) > CLOSED_STDIN_MAX_BYTES:
            raise WrongArguments(
                f"`stdin` is {len(data)} bytes, over the limit of {CLOSED_STDIN_MAX_BYTES}: "
                "put it into a file of the project"
            )
        return data

    def seconds(self, name: str) -> float:
        """A number of seconds, 0 where it is left out."""
        value = self._given.pop(name, None)
        if value is None:
            return 0.0
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= TIMEOUT_MAX_S:
            raise WrongArguments(f"`{name}` must be a number of seconds")
        return float(value)

    def end(self) -> None:
        """Nothing else may have been sent."""
        if self._given:
            names = ", ".join(f"`{name[:40]}`" for name in sorted(self._given))
            raise WrongArguments(f"unknown: {names}; see the tool's input schema")


def exec_command(given: Mapping[str, Any] | None, cwd: Text) -> tuple[ExecCommand, bytes]:
    """The request for `jackin_exec`, and its stdin. `cwd` is the agent's own.

    Raises: WrongArguments.
    """
    arguments = Arguments(given)
    command = arguments.text("command", required=True)
    args = arguments.texts("args")
    stdin = arguments.stdin()
    reason = arguments.text("reason")
    if len(reason) > REASON_MAX_CHARS:
        raise WrongArguments(f"`reason` is longer than {REASON_MAX_CHARS} characters")
    message = ExecCommand(
        PROTOCOL_VERSION,
        command,
        args,
        cwd=_below(cwd, arguments.text("cwd")),
        stdin=StdinKind.NONE if stdin is None else StdinKind.CLOSED,
        env=_ENVIRONMENT,
        reason=reason,
        want=arguments.texts("want"),
        timeout_s=arguments.seconds("timeout_s"),
        shim=SHIM_LABEL,
    )
    arguments.end()
    return message, stdin or b""


def ask(given: Mapping[str, Any] | None, cwd: Text) -> Ask:
    """The question for `jackin_exec_check`.

    Raises: WrongArguments.
    """
    arguments = Arguments(given)
    message = Ask(
        PROTOCOL_VERSION,
        arguments.text("command", required=True),
        arguments.texts("args"),
        cwd=_below(cwd, arguments.text("cwd")),
        want=arguments.texts("want"),
    )
    arguments.end()
    return message


def request_id(given: Mapping[str, Any] | None) -> str:
    """The id for `jackin_exec_wait`.

    Raises: WrongArguments.
    """
    arguments = Arguments(given)
    found = arguments.text("request_id", required=True)
    arguments.end()
    return found


def _below(own: Text, asked: str) -> Text:
    """The directory that is meant: a relative one starts at the agent's own."""
    if not asked or asked.startswith("/"):
        return asked or own
    try:
        return posixpath.join(bytes_from_text(own).decode(), asked)
    except UnicodeDecodeError as error:
        raise WrongArguments("`cwd` must be absolute here") from error
