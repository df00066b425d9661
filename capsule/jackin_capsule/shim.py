"""The shim: what an agent calls to have one command run by the broker.

It refuses to know credentials, policy and where the command runs. stdlib only, under
`python3 -I -S`, Python 3.9 and later. Its start-up is a measured number (DESIGN §15): C modules
in place of `os`, `json` and `socket`, no `enum` or `re`, and what a command that works does not
need is in siblings, loaded late. Invariant: every way to fail ends in `main`, with one error
line, one hint line and a status of DESIGN §5.
"""

import posix
import sys
import time

from . import VERSION
from .call import NOTICE_AFTER_S, Call
from .wire import EXIT_NOT_RUN, PROTOCOL, Fault, connect, data, message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .options import Options
    from .terminal import Terminal

# protocol.py's CALLER_ENV_NAMES: none of them loads code.
CALLER_ENV_NAMES = (b"TERM", b"LANG", b"NO_COLOR")


def main(argv: "list[str]") -> "NoReturn":
    """Run what `argv` asks for; by another name than ours, that name is the command."""
    name = argv[0].rsplit("/", 1)[-1]
    if name == "jackin-capsule":
        from .main import main as capsule

        capsule(argv)
    execute(argv[1:] if name == "jackin-exec" else ["--", name, *argv[1:]])


def execute(args: "list[str]") -> "NoReturn":
    """Ask for the command in `[OPTION…] [--] COMMAND [ARG…]`, and be it until it ends."""
    call = Call()
    try:
        options = None
        if args and args[0] == "--":
            args = args[1:]
        elif not args or args[0].startswith("-"):
            from .options import parse

            options = parse(args)
            args = options.argv
        call.is_verbose = options is not None and options.is_verbose
        ask(call, args, options)
    except Fault as fault:
        from .problems import report

        call.give_terminal_back()
        report(fault.line, fault.hint)
        call.leave(fault.status, cancels=True)
    except Exception as error:  # the one handler: a fault of ours is still a status and two lines
        from .problems import EXIT_ENDED, report

        call.give_terminal_back()
        report(
            f"a fault in the shim itself: {type(error).__name__}: {error}",
            "report it with the command that you ran; `jackin-capsule doctor` may say more",
        )
        call.leave(EXIT_ENDED if call.is_started else EXIT_NOT_RUN, cancels=True)


def ask(call: Call, argv: "list[str]", options: "Options | None") -> "NoReturn":
    """Send the request and stay until its result."""
    mode = hold_standard_streams()  # before anything else can take their numbers
    call.catch_signals()
    kind, stdin = "none", None
    wants_terminal = None if options is None else options.wants_terminal
    if wants_terminal or (wants_terminal is None and posix.isatty(0) and posix.isatty(1)):
        from .terminal import Terminal

        call.terminal = Terminal()
    call.sock = connect()
    if mode:
        from .stdin import Stdin

        stdin = Stdin(mode)
        kind = stdin.kind
    call.out += request(argv, kind, options, call.terminal)
    if stdin is not None and kind == "closed":
        call.out += data(0, stdin.held) + message("StdinEof")
    else:
        call.stdin = stdin
    if call.is_verbose or posix.isatty(2):
        call.notice_at = time.monotonic() + NOTICE_AFTER_S
    call.run(call.sock)


def hold_standard_streams() -> int:
    """stdin's mode, 0 where there is nothing to read.

    A closed descriptor becomes /dev/null, so that no socket of ours takes its number.
    """
    null = posix.stat("/dev/null").st_rdev
    mode = 0
    for fd in (0, 1, 2):
        try:
            found = posix.fstat(fd)
        except OSError:
            posix.open("/dev/null", posix.O_RDWR)  # the lowest free number: this one
            continue
        if fd == 0 and found.st_rdev != null:
            mode = found.st_mode
    return mode


def request(
    argv: "list[str]",
    stdin_kind: str,
    options: "Options | None",
    terminal: "Terminal | None" = None,
) -> bytes:
    """The ExecCommand for `argv`, as a frame."""
    command, *args = raw(argv)
    env: dict[str, str] = {}
    for name in CALLER_ENV_NAMES:
        value = posix.environ.get(name)
        if value is not None:
            env[name.decode()] = value.decode("utf-8", "replace")
    return message(
        "ExecCommand",
        protocol=PROTOCOL,
        command=command,
        args=args,
        cwd=working_directory(),
        stdin=stdin_kind,
        tty=None if terminal is None else {"rows": terminal.rows, "cols": terminal.cols},
        env=env,
        stream=True,
        reason="" if options is None else options.reason,
        want=[] if options is None else options.want,
        timeout_s=0,
        shim=f"jackin-exec {VERSION}",
        stdin_credit=True,
    )


def raw(argv: "list[str]") -> "list[bytes]":
    """The bytes that the caller passed."""
    if not argv or not argv[0]:
        raise Fault("no command to run", "put it after the options: jackin-exec -- COMMAND [ARG…]")
    encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
    return [arg.encode(encoding, errors) for arg in argv]


def working_directory() -> bytes:
    """The physical path; the broker decides what it is outside."""
    try:
        return posix.getcwdb()
    except OSError as error:
        raise Fault(
            f"the working directory cannot be read: {error.strerror}",
            "it was deleted or moved: change to a directory that exists and run it again",
        ) from error
