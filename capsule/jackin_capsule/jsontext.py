"""JSON the long way: for interpreters without the C scanner, and for texts with escapes.

Not on the shim's fast path: `json` costs as much as the whole of it. It refuses to know messages.
"""

from json import JSONDecoder
from json.encoder import py_encode_basestring_ascii as quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Json

__all__ = ["check_surrogates", "quote", "scan"]


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_decoder = JSONDecoder(parse_constant=_refuse_constant)


def scan(text: str, start: int) -> "tuple[Json, int]":
    """The value that begins at `start`, and where it ends.

    Raises: ValueError.
    """
    found: tuple[Json, int] = _decoder.raw_decode(text, start)
    return found


def check_surrogates(text: str) -> None:
    """Refuse half a character: JSON's grammar allows it, Unicode and the broker do not.

    Raises: ValueError.
    """
    _check(scan(text, 0)[0])


def _check(value: "Json") -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key)
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
