"""What a program's file says of what it needs to start: its interpreter, its shared libraries.

It refuses to know confinement. It reads ELF headers and the first line of scripts, as far as
ld.so(8) and execve(2) go by them; what it cannot read it says nothing of: the kernel and the
loader have the last word. Invariant: nothing is read but the places that the headers name.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# Source: elf(5).
_MAGIC: Final = b"\x7fELF"
_IS_64_BIT, _IS_LITTLE = 2, 1
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _STRSZ, _RPATH, _RUNPATH = 1, 5, 10, 15, 29
_HEADER: Final = struct.Struct("<32xQ14xHH")  # e_phoff, e_phentsize, e_phnum
_SEGMENT: Final = struct.Struct("<I4xQQ8xQ")  # p_type, p_offset, p_vaddr, p_filesz
_ENTRY: Final = struct.Struct("<QQ")
# A program has a dozen segments, and a few hundred entries and names.
_PART_MAX_BYTES: Final = 1 << 20
# Source: execve(2), BINPRM_BUF_SIZE.
_FIRST_LINE_MAX_BYTES: Final = 256


@dataclass(frozen=True)
class Needs:
    """`libraries` are names, `places` the directories that the file itself says to look in."""

    libraries: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


def interpreter_of(path: str) -> str:
    """The program that a script's first line names; empty for what is no script."""
    try:
        with open(path, "rb") as file:
            line = file.read(_FIRST_LINE_MAX_BYTES).partition(b"\n")[0]
    except OSError:
        return ""
    words = line[2:].split(maxsplit=1) if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words and words[0].startswith(b"/") else ""


def needs_of(path: str) -> Needs:
    """What the file says; nothing where it is no 64-bit little-endian ELF file."""
    try:
        with open(path, "rb") as file:
            return _needs(file.fileno(), os.path.dirname(path))
    except (OSError, struct.error):
        return Needs()


def _needs(fd: int, origin: str) -> Needs:
    head = os.pread(fd, _HEADER.size, 0)
    if head[:4] != _MAGIC or head[4] != _IS_64_BIT or head[5] != _IS_LITTLE:
        return Needs()
    where, size, count = _HEADER.unpack(head)
    raw = os.pread(fd, min(size * count, _PART_MAX_BYTES), where)
    segments = [_SEGMENT.unpack_from(raw, at) for at in range(0, len(raw) - size + 1, size)]
    entries = [
        entry
        for kind, offset, _, length in segments
        if kind == _DYNAMIC
        for entry in _entries(os.pread(fd, min(length, _PART_MAX_BYTES), offset))
    ]
    values = dict(entries)
    names = _names(fd, segments, values.get(_STRTAB, 0), values.get(_STRSZ, 0))
    places = _text(names, values.get(_RUNPATH, values.get(_RPATH)))
    return Needs(
        tuple(_text(names, value) for tag, value in entries if tag == _NEEDED),
        tuple(_expanded(place, origin) for place in places.split(":") if place),
    )


def _entries(raw: bytes) -> Iterator[tuple[int, int]]:
    for tag, value in _ENTRY.iter_unpack(raw[: len(raw) // _ENTRY.size * _ENTRY.size]):
        if not tag:
            return
        yield tag, value


def _names(fd: int, segments: list[tuple[int, ...]], address: int, size: int) -> bytes:
    """The table of names, which is given by its address in memory."""
    for kind, offset, start, length in segments:
        if kind == _LOAD and start <= address < start + length:
            return os.pread(fd, min(size, _PART_MAX_BYTES), offset + address - start)
    return b""


def _text(names: bytes, place: int | None) -> str:
    return "" if place is None else os.fsdecode(names[place:].partition(b"\0")[0])


def _expanded(place: str, origin: str) -> str:
    for word in ("$ORIGIN", "${ORIGIN}"):
        place = place.replace(word, origin)
    return os.path.normpath(place)
