"""The way to the broker where no Unix socket can cross: frames over TCP, after a mutual challenge.

Loaded when there is no socket that works and JACKIN_BROKER_ADDR or JACKIN_EXEC_URL is set. Each
side proves the token with an HMAC over both nonces, so the token never leaves and a listener that
is not the broker learns nothing. Invariants: one deadline for all of it; every failure is a
`Fault` with what to do; what follows is neither encrypted nor signed.
"""

import posix
from time import monotonic

from .wire import (
    EXIT_NOT_RUN,
    MESSAGE,
    PROTOCOL,
    Fault,
    Frames,
    broken,
    message,
    socket,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256

    from .wire import Message
else:
    try:
        from _sha2 import sha256  # Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # an interpreter with another hash module
            from hashlib import sha256

# handshake.py's words; a test compares them.
NONCE_BYTES = 32
CONTEXT = b"jackin-exec frames 1 "
BROKER = b"broker\0"
CALLER = b"caller\0"
# Connecting and three small messages; over a bad line a second or two.
DEADLINE_S = 10
TOKEN = "JACKIN_EXEC_TOKEN"  # noqa: S105 - the name of a variable
ADDRESS = "JACKIN_BROKER_ADDR"
URL = "JACKIN_EXEC_URL"
_BLOCK_BYTES = 64  # SHA-256's, for the HMAC (RFC 2104)
_PRESENT = "ask the operator for the present variables: `jackin-broker capsule env NAME`"


def variable(name: str) -> str:
    """An environment variable, empty where it is not set."""
    return posix.environ.get(name.encode(), b"").decode("utf-8", "replace").strip()


def is_named() -> bool:
    """Whether anything of the bridge is in the environment."""
    return bool(variable(ADDRESS) or variable(URL))


def connect() -> "socket.socket":
    """A connection on which both sides have proved the token.

    Raises: Fault.
    """
    host, port = address()
    token = variable(TOKEN)
    if not token:
        raise Fault(f"{ADDRESS} is set, but {TOKEN} is not", _PRESENT)
    sock = _open(host, port)
    try:
        _challenge(sock, token)
    except OSError as error:  # a timeout is one, too
        sock.close()
        raise Fault(
            f"{host}:{port} does not answer like a broker: {error.strerror or error}",
            f"check that {ADDRESS} is the present one and leads to the broker: " + _PRESENT,
        ) from error
    except Fault:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def address() -> "tuple[str, int]":
    """Where the broker takes frames.

    Raises: Fault.
    """
    text = variable(ADDRESS)
    if not text:
        raise Fault(
            f"only {URL} is set, and jackin-exec needs {ADDRESS}: HTTP carries no live input, "
            "terminal or signals",
            f"{_PRESENT}; without Python use `jackin-exec-sh`, which speaks to {URL}",
        )
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise Fault(f"{ADDRESS} is {text!r}, which is no HOST:PORT", _PRESENT)
    return host, int(port)


def _open(host: str, port: int) -> "socket.socket":
    """Connected to the first of the name's addresses that answers."""
    try:
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except OSError as error:
        raise Fault(
            f"the name {host} in {ADDRESS} is not known here: {error.strerror}",
            "with Docker Engine on Linux start the container with "
            "`--add-host host.docker.internal:host-gateway`, or have the operator set bridge_host",
        ) from error
    last: OSError = OSError("no address")
    for family, kind, number, _, place in found:
        sock = socket.socket(family, kind, number)
        try:
            sock.settimeout(DEADLINE_S)
            sock.connect(place)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            sock.close()
            last = error
        else:
            return sock
    raise unreachable(host, port, last) from last


def unreachable(host: str, port: int, error: OSError) -> Fault:
    """The fault in a connection that could not be made."""
    import errno

    where = f"{host}:{port} ({ADDRESS})"
    if error.errno == errno.ECONNREFUSED:
        return Fault(
            f"no broker listens at {where}",
            "ask the operator to start it (`jackin-broker`); where it runs, this is a former "
            "session's address: `jackin-broker capsule env NAME` tells the new one",
        )
    return Fault(
        f"{where} cannot be reached: {error.strerror or error}",
        "the broker may listen on another address (`bridge_bind`), or a firewall is in between; "
        "a container of Docker Desktop reaches it as host.docker.internal",
    )


def _challenge(sock: "socket.socket", token: str) -> None:
    """Prove and have proved; then the connection is like one to the socket.

    Raises: Fault, OSError.
    """
    ours, ends_at = posix.urandom(NONCE_BYTES), monotonic() + DEADLINE_S
    sock.sendall(message("Hello", protocol=PROTOCOL, nonce=ours.hex()))
    said = _receive(sock, ends_at)
    if said["type"] != "Challenge":
        from .problems import denied

        raise denied(said)
    try:
        theirs = bytes.fromhex(str(said.get("nonce")))
    except ValueError as error:
        raise broken("a challenge without a nonce") from error
    if len(theirs) != NONCE_BYTES:
        raise broken("a challenge without a nonce")
    if not _is_same(str(said.get("proof")), proof(token, BROKER, ours, theirs)):
        raise Fault(
            f"what listens at {variable(ADDRESS)} does not have our token, so nothing was sent",
            f"{TOKEN} is of another session, or that is not the broker: " + _PRESENT,
            EXIT_NOT_RUN,
        )
    sock.sendall(message("Proof", proof=proof(token, CALLER, ours, theirs)))


def _receive(sock: "socket.socket", ends_at: float) -> "Message":
    """The one message that comes now; nothing comes behind it before we answer."""
    frames = Frames()
    while True:
        sock.settimeout(max(ends_at - monotonic(), 0.001))  # 0 would mean: do not wait at all
        arrived = sock.recv(4096)
        if not arrived:
            raise Fault("the broker closed the connection during the handshake", _PRESENT)
        for kind, piece in frames.feed(memoryview(arrived)):
            if kind == MESSAGE and isinstance(piece, dict):
                return piece
            raise broken("data during the handshake")


def proof(token: str, role: bytes, caller_nonce: bytes, broker_nonce: bytes) -> str:
    """HMAC-SHA256 in hex; by hand, because `hmac` costs more than the whole handshake."""
    key = token.encode()
    if len(key) > _BLOCK_BYTES:
        key = sha256(key).digest()
    key = key.ljust(_BLOCK_BYTES, b"\0")
    said = CONTEXT + role + caller_nonce + broker_nonce
    inner = sha256(bytes([byte ^ 0x36 for byte in key]) + said).digest()
    return str(sha256(bytes([byte ^ 0x5C for byte in key]) + inner).hexdigest())


def _is_same(one: str, other: str) -> bool:
    """Compared in a time that says nothing of where they differ."""
    difference = len(one) ^ len(other)
    for left, right in zip(one, other):  # noqa: B905 - Python 3.9 has no `strict`
        difference |= ord(left) ^ ord(right)
    return not difference
