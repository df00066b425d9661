"""`jackin-capsule mcp`: an MCP client's stdio on one side, the broker on the other.

The server runs on the broker's side; this passes lines. It reads of them what it needs to say what
became of a call when the broker goes away, and to open the next connection as the client opened
the first: a client notices an error on the call in flight and nothing else. It refuses to know
tools. Invariants: only whole lines of the server reach the client; every request is answered, by
the server or by us; no descriptor's flags are changed but the connection's own.
"""

import json
import os
import select

from .shim import working_directory
from .wire import PROTOCOL, Fault, Frames, connect, data, message

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

READ_BYTES = 256 * 1024
# What may wait for one side before the other is read no more.
WAITING_MAX_BYTES = 1024 * 1024
# One message of a client: the largest arguments and stdin that the broker takes, twice over.
LINE_MAX_BYTES = 16 * 1024 * 1024
# A pipe or socket that takes anything takes this much without blocking (pipe(7), PIPE_BUF).
WRITE_BYTES = 4096
# JSON-RPC leaves -32000 to -32099 to servers; the SDKs call this one "connection closed".
CONNECTION_CLOSED = -32000
INVALID_REQUEST = -32600
# The id of a handshake that the client has seen answered once already.
REPLAY_ID = "jackin-capsule-handshake"


def relay(words: "list[str]") -> int:
    """Serve the client on stdin and stdout until it goes away; the exit status.

    Raises: Fault.
    """
    if words:
        raise Fault(f"unknown option {words[0]}", "it takes none: jackin-capsule mcp")
    Relay().run()
    return 0


