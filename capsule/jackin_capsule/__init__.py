"""All that runs inside a capsule: stdlib only, `python3 -I -S`, Python 3.9 and later."""

# The capsule's programs are mounted without package metadata; a test holds it to pyproject.
VERSION = "0.1.0"

# What every program here ends with, kept where it costs none of them another file: `init` starts
# without the wire, and a capsule starts with `init`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import _exit as end_process
else:
    from posix import _exit as end_process

__all__ = ["EXIT_NOT_RUN", "VERSION", "Fault", "end_process"]

EXIT_NOT_RUN = 126


class Fault(Exception):
    """Why the caller gets nothing: one line, the next thing to do, and the exit status."""

    def __init__(self, line: str, hint: str, status: int = EXIT_NOT_RUN) -> None:
        super().__init__(line)
        self.line = line
        self.hint = hint
        self.status = status
