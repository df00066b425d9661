"""`jackin-capsule ask`: would this be allowed, asked or denied, by rules alone?

It refuses to know grants and operators; the broker says nothing of them here. `inquire` is also
how the doctor finds out whether anybody answers.
"""

import json

from .problems import denied, escaped, hung_up
from .shim import raw, working_directory
from .wire import EXIT_NOT_RUN, PROTOCOL, Fault, Frames, broken, connect, message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Message

EXIT_ALLOWED = 0
EXIT_ASKED = 3  # neither a shell's, nor a signal's, nor one of DESIGN §5's
# Rules are in memory; a broker that needs longer for them hangs.
ANSWER_S = 10
_STATUS = {"allow": EXIT_ALLOWED, "ask": EXIT_ASKED, "deny": EXIT_NOT_RUN}
_WORDS = {
    "allow": "allowed: it would run without a question",
    "ask": "asked: the operator would be asked",
    "deny": "denied: it would not run",
}


def ask(words: "list[str]") -> int:
    """Print the answer for `[--json] [--want NAME,…] [--] COMMAND [ARG…]`; the exit status.

    Raises: Fault.
    """
    from .main import say

    wants_json = False
    want: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word == "--json":
            wants_json = True
        elif word == "--want" and rest:
            want += [name for name in rest.pop(0).split(",") if name]
        elif word.startswith("--want="):
            want += [name for name in word[len("--want=") :].split(",") if name]
        else:
            raise Fault(f"unknown option {word}", "see `jackin-capsule ask --help`")
    said = inquire(rest, want)
    outcome, code, reason = (str(said.get(key, "")) for key in ("outcome", "code", "reason"))
    if outcome not in _STATUS:
        raise broken(f"the outcome {outcome}")
    if wants_json:
        answer = {"outcome": outcome, "code": code, "reason": reason}
        return say(json.dumps(answer) + "\n") or _STATUS[outcome]
    detail = f" ({code})" if code else ""
    return say(f"{_WORDS[outcome]}{detail}; {escaped(reason)}\n") or _STATUS[outcome]


def inquire(argv: "list[str]", want: "list[str]") -> "Message":
    """The broker's AskResult for a command.

    Raises: Fault when it refuses, hangs up or keeps silent.
    """
    command, *args = raw(argv)
    question = message(
        "Ask",
        protocol=PROTOCOL,
        command=command,
        args=args,
        cwd=working_directory(),
        want=want,
    )
    sock = connect()
    sock.settimeout(ANSWER_S)
    frames = Frames()
    try:
        sock.sendall(question)
        while True:
            arrived = sock.recv(65536)
            if not arrived:
                raise hung_up(is_started=False)
            for _, said in frames.feed(memoryview(arrived)):
                if isinstance(said, dict):
                    if said["type"] == "AskResult":
                        return said
                    raise denied(said)
    except TimeoutError as error:
        raise _silent() from error
    except OSError as error:
        if "timed out" in str(error):  # before Python 3.10 socket.timeout is not a TimeoutError
            raise _silent() from error
        raise hung_up(is_started=False) from error


def _silent() -> Fault:
    return Fault(
        f"the broker took the question and did not answer in {ANSWER_S} s",
        "it is stuck: ask the operator to run `jackin-broker status`",
    )
