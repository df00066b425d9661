"""Every message, limit and exit status of the capsule's wire, each with its reason (DESIGN §5).

It refuses to know sockets, clocks and policy: bytes in, typed frozen structs out.
Invariants: no message that an agent can receive has a field for a credential's value; a
message's first key is `type`; unknown fields are ignored, unknown types are an error.
The operator's messages are in `operator_protocol.py`.
"""

from __future__ import annotations

import signal
from enum import Enum
from typing import Final, TypeVar

import msgspec

from .errors import LocalProtocolError, PeerProtocolError
from .texts import Bytes64 as Bytes64
from .texts import Text as Text
from .texts import bytes_from_text as bytes_from_text
from .texts import text_from_bytes as text_from_bytes

PROTOCOL_VERSION: Final = 1

# A data frame is a few pipe-fulls; larger ones only delay the bytes behind them.
DATA_FRAME_MAX_BYTES: Final = 256 * 1024
# Linux takes 2 MiB of argv + environ by default; as JSON with escapes that fits here.
MESSAGE_FROM_CAPSULE_MAX_BYTES: Final = 4 * 1024 * 1024
# `stream: false` carries two capped streams; 1 MiB of NUL is 6.3 MB as JSON (measured).
MESSAGE_TO_CAPSULE_MAX_BYTES: Final = 16 * 1024 * 1024
# The seed's reply is read by programs that hold it whole.
UNSTREAMED_OUTPUT_MAX_BYTES: Final = 1024 * 1024
# What is gathered before asking, so that the prompt can show a size and a digest.
CLOSED_STDIN_MAX_BYTES: Final = 1024 * 1024
# How long the shim waits for an EOF before it calls stdin live.
CLOSED_STDIN_WAIT_MS: Final = 50
# Unacknowledged stdin that a caller with `stdin_credit` may send: four data frames keep a
# fast pipe busy, and signals never queue behind more than this.
STDIN_WINDOW_BYTES: Final = 4 * DATA_FRAME_MAX_BYTES
# A sentence for the operator, not a document.
REASON_MAX_CHARS: Final = 2000
# More names than any capsule has bindings; bounds the prompt.
WANT_MAX_NAMES: Final = 64
# execve's own limit is 2 MiB for all; a prompt with more items cannot be read.
ARGS_MAX_COUNT: Final = 65_536
# Terminals are not larger; ioctl takes 16 bits.
TERMINAL_MAX_CELLS: Final = 65_535
# A year: anything longer is a mistake in the caller.
TIMEOUT_MAX_S: Final = 31_536_000

EXIT_ENDED: Final = 124  # ended from outside: GNU timeout's, and the seed's
EXIT_NOT_RUN: Final = 126  # POSIX: found but not executable; the seed's "bridge" status
EXIT_NOT_FOUND: Final = 127  # POSIX: no such command
EXIT_SIGNAL_BASE: Final = 128  # the shells' 128 + n

# Only these environment variables cross from the capsule; none of them loads code.
CALLER_ENV_NAMES: Final = frozenset({"TERM", "LANG", "NO_COLOR"})

# Signals a caller may pass on. KILL and STOP cannot be caught; `Cancel` ends everything.
FORWARDED_SIGNALS: Final = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGTSTP,
        signal.SIGCONT,
        signal.SIGWINCH,
    }
)


class StdinKind(str, Enum):
    """What the caller's stdin is: nothing, all that there is, or an open stream."""

    NONE = "none"
    CLOSED = "closed"
    LIVE = "live"


class Target(str, Enum):
    """Where the command runs."""

    HOST = "host"
    CAPSULE = "capsule"


class EndedBy(str, Enum):
    """What ended a command that had started."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIME_LIMIT = "time_limit"
    CALLER_GONE = "caller_gone"
    CANCELLED = "cancelled"
    OPERATOR = "operator"
    BROKER_STOPPING = "broker_stopping"
    GUESSING = "guessing"
    INTERNAL_ERROR = "internal_error"


class Outcome(str, Enum):
    """What policy says of a request."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class TerminalSize(msgspec.Struct, frozen=True):
    """Rows and columns, in character cells."""

    rows: int
    cols: int


