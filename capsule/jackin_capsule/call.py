"""One call, from the request sent to the exit status: the loop between broker and caller.

It refuses to know options and what is asked for. Invariants: handlers stand before anything is
sent; a signal before the command started withdraws it, one after is passed on exactly once, also
while a write blocks; stdin leaves only after the start and within the broker's credit; no
descriptor's flags are changed but the connection's own; whatever leaves or speaks gives the
caller's terminal back first.
"""

import posix
import select
import time

from .wire import Frames, broken, data, end_process, message

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from .stdin import Stdin
    from .terminal import Terminal
    from .wire import Message
else:
    try:
        import _signal as signal
    except ImportError:  # an interpreter with another signal module
        import signal

EXIT_SIGNAL_BASE = 128
RECEIVE_BYTES = 256 * 1024 + 4  # a whole data frame
BUSY_BYTES = 128 * 1024  # so much at once comes of a flood only
NOTICE_AFTER_S = 2  # a rule answers sooner, a person does not
SILENCE_S = 3  # how long two interrupts may stay without any answer
BACKGROUND_LOOK_S = 0.5  # how soon a terminal's stdin is noticed after `fg`
ENDING_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
JOB_SIGNALS = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)  # these end nothing
INTERRUPT_KEY = b"\x03"


class Call:
    """One command: its connection, what waits to be sent, and how far it is."""

    def __init__(self) -> None:
        self.is_verbose = False
        self.sock: socket.socket | None = None
        self.stdin: Stdin | None = None  # while there may be more of it
        self.terminal: Terminal | None = None  # the caller's, if the command gets one
        self.out = bytearray()
        self.missed: list[int] = []  # signals that came during a flush
        self.is_flushing = self.is_started = self.is_stopping = self.is_busy = False
        self.credit = 0  # bytes of stdin that the broker will take
        self.interrupts = 0  # passed on since the broker last said anything
        self.silent_until = self.notice_at = 0.0
        self.pending: Message = {}
        self.wakeup = -1

    def catch_signals(self) -> None:
        """From here on signals are ours; one that the caller ignores (nohup) stays ignored."""
        self.wakeup, writer = posix.pipe()
        posix.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*ENDING_SIGNALS, *JOB_SIGNALS):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.on_signal)

    def on_signal(self, number: int, _frame: object) -> None:
        """Runs between any two steps, and inside a blocked write."""
        if self.is_flushing:
            self.missed.append(number)
        elif number in JOB_SIGNALS:
            self.on_job_signal(number)
        elif not self.is_started:
            self.leave(EXIT_SIGNAL_BASE + number, cancels=True)
        else:
            self.count_interrupts(number in (signal.SIGINT, signal.SIGTERM))
            self.pass_on(number)

    def on_job_signal(self, number: int) -> None:
        """A terminal's command is told to stop, and we stop when it has."""
        if number == signal.SIGTSTP and not (self.terminal and self.is_started):
            self.stop(posix.getpid(), number)
            return
        if not self.is_started or (self.is_stopping and number == signal.SIGCONT):
            return  # `stop` says it once it catches the next stop again
        if self.terminal is not None and number != signal.SIGTSTP:
            self.terminal.enter_again()
            if self.report_size() and number == signal.SIGWINCH:
                return  # the command's terminal says it
        self.pass_on(number)

    def report_size(self) -> bool:
        """Whether the caller's terminal had another size than the broker knows."""
        if self.terminal is None or not self.terminal.has_new_size():
            return False
        self.out += message("Resize", rows=self.terminal.rows, cols=self.terminal.cols)
        self.flush()
        return True

    def pass_on(self, number: int) -> None:
        self.out += message("Signal", number=number)
        self.flush()

    def stop(self, whom: int, number: int) -> None:
        """Ctrl-Z: the command stops, then we do; when we go on, so does it."""
        if self.is_started and self.terminal is None:
            self.pass_on(signal.SIGTSTP)
        handler = signal.getsignal(signal.SIGTSTP)
        if handler != signal.SIG_IGN:
            self.is_stopping = True
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            posix.kill(whom, number)  # returns when somebody continues us, or nobody has to
            signal.signal(signal.SIGTSTP, handler)  # runs SIGCONT's handler first
            self.is_stopping = False
        self.on_job_signal(signal.SIGCONT)

    def count_interrupts(self, count: int) -> None:
        before, self.interrupts = self.interrupts, self.interrupts + count
        if before < 2 <= self.interrupts:
            self.silent_until = time.monotonic() + SILENCE_S
        self.let_out_if_silent(3)

    def let_out_if_silent(self, interrupts: int) -> None:
        """A broker that hangs does not keep the caller who asks again to go."""
        if self.interrupts >= interrupts and time.monotonic() >= self.silent_until:
            from .problems import report, unanswered

            self.give_terminal_back()
            report(*unanswered())
            self.leave(EXIT_SIGNAL_BASE + signal.SIGINT, cancels=True)

    def give_terminal_back(self) -> None:
        """As the caller had it; the end, a stop, and every line of our own come after this."""
        if self.terminal is not None:
            self.terminal.leave()

    def leave(self, status: int, cancels: bool = False) -> "NoReturn":
        """The end of this process. Where no Cancel gets through, closing says the same."""
        self.give_terminal_back()
        if cancels:
            self.out += message("Cancel")
            self.flush()
        end_process(status & 0xFF)

    def flush(self) -> None:
        """Send what the broker takes now; signals that come meanwhile have their turn after."""
        if self.sock is None:
            return
        self.is_flushing = True
        while self.out:
            try:
                sent = self.sock.send(self.out)
            except BlockingIOError:
                break
            except OSError:  # closed: what it said before that is still to be read
                self.out.clear()
                self.stdin = None
            else:
                del self.out[:sent]
        self.is_flushing = False
        while self.missed:
            self.on_signal(self.missed.pop(0), None)

    def run(self, sock: "socket.socket") -> "NoReturn":
        """Until the result, which ends this process."""
        frames = Frames()
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        while True:
            self.flush()
            if self.terminal is not None and self.is_started:
                self.terminal.enter()  # now, or when `fg` brought us to the front
            poller = select.poll()
            poller.register(self.wakeup, select.POLLIN)
            poller.register(sock, select.POLLIN | (select.POLLOUT if self.out else 0))
            if self.stdin is not None and self.may_send_stdin(self.stdin):
                if self.stdin.held:
                    self.send_stdin(self.stdin)
                    continue
                poller.register(0, select.POLLIN)
            ready = [fd for fd, _ in poller.poll(self.patience_ms())]
            if self.wakeup in ready:
                posix.read(self.wakeup, 512)  # more than there are signals
            if sock.fileno() in ready:
                self.receive(sock, frames, buffer)
            if 0 in ready and self.stdin is not None:
                self.send_stdin(self.stdin)
            self.let_out_if_silent(2)
            if self.notice_at and time.monotonic() >= self.notice_at:
                from .problems import say_waiting

                self.notice_at = 0
                say_waiting(self.pending)

    def patience_ms(self) -> "float | None":
        """How long nothing need be done."""
        due = [self.notice_at] if self.notice_at else []
        if self.interrupts >= 2:
            due.append(self.silent_until)
        wait = min(due) - time.monotonic() if due else None
        if self.stdin is not None and self.stdin.is_terminal and not self.stdin.is_ours:
            wait = BACKGROUND_LOOK_S if wait is None else min(wait, BACKGROUND_LOOK_S)
        return None if wait is None else max(0, wait * 1000 + 1)

    def may_send_stdin(self, stdin: "Stdin") -> bool:
        """Started, with credit, and nothing else in the queue."""
        return self.is_started and self.credit > 0 and not self.out and stdin.is_ours

    def send_stdin(self, stdin: "Stdin") -> None:
        piece = stdin.take(self.credit)
        self.credit -= len(piece)
        if self.terminal is not None:
            self.count_interrupts(piece.count(INTERRUPT_KEY))
        self.out += data(0, piece)
        if stdin.is_ended:
            self.out += message("StdinEof")
            self.stdin = None

    def receive(self, sock: "socket.socket", frames: Frames, buffer: memoryview) -> None:
        try:
            # To a frame's end, so that each of a flood's is one write.
            size = sock.recv_into(buffer, frames.missing)
        except BlockingIOError:
            return
        except OSError:  # reset, because it closed with some of ours unread
            size = 0
        if not size:
            from .problems import hung_up

            raise hung_up(self.is_started)
        self.interrupts = 0
        if size > BUSY_BYTES and not self.is_busy:
            from .flood import widen

            self.is_busy = True
            widen((1, 2))
        for stream, piece in frames.feed(buffer[:size]):
            if isinstance(piece, dict):
                self.obey(piece)
            else:
                self.write(stream, piece)

    def obey(self, said: "Message") -> None:
        kind = said["type"]
        if kind == "ExecResult":
            status = number_of(said, "exit_code")
            self.give_terminal_back()
            is_plain = said.get("ended_by") == "exit" and not said.get("truncated")
            if not self.is_started or self.is_verbose or not is_plain:
                from .problems import say_ending

                say_ending(said, self.is_started, self.is_verbose)
            self.leave(status)
        elif kind == "ExecStarted":
            self.is_started = True
            self.notice_at = 0
            self.credit = number_of(said, "stdin_window")
            if self.is_verbose:
                from .problems import say_started

                say_started(said)
            if self.terminal is not None:
                self.report_size()  # it may have changed while we waited
                self.terminal.enter()
        elif kind == "StdinCredit":
            self.credit += number_of(said, "size_bytes")
        elif kind == "ExecPending":
            self.pending = said
        elif kind in ("ExecDenied", "Error"):
            from .problems import denied

            raise denied(said, self.is_started)
        elif kind == "ExecStopped":
            if self.terminal is not None:  # without one its stop follows ours, see `stop`
                self.give_terminal_back()
                # The kernel stops everything in a terminal's foreground at Ctrl-Z; so do we.
                if said.get("signal") == signal.SIGSTOP:
                    self.stop(posix.getpid(), signal.SIGSTOP)
                else:
                    self.stop(0, signal.SIGTSTP)
        else:
            raise broken(f"a message of the type {kind!r}")

    def write(self, stream: int, piece: memoryview) -> None:
        """Pass output on. It may block: signals still get through (PEP 475)."""
        while piece:
            try:
                piece = piece[posix.write(stream, piece) :]
            except BlockingIOError:  # somebody who shares the descriptor made it so
                poller = select.poll()
                poller.register(stream, select.POLLOUT)
                poller.poll()
            except BrokenPipeError:  # what the command itself would have died of
                self.leave(EXIT_SIGNAL_BASE + signal.SIGPIPE, cancels=True)
            except OSError as error:
                from .problems import unwritable

                raise unwritable(stream, error) from error


def number_of(said: "Message", key: str) -> int:
    value = said.get(key)
    if not isinstance(value, int):
        raise broken(f"{said['type']!r} without {key}")
    return value