class Relay:
    """The client's two streams and, while there is one, the connection to the broker."""

    def __init__(self) -> None:
        self.sock: socket.socket | None = None
        self.frames = Frames()
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.from_client = bytearray()  # a line that is not whole
        self.is_skipping = False  # the rest of a line that was too long
        self.from_server = bytearray()
        self.waiting: dict[str, Any] = {}  # the ids of requests that are not answered
        self.handshake: dict[str, Any] | None = None
        self.is_initialized = False

    def run(self) -> None:
        """Return when the client went away; closing the connection ends what it asked for."""
        while True:
            poller = select.poll()
            if len(self.to_broker) < WAITING_MAX_BYTES:
                poller.register(0, select.POLLIN)
            poller.register(1, select.POLLOUT if self.to_client else 0)
            if self.sock is not None:
                reads = select.POLLIN if len(self.to_client) < WAITING_MAX_BYTES else 0
                writes = select.POLLOUT if self.to_broker else 0
                poller.register(self.sock, reads | writes)
            ready = dict(poller.poll())
            if not self.serve_client(ready):
                return
            if self.sock is not None and self.sock.fileno() in ready:
                self.serve_broker(self.sock, ready[self.sock.fileno()])

    # --- the client ---------------------------------------------------------------------

    def serve_client(self, ready: "dict[int, int]") -> bool:
        """Whether the client is still there."""
        if 1 in ready:
            if ready[1] & (select.POLLERR | select.POLLNVAL):
                return False
            if self.to_client:
                try:
                    del self.to_client[: os.write(1, self.to_client[:WRITE_BYTES])]
                except BlockingIOError:
                    pass  # somebody who shares the descriptor made it so
                except OSError:
                    return False
        if 0 in ready:
            try:
                piece = os.read(0, READ_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not piece:
                return False
            self.take_input(piece)
        return True

    def take_input(self, piece: bytes) -> None:
        """Bytes of the client; a line without an end is not held for ever."""
        if self.is_skipping:
            _, newline, piece = piece.partition(b"\n")
            self.is_skipping = not newline
        for line in whole_lines(self.from_client, piece):
            if line.strip():
                self.client_said(line)
        if len(self.from_client) > LINE_MAX_BYTES:
            self.from_client.clear()
            self.is_skipping = True
            words = f"a message of more than {LINE_MAX_BYTES} bytes; pass long data in a file"
            error = {"code": INVALID_REQUEST, "message": words}
            self.to_client += line_of({"jsonrpc": "2.0", "id": None, "error": error})

    def client_said(self, line: bytes) -> None:
        """One line of the client: remembered as far as needed, and passed on."""
        said = parse(line)
        method = said.get("method")
        if method is None or "id" not in said:
            if method == "notifications/initialized":
                self.is_initialized = True
            elif method == "notifications/cancelled":
                self.waiting.pop(key(dict_of(said, "params").get("requestId")), None)
            if method is not None and self.sock is None:
                return  # about something that ended with the connection before
        else:
            self.waiting[key(said["id"])] = said["id"]
        if self.sock is None and not self.open(method):
            return
        if method == "initialize":
            self.handshake, self.is_initialized = said, False
        self.to_broker += data(0, line + b"\n")

    # --- the broker ---------------------------------------------------------------------

    def open(self, method: "object") -> bool:
        """Connect, and say what the client said at its beginning; whether that worked."""
        try:
            self.sock = connect()
            opening = message("Mcp", protocol=PROTOCOL, cwd=working_directory())
        except Fault as fault:
            self.close(fault.line, fault.hint)
            return False
        self.frames = Frames()
        self.to_broker[:] = opening
        if self.handshake is not None and method != "initialize":
            self.to_broker += data(0, line_of({**self.handshake, "id": REPLAY_ID}))
            if self.is_initialized:
                done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                self.to_broker += data(0, line_of(done))
        return True

    def serve_broker(self, sock: "socket.socket", events: int) -> None:
        """Send what waits and take what came."""
        try:
            if self.to_broker and events & select.POLLOUT:
                del self.to_broker[: sock.send(self.to_broker)]
            if events & ~select.POLLOUT:
                arrived = sock.recv(READ_BYTES)
                if not arrived:
                    raise ConnectionResetError
                for stream, piece in self.frames.feed(memoryview(arrived)):
                    if isinstance(piece, dict):
                        self.broker_said(piece)
                    elif stream == 1:
                        self.take_output(piece)
        except BlockingIOError:
            pass
        except Fault as fault:
            self.close(fault.line, fault.hint)
        except OSError:
            self.close(
                "the broker went away",
                "what was asked for ended with it; commands that ran may have done a part of their "
                "work: look before sending them again",
            )

    def broker_said(self, said: "dict[str, Any]") -> None:
        """A message of the broker's own: there is no server, or none any more.

        Raises: Fault.
        """
        from .problems import denied

        if said["type"] in ("ExecDenied", "Error"):
            raise denied(said)

    def take_output(self, piece: memoryview) -> None:
        """Bytes of the server; its lines go to the client when they are whole."""
        for line in whole_lines(self.from_server, bytes(piece)):
            said = parse(line)
            if "id" in said and "method" not in said:
                if said["id"] == REPLAY_ID:
                    self.answer_replay(said)
                    continue
                self.waiting.pop(key(said["id"]), None)
            self.to_client += line + b"\n"

    def answer_replay(self, said: "dict[str, Any]") -> None:
        """The handshake went well again, and the tools may be others now.

        Raises: Fault.
        """
        if "error" in said:
            raise Fault("the mcp server refused its client's handshake", "start the client again")
        if self.is_initialized:
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            self.to_client += line_of(changed)

    def close(self, line: str, hint: str) -> None:
        """The connection is over: tell whoever waits, and connect again at the next request."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
        self.to_broker.clear()
        self.from_server.clear()
        waiting, self.waiting = self.waiting, {}
        for number in waiting.values():
            error = {
                "code": CONNECTION_CLOSED,
                "message": f"{line}; {hint}",
                "data": {"reason": line, "hint": hint},
            }
            self.to_client += line_of({"jsonrpc": "2.0", "id": number, "error": error})


def whole_lines(held: bytearray, piece: bytes) -> "list[bytes]":
    """The lines that `piece` completes, without their ends; `held` keeps the next one's start."""
    *lines, rest = piece.split(b"\n")
    if lines:
        lines[0] = bytes(held) + lines[0]
        held.clear()
    held += rest
    return lines


def parse(line: bytes) -> "dict[str, Any]":
    """The object in a line, or an empty one: what it is the server says."""
    try:
        return table(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def dict_of(said: "dict[str, Any]", name: str) -> "dict[str, Any]":
    """The object of that name, or an empty one."""
    return table(said.get(name))


def table(value: "Any") -> "dict[str, Any]":
    """The value where it is an object, else an empty one."""
    return value if is_table(value) else {}


def is_table(value: object) -> bool:
    """Whether it is a JSON object."""
    return isinstance(value, dict)


def key(number: object) -> str:
    """An id as a key: 1 and "1" are two."""
    return json.dumps(number)


def line_of(said: "dict[str, Any]") -> bytes:
    """A message as a line."""
    return json.dumps(said).encode() + b"\n"