# --- from the capsule -------------------------------------------------------------------


class ExecCommand(msgspec.Struct, frozen=True, tag="ExecCommand"):
    """Please run this. `shim` is the caller's version, a label.

    `stdin_credit` asks for `StdinCredit` messages; a caller without it is paced by the
    socket alone. Units: `timeout_s` seconds of running, 0 for the broker's default.
    """

    protocol: int
    command: Text
    args: tuple[Text, ...] = ()
    cwd: Text = ""
    stdin: StdinKind = StdinKind.NONE
    tty: TerminalSize | None = None
    env: dict[str, str] = {}
    stream: bool = True
    reason: str = ""
    want: tuple[str, ...] = ()
    timeout_s: float = 0
    shim: str = ""
    stdin_credit: bool = False


class StdinEof(msgspec.Struct, frozen=True, tag="StdinEof"):
    """The caller's stdin ended."""


class Signal(msgspec.Struct, frozen=True, tag="Signal"):
    """Deliver this signal, one of FORWARDED_SIGNALS."""

    number: int


class Resize(msgspec.Struct, frozen=True, tag="Resize"):
    """The caller's terminal has this size now."""

    rows: int
    cols: int


class Cancel(msgspec.Struct, frozen=True, tag="Cancel"):
    """Close the prompt, or end what runs."""


class Ask(msgspec.Struct, frozen=True, tag="Ask"):
    """Would this be allowed, asked or denied by rules alone? Prompts nobody."""

    protocol: int
    command: Text
    args: tuple[Text, ...] = ()
    cwd: Text = ""
    want: tuple[str, ...] = ()


class Mcp(msgspec.Struct, frozen=True, tag="Mcp"):
    """This connection is now an MCP client's stdio. `cwd` is where its commands run."""

    protocol: int
    cwd: Text = ""


FromCapsule = ExecCommand | StdinEof | Signal | Resize | Cancel | Ask | Mcp


# --- to the capsule ---------------------------------------------------------------------


class ExecPending(msgspec.Struct, frozen=True, tag="ExecPending"):
    """The operator is being asked. `position` counts from 1."""

    request_id: str
    position: int
    expires_in_s: float


class ExecStarted(msgspec.Struct, frozen=True, tag="ExecStarted"):
    """The command runs. `stdin_window` is the caller's first credit, in bytes."""

    request_id: str
    target: Target
    bindings: tuple[str, ...] = ()
    stdin_window: int = STDIN_WINDOW_BYTES


class ExecStopped(msgspec.Struct, frozen=True, tag="ExecStopped"):
    """The command was stopped (not ended) by this signal."""

    signal: int


class StdinCredit(msgspec.Struct, frozen=True, tag="StdinCredit"):
    """So many more bytes of stdin may be sent; only to callers that asked for credit."""

    size_bytes: int


class ExecResult(msgspec.Struct, frozen=True, tag="ExecResult", omit_defaults=True):
    """The command ended. `stdout` and `stderr` are set for `stream: false` alone.

    The sizes are of all its output after redaction; `truncated`: less than that was passed on.
    `exit_code` is what the caller exits with: 128 + n for a signal, 124 for a time limit.
    """

    exit_code: int
    redacted_count: int
    duration_s: float
    ended_by: EndedBy
    signal: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    truncated: bool = False
    request_id: str = ""


class ExecDenied(msgspec.Struct, frozen=True, tag="ExecDenied"):
    """Nothing was run. `code` is a DenialCode, `reason` for people, `hint` the next step.

    `exit_code` is what the caller exits with: 126, or 127 where there is no such command.
    """

    code: str
    reason: str
    hint: str = ""
    exit_code: int = EXIT_NOT_RUN


class AskResult(msgspec.Struct, frozen=True, tag="AskResult"):
    """What rules alone say of an `Ask`."""

    outcome: Outcome
    code: str
    reason: str


class Error(msgspec.Struct, frozen=True, tag="Error"):
    """The connection cannot go on, and why."""

    code: str
    reason: str


class Spawn(msgspec.Struct, frozen=True, tag="Spawn"):
    """Run a command inside; sent to the recorded init alone, with its job as a descriptor."""

    request_id: str


