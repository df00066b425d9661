"""Where a new value comes from, and which values are not taken.

It refuses to know where the value goes. No error repeats any part of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO, Final

from ..bindings import Binding, Delivery
from ..errors import JackinError
from ..masking import has_needles
from ..redact.needles import refusal_of
from ..sources.base import VALUE_MAX_BYTES, one_newline_less
from .hidden_prompt import ask_hidden

VALUE_WITHOUT_TERMINAL: Final = "give --from-stdin or --from-file"


def read_value(name: str, file: Path | None, from_stdin: bool) -> str:
    """The value, less one newline at its end where it was not typed.

    Raises: JackinError.
    """
    if from_stdin:
        raw = _limited(sys.stdin.buffer)
    elif file is not None:
        try:
            with file.open("rb") as opened:
                raw = _limited(opened)
        except OSError as error:
            raise JackinError(f"{file}: cannot be read: {error.strerror}") from error
    else:
        return ask_hidden(f"value of {name}", confirm=True, without_terminal=VALUE_WITHOUT_TERMINAL)
    try:
        return one_newline_less(raw).decode()
    except UnicodeDecodeError:
        pass  # raised below: that exception carries the value
    raise JackinError(
        f"{name}: the value is not UTF-8 text, which keyrings need",
        hint=f'leave it in its file: {name} = {{ file = "…", on_demand = true }}',
    )


def _limited(stream: BinaryIO) -> bytes:
    raw = stream.read(VALUE_MAX_BYTES + 2)
    if len(raw) > VALUE_MAX_BYTES + 1:
        raise JackinError(f"the value is over {VALUE_MAX_BYTES // 1024} KiB")
    return raw


def check_value(binding: Binding, value: str) -> None:
    """Raise JackinError for a value that this binding could never be used with."""
    if not value:
        raise JackinError(f"{binding.name}: the value is empty")
    if "\0" in value and binding.delivery is Delivery.ENV:
        raise JackinError(
            f"{binding.name}: the value holds a NUL, which no environment can",
            hint="give --deliver file",
        )
    refusal = refusal_of(value.encode()) if has_needles(binding) else None
    if refusal is not None:
        raise JackinError(
            f"{binding.name}: cannot be kept out of a command's output: the value {refusal}",
            hint="use a longer value, or accept that it is shown: --redact off",
        )
