"""One table of a TOML file replaced, or added at its end; every other byte stays.

There is no TOML writer in the standard library, and no reader before Python 3.11. This knows where
tables begin, and no more: strings, comments and brackets are followed only as far as needed to
tell a header from what looks like one. Invariant: a file in which the table might stand in another
shape (inline, dotted) is refused, never guessed at.
"""

from .wire import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_QUOTES = ('"""', "'''", '"', "'")


def merge_toml(content: str, name: "tuple[str, str]", table: str, path: str) -> str:
    """The content with `table` as the table of that name.

    Raises: Fault when the file has it in another shape, or cannot be followed.
    """
    lines = content.split("\n")  # TOML's lines; `splitlines` knows more ends than these
    lines = [*(line + "\n" for line in lines[:-1]), *filter(None, lines[-1:])]
    starts = [line for line, found in headers(lines, path) if found[:2] == list(name)]
    if not starts:
        _refuse_other_shapes(lines, name, path)
        gap = "" if not content else "\n" if content.endswith("\n") else "\n\n"
        return content + gap + table
    every = [line for line, _ in headers(lines, path)]
    kept: list[str] = []
    begin = 0
    for start in starts:
        kept += lines[begin:start]
        begin = next((line for line in every if line > start), len(lines))
        if start == starts[0]:
            kept.append(table)
        kept += trailing(lines[start:begin])
    return "".join(kept + lines[begin:])


def trailing(lines: "list[str]") -> "list[str]":
    """The blank lines and comments before the next header: they belong to that."""
    count = 0
    while count < len(lines) - 1 and lines[-1 - count].lstrip()[:1] in ("", "#"):
        count += 1
    return lines[len(lines) - count :]


def headers(lines: "list[str]", path: str) -> "Iterator[tuple[int, list[str]]]":
    """Each table header: the number of its line and its dotted name.

    Raises: Fault for a string or an array that does not end.
    """
    state = _State()
    for number, line in enumerate(lines):
        if state.is_plain and line.lstrip().startswith("["):
            yield number, dotted(line)
            continue
        state.follow(line)
    if not state.is_plain:
        raise Fault(f"{path} is not TOML that can be followed", "add the table by hand")


def dotted(line: str) -> "list[str]":
    """The parts of a header's name: of `[a."b.c"]`, a and b.c."""
    inside = line.strip().lstrip("[")
    parts: list[str] = []
    part = quote = ""
    for char in inside:
        if quote:
            if char == quote:
                quote = ""
            else:
                part += char
        elif char in "\"'":
            quote = char
        elif char in ".]":
            parts.append(part.strip())
            part = ""
            if char == "]":
                break
        else:
            part += char
    return parts


def _refuse_other_shapes(lines: "list[str]", name: "tuple[str, str]", path: str) -> None:
    """Raises: Fault where a key before the first header, or in its own table, may be ours."""
    state, section = _State(), ""
    for line in lines:
        if state.is_plain and line.lstrip().startswith("["):
            section = ".".join(dotted(line))
            continue
        if state.is_plain:
            key = dotted(line.partition("=")[0] + "]")
            full = [*section.split("."), *key] if section else key
            if full[: len(name)] == list(name) or full == [name[0]]:
                raise Fault(
                    f"{path} has {'.'.join(full)} in a shape that is not edited here",
                    "add the table by hand: jackin-capsule mcp-config --client codex prints it",
                )
        state.follow(line)


class _State:
    """Whether a line is inside a string or an array that began before it."""

    def __init__(self) -> None:
        self._quote = ""
        self._depth = 0

    @property
    def is_plain(self) -> bool:
        """Whether a header may begin here."""
        return not self._quote and not self._depth

    def follow(self, line: str) -> None:
        """Go through one line."""
        at = 0
        while at < len(line):
            if self._quote:
                at = self._in_string(line, at)
            elif line[at] == "#":
                return
            else:
                at = self._outside(line, at)
        if len(self._quote) == 1:  # ends with its line, or the file is wrong
            self._quote = ""

    def _outside(self, line: str, at: int) -> int:
        for quote in _QUOTES:
            if line.startswith(quote, at):
                self._quote = quote
                return at + len(quote)
        self._depth += (line[at] in "[{") - (line[at] in "]}")
        return at + 1

    def _in_string(self, line: str, at: int) -> int:
        if line[at] == "\\" and self._quote[0] == '"':
            return at + 2
        if line.startswith(self._quote, at):
            length = len(self._quote)
            self._quote = ""
            return at + length
        return at + 1