class Look(msgspec.Struct, frozen=True, tag="Look"):
    """Say whether a command is there; sent to the recorded init alone, as `Spawn` is."""

    request_id: str


class Kill(msgspec.Struct, frozen=True, tag="Kill"):
    """Signal what `Spawn` or `Look` started; sent to the recorded init alone."""

    request_id: str
    number: int


ToCapsule = (
    ExecPending
    | ExecStarted
    | ExecStopped
    | StdinCredit
    | ExecResult
    | ExecDenied
    | AskResult
    | Error
    | Spawn
    | Look
    | Kill
)

_from_capsule = msgspec.json.Decoder(FromCapsule)
_to_capsule = msgspec.json.Decoder(ToCapsule)
_encoder = msgspec.json.Encoder()

M = TypeVar("M", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    """The JSON body of a message.

    Raises: LocalProtocolError for text that JSON cannot carry.
    """
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        raise LocalProtocolError(f"cannot encode {type(message).__name__}") from error


def decode_from_capsule(body: bytes) -> FromCapsule:
    """The validated message in a JSON body that a capsule sent.

    Raises: PeerProtocolError in one line that says what was wrong.
    """
    message = _decode(_from_capsule, body)
    _check(message)
    return message


def decode_to_capsule(body: bytes) -> ToCapsule:
    """The message in a JSON body that the broker sent.

    Raises: PeerProtocolError.
    """
    return _decode(_to_capsule, body)


def _decode(decoder: msgspec.json.Decoder[M], body: bytes) -> M:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerProtocolError(f"broken message: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    """The decoder's complaint, without long echoes of the peer's bytes."""
    return " ".join(str(error).split())[:200]


def _check(message: FromCapsule) -> None:
    if isinstance(message, ExecCommand | Ask | Mcp) and message.protocol != PROTOCOL_VERSION:
        raise PeerProtocolError(
            f"protocol {message.protocol} is not spoken here, this broker speaks {PROTOCOL_VERSION}"
        )
    if isinstance(message, ExecCommand):
        _check_exec(message)
    elif isinstance(message, Ask):
        _check_argv(message.command, message.args, message.cwd, message.want)
    elif isinstance(message, Mcp):
        bytes_from_text(message.cwd)
    elif isinstance(message, Signal):
        if message.number not in FORWARDED_SIGNALS:
            raise PeerProtocolError(f"signal {message.number} is not one that can be sent")
    elif isinstance(message, Resize):
        _check_size(message.rows, message.cols)


def _check_exec(message: ExecCommand) -> None:
    _check_argv(message.command, message.args, message.cwd, message.want)
    if message.tty is not None:
        _check_size(message.tty.rows, message.tty.cols)
    unknown = set(message.env) - CALLER_ENV_NAMES
    if unknown:
        raise PeerProtocolError(f"environment variable {sorted(unknown)[0][:64]!r} may not be sent")
    if any("\0" in value for value in message.env.values()):
        raise PeerProtocolError("an environment variable contains a NUL byte")
    if len(message.reason) > REASON_MAX_CHARS:
        raise PeerProtocolError(f"the reason is longer than {REASON_MAX_CHARS} characters")
    if not 0 <= message.timeout_s <= TIMEOUT_MAX_S:
        raise PeerProtocolError("timeout_s is out of range")


def _check_argv(command: Text, args: tuple[Text, ...], cwd: Text, want: tuple[str, ...]) -> None:
    if not bytes_from_text(command):
        raise PeerProtocolError("the command is empty")
    if len(args) > ARGS_MAX_COUNT:
        raise PeerProtocolError(f"more than {ARGS_MAX_COUNT} arguments")
    for arg in args:
        bytes_from_text(arg)
    bytes_from_text(cwd)
    if len(want) > WANT_MAX_NAMES:
        raise PeerProtocolError(f"more than {WANT_MAX_NAMES} wanted bindings")


def _check_size(rows: int, cols: int) -> None:
    if not (0 < rows <= TERMINAL_MAX_CELLS and 0 < cols <= TERMINAL_MAX_CELLS):
        raise PeerProtocolError("the terminal's size is out of range")
