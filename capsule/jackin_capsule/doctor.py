"""`jackin-capsule doctor`: why it does not work, part by part, with what to do.

It refuses to mend anything. A part that cannot work without an earlier one that is wrong is not
checked, so that there is one thing to do at a time.
"""

import json
import os
import shutil
import stat
import sys

from .problems import unreachable
from .wire import SOCKET_PATH_MAX_BYTES, Fault, connect, socket_path

PROGRAMS = "/jackin/bin"  # where launch mounts them (DESIGN §14)
OK, WRONG, NOT_CHECKED = "ok", "wrong", "not checked"
_OLDEST = (3, 9)
# Any command will do: the question runs nothing and asks nobody.
_QUESTION = "true"


class Check:
    """One part: its state, what was found, and what to do when it is wrong."""

    def __init__(self, name: str, state: str, found: str, next_step: str = "") -> None:
        self.name = name
        self.state = state
        self.found = found
        self.next_step = next_step


def doctor(words: "list[str]") -> int:
    """Print every check; 1 if any part is wrong.

    Raises: Fault.
    """
    from .main import say

    if any(word != "--json" for word in words):
        raise Fault("doctor takes --json and nothing else", "see `jackin-capsule doctor --help`")
    checks = [_python(), *_way_checks(), *_path_checks(), _directory(), _terminal()]
    is_well = all(check.state == OK for check in checks)
    if words:
        rows = [
            {"name": c.name, "state": c.state, "found": c.found, "next": c.next_step}
            for c in checks
        ]
        text = json.dumps({"ok": is_well, "checks": rows}, indent=2) + "\n"
    else:
        text = "".join([_lines(check) for check in checks])
    return say(text) or (0 if is_well else 1)


def _lines(check: Check) -> str:
    line = f"{check.state:<12} {check.name:<10} {check.found}\n"
    return line + (f"{'':<12} {'next:':<10} {check.next_step}\n" if check.next_step else "")


def _python() -> Check:
    version = ".".join([str(part) for part in sys.version_info[:3]])
    found = f"{version} at {sys.executable}"
    if sys.version_info[:2] >= _OLDEST:
        return Check("python", OK, found)
    return Check("python", WRONG, found, "install Python 3.9 or later in the capsule's image")


def _way_checks() -> "list[Check]":
    """The way to the broker: its socket where one works, else the bridge."""
    from .tcp import is_named

    if os.environ.get("JACKIN_BROKER_SOCKET") or not is_named():
        return _socket_checks()
    if not os.path.exists(socket_path()):
        return _bridge_checks()
    checks = _socket_checks()
    return checks if checks[0].state == checks[1].state == OK else _bridge_checks()


def _bridge_checks() -> "list[Check]":
    """Frames over TCP: an address that answers, the token proved on both sides, an answer."""
    from .tcp import address
    from .tcp import connect as connect_over_tcp

    try:
        host, port = address()
        connect_over_tcp().close()
    except Fault as fault:
        wrong = Check("bridge", WRONG, fault.line, fault.hint)
        return [wrong, Check("answer", NOT_CHECKED, "")]
    return [Check("bridge", OK, f"{host}:{port} has our token"), _answer()]


def _terminal() -> Check:
    """Why output may lack colours and progress bars."""
    if os.isatty(1) and os.isatty(0):
        return Check("terminal", OK, "what is called from here gets one")
    step = "for colours and progress bars call it from a terminal, or with `jackin-exec -t`"
    return Check("terminal", OK, "none here, so commands get none", step)


def _socket_checks() -> "list[Check]":
    """The way to the broker: the socket, connecting, and an answer."""
    path = socket_path()
    name = path.decode("utf-8", "backslashreplace")
    there = _socket_there(path, name)
    if there.state != OK:
        return [there, Check("connect", NOT_CHECKED, ""), Check("answer", NOT_CHECKED, "")]
    try:
        connect().close()
    except Fault as fault:
        wrong = Check("connect", WRONG, fault.line, fault.hint)
        return [there, wrong, Check("answer", NOT_CHECKED, "")]
    return [there, Check("connect", OK, f"somebody listens at {name}"), _answer()]


def _socket_there(path: bytes, name: str) -> Check:
    launch = "ask the operator to start this capsule with `jackin-broker launch`"
    if len(path) > SOCKET_PATH_MAX_BYTES:
        found = f"{name} is {len(path)} bytes long, over {SOCKET_PATH_MAX_BYTES}"
        return Check("socket", WRONG, found, "mount the broker's directory at a shorter path")
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        fault = unreachable(path, error)
        return Check("socket", WRONG, fault.line, fault.hint)
    if not stat.S_ISSOCK(mode):
        return Check("socket", WRONG, f"{name} is not a socket", launch)
    if not os.access(path, os.W_OK):
        found = f"{name} is not writable for uid {os.getuid()}"
        return Check("socket", WRONG, found, "ask the operator to add this uid to the capsule")
    return Check("socket", OK, name)


def _answer() -> Check:
    from .ask import inquire

    try:
        inquire([_QUESTION], [])
    except Fault as fault:
        return Check("answer", WRONG, fault.line, fault.hint)
    return Check("answer", OK, "the broker speaks our protocol and knows this capsule")


def _path_checks() -> "list[Check]":
    """The programs come first on PATH, and listed binaries lead to the shim."""
    entries = os.environ.get("PATH", "").split(":")
    shim = shutil.which("jackin-exec")
    programs = PROGRAMS if os.path.isdir(PROGRAMS) else os.path.dirname(shim or "")
    put = f"put {programs or PROGRAMS} first on PATH"
    if not programs or entries[:1] != [programs]:
        checks = [Check("PATH", WRONG, f"begins with {entries[0] or 'nothing'}", put)]
    else:
        checks = [Check("PATH", OK, f"begins with {programs}")]
    for name in filter(None, os.environ.get("JACKIN_HOST_BINARIES", "").split(",")):
        found = shutil.which(name)
        if found is None:
            again = "ask the operator to launch this capsule again"
            checks.append(Check(name, WRONG, "not on PATH", again))
        elif os.path.dirname(found) != programs:
            checks.append(Check(name, WRONG, f"{found} comes before the operator's", put))
        else:
            checks.append(Check(name, OK, found))
    return checks


def _directory() -> Check:
    try:
        return Check("directory", OK, os.getcwd())
    except OSError as error:
        step = "change to a directory that exists"
        return Check("directory", WRONG, str(error.strerror), step)
