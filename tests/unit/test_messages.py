"""No message that an agent can receive has a field for a credential's value (DESIGN §4).

Every field of every message to a capsule, and of what the broker tells an operator's client, is
listed here: a new one is looked at by a person before it is added.
"""

from __future__ import annotations

import inspect
from typing import Any, Final, get_args

import msgspec

from jackin_broker import operator_protocol, protocol

TO_CAPSULE: Final[dict[str, set[str]]] = {
    "ExecPending": {"request_id", "position", "expires_in_s"},
    "ExecStarted": {"request_id", "target", "bindings", "stdin_window"},
    "ExecStopped": {"signal"},
    "StdinCredit": {"size_bytes"},
    "ExecResult": {
        *("exit_code", "redacted_count", "duration_s", "ended_by", "signal", "request_id"),
        *("stdout", "stderr", "stdout_bytes", "stderr_bytes", "truncated"),  # redacted
    },
    "ExecDenied": {"code", "reason", "hint", "exit_code"},
    "AskResult": {"outcome", "code", "reason"},
    "Error": {"code", "reason"},
    # To the capsule's init alone; a command's values go there in a descriptor, in no message.
    "Spawn": {"request_id"},
    "Look": {"request_id"},
    "Kill": {"request_id", "number"},
}
# Words that a field for a value would have in its name.
VALUE_WORDS: Final = {"value", "secret", "credential", "password", "passphrase", "token", "needle"}


def fields_of(message: type[msgspec.Struct]) -> set[str]:
    return set(message.__struct_fields__)


def test_a_message_to_the_capsule_has_exactly_the_fields_that_were_looked_at() -> None:
    messages: tuple[type[msgspec.Struct], ...] = get_args(protocol.ToCapsule)
    found = {one.__name__: fields_of(one) for one in messages}
    assert found == TO_CAPSULE


def test_nothing_that_the_broker_tells_an_operator_has_a_field_for_a_value() -> None:
    told: list[Any] = [
        *get_args(operator_protocol.Reply),
        *get_args(operator_protocol.Push),
        *(
            one
            for name, one in inspect.getmembers(operator_protocol, inspect.isclass)
            if name.endswith("View") or name.endswith("Status")
        ),
    ]
    assert len(told) > 10
    named = {f"{one.__name__}.{field}" for one in told for field in fields_of(one)}
    assert {name for name in named if VALUE_WORDS & set(name.split(".")[1].split("_"))} == set()
