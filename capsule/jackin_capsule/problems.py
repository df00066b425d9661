"""What goes wrong, in words: one error line and one hint line, each with what to do next.

Loaded only when something did. It refuses to know connections; what a broker wrote is quoted with
every control character escaped. The first sentence of a denial's hint is for an agent, who would
otherwise send the same command again.
"""

import errno
import os
import posix

from .wire import EXIT_NOT_RUN, Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Message

PROGRAM = "jackin-exec"
EXIT_NOT_FOUND = 127
EXIT_ENDED = 124  # ended from outside: a limit, the operator, the broker, or nobody left to tell

_ASK = "ask the operator"
_NO_SOCKETS = (
    "where sockets cannot cross (Docker Desktop, VMs) they set `bridge = true` and enter with the "
    "variables of `jackin-broker capsule env`"
)
START_BROKER = "ask the operator to start it: `jackin-broker` (or `jackin-broker serve`)"

# A denial is final until somebody changes something: say who, and what.
HINTS = {
    "operator_denied": "the operator said no: do not send this again, ask in your own "
    "conversation what to do instead",
    "expired": "nobody answered in time: do not send it in a loop, tell the operator that it "
    "waits and send it again when they are there",
    "no_operator": "no operator is attached: ask them to run `jackin-broker`, then send it again",
    "rule_denied": "a rule forbids this command: do not try variations of it, ask the operator "
    "to change the rule if it is needed",
    "not_allowed": "this command may not be run from here: ask the operator to list it in the "
    "capsule's `host_binaries`",
    "unknown_binding": "only names in $JACKIN_EXEC_BINDINGS can be wanted: drop the others",
    "source_failed": "the credential could not be read: ask the operator to run "
    "`jackin-broker credential check`",
    "source_locked": "the operator's keyring or vault is locked: ask them to unlock it, then send "
    "it again",
    "unredactable": "a credential is too short or too plain to be taken out of the output: ask "
    "the operator to change its value or its binding",
    "changed_since_approval": "what was approved is no longer what would run: leave files and "
    "programs alone while the operator reads, then send it again",
    "workdir_rejected": "commands run in the capsule's mounted projects only: change to one of "
    "them and send it again",
    "too_many_pending": "too many requests of this capsule wait already: let some be answered "
    "first",
    "caller_gone": "the caller went away before the command started: send it again if it is "
    "still needed",
    "bad_request": "the request itself was wrong: correct what the error names",
    "peer_refused": "the broker does not take this process for one of the capsule's: call it from "
    "inside the capsule, and " + _ASK + " to run `jackin-broker doctor`",
    "audit_failed": "the broker cannot write its record and runs nothing without it: "
    + _ASK
    + " to look at its disk",
    "spawn_failed": "the command could not be started: check that the file is a program for the "
    "operator's machine",
    "guessing": "the output came too close to a credential too often: stop, and " + _ASK,
    "broker_stopping": "the broker is going down: send it again when it is back",
    "internal_error": "a fault in the broker; its words say whether anything had begun: "
    + _ASK
    + " to read its log",
}
_OTHER_HINT = "do not send it again unchanged: " + _ASK

# Commands that had started and were ended by someone else.
ENDINGS = {
    "time_limit": (
        "the command reached its time limit and was ended",
        "split the work, or ask the operator for a higher `run_s`",
    ),
    "operator": (
        "the operator ended the command",
        "do not start it again, ask them what to do instead",
    ),
    "broker_stopping": (
        "the broker stopped and ended the command",
        "send it again when the broker is back; what it did so far is done",
    ),
    "guessing": (
        "the command was ended: its output came too close to a credential too often",
        HINTS["guessing"],
    ),
}


def escaped(text: str) -> str:
    """Text on one line, with nothing in it that a terminal would act on, or that nobody sees."""
    # Plane 14 holds tags and variation selectors alone: printable by category, and invisible.
    return "".join([c if c.isprintable() and c < "\U000e0000" else ascii(c)[1:-1] for c in text])


