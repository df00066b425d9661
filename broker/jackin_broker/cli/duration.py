"""Lengths of time as an operator types them: `15m`, `2h`, `90d`; a bare number has the unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import click

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_UNITS: Final = {"m": "minutes", "d": "days"}
_TEXT: Final = re.compile(r"([0-9]{1,6})([mhdw]?)")

Callback = Callable[[click.Context, click.Parameter, str | None], int | None]


def whole(unit: str) -> Callback:
    """An option's callback: whole minutes (`m`) or days (`d`), None where it is not given."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        found = _TEXT.fullmatch(value)
        seconds = int(found[1]) * _SECONDS[found[2] or unit] if found is not None else 0
        amount, rest = divmod(seconds, _SECONDS[unit])
        if not amount or rest:
            words = f"expected whole {_UNITS[unit]}, as in 15m, 2h or 90d"
            raise click.BadParameter(words, ctx=ctx, param=param)
        return amount

    return convert
