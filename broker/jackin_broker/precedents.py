"""What the operator said before: the last approved request of a shape, denials in a row.

A *shape* is one capsule's command with its first plain argument (`gh pr`, `git push`): the next
request of it is shown with what differs. Denials are counted for the very same command in the
same directory. It refuses to know why a request was made. Invariants: texts are raw, as they came
(`display.py` shows them); what is remembered is bounded; only the operator's own answers count.
Pure: no I/O.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from .operator_views import RequestView
from .texts import bytes_from_text

# More shapes than an agent has habits.
SHAPES_MAX: Final = 256
# Commands that were denied in a row; the oldest is forgotten first.
DENIED_MAX: Final = 1024
# A longer argv is not compared: nobody reads such a difference, and it costs time to make.
COMPARED_MAX_ARGS: Final = 200
COMPARED_MAX_BYTES: Final = 32 * 1024
# What fits the prompt's own part for it; the rest is counted.
DIFFERENCES_MAX: Final = 12
# A difference quotes an argument to this length; all of it stands among the arguments.
QUOTED_MAX_CHARS: Final = 160

T = TypeVar("T")


@dataclass
class Precedents:
    """The operator's answers of this broker's life."""

    _approved: dict[str, RequestView] = field(default_factory=dict[str, RequestView])
    _denied: dict[str, int] = field(default_factory=dict[str, int])

    def differences(self, view: RequestView) -> tuple[str, ...]:
        """How this request differs from the last approved one of its shape, a line each."""
        before = self._approved.get(_shape_of(view))
        if before is None:
            return ()
        found = list(_differences(before, view))
        if len(found) > DIFFERENCES_MAX:
            more = len(found) - DIFFERENCES_MAX + 1
            found[DIFFERENCES_MAX - 1 :] = [f"and {more} more differences"]
        return tuple(found)

    def denied_before(self, view: RequestView) -> int:
        """How often in a row this very command was denied."""
        return 0 if _is_long(view) else self._denied.get(_command_of(view), 0)

    def note_approved(self, view: RequestView) -> None:
        """The operator said yes to this; the same request masked replaces itself."""
        shape = _shape_of(view)
        self._approved.pop(shape, None)
        if not _is_long(view):
            self._denied.pop(_command_of(view), None)
            still = msgspec.structs.replace(
                view,
                stdin=msgspec.structs.replace(view.stdin, preview=b""),
                offers=(),
                differences=(),
                asked_by=(),
            )
            _remember(self._approved, shape, still, SHAPES_MAX)

    def mask(self, shown: RequestView, masked: RequestView) -> None:
        """A value turned up in a remembered request: it is kept without."""
        shape = _shape_of(shown)
        before = self._approved.get(shape)
        if before is not None and before.id == shown.id:
            self._approved[shape] = msgspec.structs.replace(
                before, command=masked.command, args=masked.args
            )

    def note_denied(self, view: RequestView) -> None:
        """The operator said no to this; what is too long to compare is not counted."""
        if _is_long(view):
            return
        command = _command_of(view)
        count = self._denied.pop(command, 0) + 1
        _remember(self._denied, command, count, DENIED_MAX)


def _remember(into: dict[str, T], key: str, what: T, most: int) -> None:
    while len(into) >= most:
        del into[next(iter(into))]
    into[key] = what


def _argv(view: RequestView) -> tuple[bytes, ...]:
    return tuple(bytes_from_text(part) for part in (view.command, *view.args))


def _is_long(view: RequestView) -> bool:
    """Whether it takes too long to compare; told without looking at each argument's bytes."""
    if len(view.args) > COMPARED_MAX_ARGS:
        return True
    size = sum(len(part) if isinstance(part, str) else len(part.b64) for part in view.args)
    return size > COMPARED_MAX_BYTES


def _shape_of(view: RequestView) -> str:
    """One capsule's command with its first argument, unless that is an option."""
    first = bytes_from_text(view.args[0]) if view.args else b"-"
    head = [bytes_from_text(view.command)] + ([] if first.startswith(b"-") else [first])
    return _digest(view.capsule.encode(), *head)


def _command_of(view: RequestView) -> str:
    return _digest(view.capsule.encode(), bytes_from_text(view.cwd), *_argv(view))


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _differences(before: RequestView, now: RequestView) -> Iterator[str]:
    if _is_long(now):
        yield "the arguments are too long to compare one by one"
    else:
        yield from _of_arguments(_argv(before)[1:], _argv(now)[1:])
    for what, was, is_ in (
        ("directory", _shown(bytes_from_text(before.cwd)), _shown(bytes_from_text(now.cwd))),
        (
            "program",
            _shown(bytes_from_text(before.binary_path)),
            _shown(bytes_from_text(now.binary_path)),
        ),
        ("target", before.target.value, now.target.value),
        ("confinement", before.confinement, now.confinement),
        ("stdin", before.stdin.kind.value, now.stdin.kind.value),
        ("terminal", _yes(before.tty is not None), _yes(now.tty is not None)),
        ("wanted", ", ".join(sorted(before.want)) or "none", ", ".join(sorted(now.want)) or "none"),
        ("agent can write the directory", _yes(before.cwd_writable), _yes(now.cwd_writable)),
    ):
        if was != is_:
            yield f"{what}: was {was}, is {is_}"
    if before.stdin.kind is now.stdin.kind and before.stdin.sha256 != now.stdin.sha256:
        yield f"stdin: other bytes, was {before.stdin.size_bytes}, is {now.stdin.size_bytes} bytes"
    yield from _of_files(before, now)
    yield from (f"new notice: {line}" for line in now.notices if line not in before.notices)


def _of_arguments(before: Sequence[bytes], now: Sequence[bytes]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, before, now, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        olds, news = before[start:end], now[new_start:new_end]
        for offset in range(max(len(olds), len(news))):
            was = _shown(olds[offset]) if offset < len(olds) else ""
            is_ = _shown(news[offset]) if offset < len(news) else ""
            if was and is_:
                yield f"argument {new_start + offset + 1}: was {was}, is {is_}"
            elif is_:
                yield f"argument {new_start + offset + 1}: added {is_}"
            else:
                yield f"argument {start + offset + 1} before: left out {was}"


def _of_files(before: RequestView, now: RequestView) -> Iterator[str]:
    known = {file.path: file.sha256 for file in before.files}
    for file in now.files:
        path = _shown(bytes_from_text(file.path))
        if file.path not in known:
            yield f"the agent can change {path}, which was not among the arguments"
        elif known[file.path] != file.sha256:
            yield f"the agent changed {path}"


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _shown(raw: bytes) -> str:
    """An argument in quotes, so that an empty one and its spaces are seen; clipped with a count."""
    text = raw.decode("utf-8", "backslashreplace")
    quoted = text[:QUOTED_MAX_CHARS].replace("'", "\\'")
    if len(text) <= QUOTED_MAX_CHARS:
        return f"'{quoted}'"
    return f"'{quoted}' and {len(text) - QUOTED_MAX_CHARS} more characters"