def say(line: str, program: str = PROGRAM) -> None:
    """One line on standard error, whatever has become of it."""
    try:
        posix.write(2, f"{program}: {escaped(line)}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        return  # nobody listens


def report(line: str, hint: str, program: str = PROGRAM) -> None:
    """The two lines that every failure has."""
    say(f"error: {line}", program)
    say(f"hint: {hint}", program)


def denied(message: "Message", is_started: bool = False) -> Fault:
    """The fault in an ExecDenied or Error; an Error may come later, too."""
    code = str(message.get("code", "internal_error"))
    reason = str(message.get("reason", "")) or "the broker gave no reason"
    hint = str(message.get("hint", "")) or HINTS.get(code, _OTHER_HINT)
    status = EXIT_NOT_FOUND if message.get("exit_code") == EXIT_NOT_FOUND else EXIT_NOT_RUN
    return Fault(f"{reason} ({code})", hint, EXIT_ENDED if is_started else status)


def unreachable(path: bytes, error: OSError) -> Fault:
    """The fault in a connect that failed."""
    name = path.decode("utf-8", "backslashreplace")
    if error.errno == errno.ENOENT and os.path.isdir(os.path.dirname(path)):
        # `launch` made the directory, a broker puts the socket there.
        return Fault(f"no broker's socket at {name}, so none runs", START_BROKER)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Fault(
            f"no broker's socket at {name}",
            "ask the operator to start this capsule with `jackin-broker launch`, or set "
            "JACKIN_BROKER_SOCKET",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Fault(
            f"this user may not connect to {name}",
            "run it as the capsule's own user, or ask the operator to add this one to its `uids`; "
            + _NO_SOCKETS,
        )
    if error.errno == errno.ECONNREFUSED:
        return Fault(
            f"no broker listens at {name}",
            START_BROKER + "; " + _NO_SOCKETS,
        )
    if error.errno == errno.EAGAIN:
        return Fault(
            f"the broker at {name} does not accept connections",
            "it is busy or stuck: wait, then ask the operator to run `jackin-broker status`",
        )
    return Fault(
        f"cannot connect to {name}: {error.strerror}",
        "run `jackin-capsule doctor` to see which part is missing",
    )


def hung_up(is_started: bool) -> Fault:
    """The fault in a connection that ended without a result."""
    if is_started:
        return Fault(
            "the broker went away while the command ran",
            "the command was ended with it and may have done a part of its work: look before "
            "sending it again",
            EXIT_ENDED,
        )
    return Fault(
        "the broker closed the connection before it answered, nothing was run",
        "ask the operator to look at `jackin-broker status`, then send it again",
    )


def unwritable(stream: int, error: OSError) -> Fault:
    """The fault in output that cannot be passed on, other than a closed pipe."""
    name = "standard output" if stream == 1 else "standard error"
    return Fault(
        f"cannot write to {name}: {error.strerror}",
        "make room or redirect it elsewhere; the command was ended",
        1,  # what programs exit with when their output fails
    )


def unanswered() -> "tuple[str, str]":
    """The lines for signals that nobody answers."""
    return (
        "no answer to the signals, left the command to the broker, which ends it",
        "ask the operator to look at `jackin-broker status`",
    )


def say_waiting(pending: "Message") -> None:
    """Once, when the answer takes its time. `pending` is the last ExecPending, or empty."""
    if not pending:
        say("waiting for the broker, it has not answered yet; Ctrl-C withdraws the request")
        return
    position = pending.get("position", 1)
    place = "next to be answered" if position == 1 else f"number {position} in the queue"
    left_s = pending.get("expires_in_s")
    expiry = f", expires in {left_s:.0f} s" if isinstance(left_s, (int, float)) else ""
    say(
        f"waiting for the operator to answer request {pending.get('request_id', '')} "
        f"({place}{expiry}); Ctrl-C withdraws it"
    )


def say_started(started: "Message") -> None:
    """For `-v`: where it runs and with which bindings."""
    found = started.get("bindings")
    lent = ", ".join([str(name) for name in found]) if isinstance(found, list) else ""
    say(f"runs on the target {started.get('target')} with {lent or 'no credentials'}")


def say_ending(result: "Message", is_started: bool, is_verbose: bool) -> None:
    """What there is to say of a result beyond its exit status."""
    ended_by = str(result.get("ended_by", ""))
    if not is_started and result.get("exit_code") == EXIT_NOT_FOUND:
        report(
            "no such command at the target",
            "check the name, or ask the operator which commands the capsule's targets have",
        )
    elif ended_by in ENDINGS:
        report(*ENDINGS[ended_by])
    if result.get("truncated"):
        say(
            "the operator's limit kept a part of the output back: it was "
            f"{result.get('stdout_bytes', 0)} bytes on stdout and "
            f"{result.get('stderr_bytes', 0)} on stderr in all"
        )
    if is_verbose:
        say(
            f"exit status {result.get('exit_code')} after {result.get('duration_s')} s, "
            f"{result.get('redacted_count')} redacted"
        )
