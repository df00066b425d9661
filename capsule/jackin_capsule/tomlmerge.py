"""Keys of one table of a TOML file set, or the table added at its end; every other byte stays.

There is no TOML writer in the standard library, and no reader before Python 3.11. This knows where
tables and keys begin, and no more: strings, comments and brackets are followed only as far as
needed to tell a header from what looks like one. Invariant: a file in which the table might stand
in another shape (inline, dotted) is refused, never guessed at.
"""

from .wire import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    # A key of the table, of two parts in a table below it, and its value as TOML; None: without it.
    Keys = dict[tuple[str, ...], str | None]

_QUOTES = ('"""', "'''", '"', "'")


def merge_toml(content: str, name: "tuple[str, str]", keys: "Keys", path: str) -> str:
    """The content with these keys in the table of that name; its other keys stay.

    Raises: Fault when the file has it in another shape, or cannot be followed.
    """
    lines = _lines_of(content)
    if not any(found[:2] == list(name) for _, found in headers(lines, path)):
        _refuse_other_shapes(lines, name, path)
        gap = "" if not content else "\n" if content.endswith("\n") else "\n\n"
        return content + gap + table_text(name, keys)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if _body_of(lines, name, path) is None:  # there is only a table below it
        first = next(line for line, found in headers(lines, path) if found[:2] == list(name))
        lines[first:first] = [f"[{'.'.join(name)}]\n"]
    for key, value in keys.items():
        _set(lines, name, key, value, path)
    text = "".join(lines)
    return content if text == content + "\n" else text


def table_text(name: "tuple[str, str]", keys: "Keys") -> str:
    """A table with these keys."""
    pairs = [f"{'.'.join(key)} = {value}\n" for key, value in keys.items() if value is not None]
    return f"[{'.'.join(name)}]\n" + "".join(pairs)


def value_of(content: str, name: "tuple[str, str]", key: str, path: str) -> str:
    """The text of a key's value in the table of that name, empty where it has none.

    Raises: Fault.
    """
    lines = _lines_of(content)
    body = _body_of(lines, name, path)
    for start, end, found in _entries(lines, *body) if body else ():
        if found == [key]:
            return "".join(lines[start:end]).partition("=")[2].strip()
    return ""


def _lines_of(content: str) -> "list[str]":
    """TOML's lines, with their ends; `splitlines` knows more ends than these."""
    lines = content.split("\n")
    return [*(line + "\n" for line in lines[:-1]), *filter(None, lines[-1:])]


def _body_of(lines: "list[str]", name: "tuple[str, ...]", path: str) -> "tuple[int, int] | None":
    """The lines of the table of exactly that name: after its header, before the next one.

    Raises: Fault for an array of tables.
    """
    every = list(headers(lines, path))
    for number, found in every:
        if found == list(name):
            if lines[number].lstrip().startswith("[["):
                raise _other_shape(path, found)
            end = next((line for line, _ in every if line > number), len(lines))
            return number + 1, end
    return None


def _set(
    lines: "list[str]",
    name: "tuple[str, ...]",
    key: "tuple[str, ...]",
    value: "str | None",
    path: str,
) -> None:
    """Give the key this value where the table has it, or behind the table's other keys."""
    if len(key) > 1 and _body_of(lines, (*name, key[0]), path) is not None:
        _set(lines, (*name, key[0]), key[1:], value, path)
        return
    body = _body_of(lines, name, path)
    assert body is not None
    place = body[0]
    text = [] if value is None else [f"{'.'.join(key)} = {value}\n"]
    for start, end, found in _entries(lines, *body):
        if found == list(key):
            if text != lines[start:end]:
                lines[start:end] = text
            return
        if found == list(key[:1]):  # `env = { … }`
            lines[start:end] = [_with_inline("".join(lines[start:end]), key, value, path)]
            return
        if found[: len(key)] == list(key):
            raise _other_shape(path, [*name, *found])
        place = end
    lines[place:place] = text


def _with_inline(line: str, key: "tuple[str, ...]", value: "str | None", path: str) -> str:
    """A line such as `env = { A = "1" }` with another pair, or another value in one.

    Raises: Fault where it is not on one line, or has something behind it.
    """
    if value is None and key[1] not in line:
        return line
    head, _, rest = line.partition("=")
    inside = rest.strip()
    if "\n" in line[:-1] or not (inside.startswith("{") and inside.endswith("}")):
        raise _other_shape(path, list(key[:1]))
    pairs = [pair.strip() for pair in _split(inside[1:-1]) if pair.strip()]
    kept = [pair for pair in pairs if dotted(pair.partition("=")[0] + "]") != list(key[1:])]
    if value is not None:
        kept.append(f"{'.'.join(key[1:])} = {value}")
    return line if sorted(kept) == sorted(pairs) else f"{head.rstrip()} = {{ {', '.join(kept)} }}\n"


def _split(text: str) -> "list[str]":
    """The pieces between the commas that are in no string and no bracket."""
    state = _State()
    pieces: list[str] = []
    begin = at = 0
    while at < len(text):
        if state.is_plain and text[at] == ",":
            pieces.append(text[begin:at])
            begin = at + 1
        at = state.step(text, at)
    return [*pieces, text[begin:]]


def _entries(lines: "list[str]", start: int, end: int) -> "Iterator[tuple[int, int, list[str]]]":
    """Each key between two lines: where it begins and ends, and its dotted name."""
    state = _State()
    begin = start
    for number in range(start, end):
        if state.is_plain:
            begin = number
        state.follow(lines[number])
        if state.is_plain and lines[begin].lstrip()[:1] not in ("", "#"):
            yield begin, number + 1, dotted(lines[begin].partition("=")[0] + "]")


def _other_shape(path: str, found: "list[str]") -> Fault:
    return Fault(
        f"{path} has {'.'.join(found)} in a shape that is not edited here",
        "add the table by hand: jackin-capsule mcp-config --client codex prints it",
    )


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
                raise _other_shape(path, full)
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
            if line[at] == "#" and not self._quote:
                return
            at = self.step(line, at)
        if len(self._quote) == 1:  # ends with its line, or the file is wrong
            self._quote = ""

    def step(self, line: str, at: int) -> int:
        """Go past what is at this place; where that ends."""
        return self._in_string(line, at) if self._quote else self._outside(line, at)

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
