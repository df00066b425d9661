"""The process that talks to the operating system's keyring: `python -m … KIND`.

Backends block for as long as a person does not answer, and cannot be interrupted: so they run
here, where the broker can end them. Values go to the broker, on the socket that it made, and
nowhere else. It serves one request at a time until that socket closes.
"""

from __future__ import annotations

import sys

import msgspec

from ..errors import SourceError
from .helper_wire import HelperChannel
from .keyring_messages import Broken, Did, Found, Probe, Request, Waiting


def main() -> None:
    """Serve until the broker closes the socket."""
    kind = sys.argv[1]
    channel = HelperChannel()
    requests = msgspec.msgpack.Decoder(Request)
    encode = msgspec.msgpack.encode
    while (body := channel.receive()) is not None:
        request = requests.decode(body)
        try:
            channel.send(encode(_answer(kind, request, channel)))
        except SourceError as error:
            channel.send(encode(Broken(error.fault, str(error), error.hint)))


def _answer(kind: str, request: Request, channel: HelperChannel) -> Found | Did:
    # Here, after the process was hardened: the library loads much, and values come only now.
    from . import backends

    if isinstance(request, Probe):
        return Did(backends.is_secret_service_there())
    backend = backends.build(kind)
    if backends.is_locked(kind):
        channel.send(msgspec.msgpack.encode(Waiting()))
    return backends.answer(backend, request)


if __name__ == "__main__":
    main()
