"""Source `file`: the bytes of a regular file of the operator's, less one newline at its end.

It refuses directories, FIFOs and devices, relative paths, and files over the size of a value.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from ..bindings import FileSource
from ..errors import SourceFault
from .base import VALUE_MAX_BYTES, Lookup, SourceReader, in_thread, one_newline_less


class FileReader(SourceReader[FileSource]):
    """Reads files; `~/` is the operator's HOME."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._home = environ.get("HOME", "")

    async def read(self, source: FileSource, lookup: Lookup) -> bytes:
        """The file's bytes, less one newline.

        Raises: SourceError.
        """
        path = source.path
        if path.startswith("~/") and self._home:
            path = os.path.join(self._home, path[2:])
        if not os.path.isabs(path):
            raise lookup.fault(
                SourceFault.FAILED,
                f"{path!r} is not an absolute path",
                hint="write the path from / or from ~/",
            )
        return one_newline_less(await in_thread(lambda: _content(path, lookup)))


def _content(path: str, lookup: Lookup) -> bytes:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            is_regular = stat.S_ISREG(os.fstat(fd).st_mode)
            # One more than a value may have, and its newline: `check_size` refuses it.
            content = _read(fd, VALUE_MAX_BYTES + 2) if is_regular else None
        finally:
            os.close(fd)
    except FileNotFoundError as error:
        raise lookup.fault(
            SourceFault.MISSING, f"{path} does not exist", hint="put the value there"
        ) from error
    except OSError as error:
        raise lookup.fault(
            SourceFault.FAILED,
            f"{path} cannot be read: {error.strerror}",
            hint="look at its owner and mode",
        ) from error
    if content is None:
        raise lookup.fault(
            SourceFault.FAILED,
            f"{path} is not a regular file",
            hint="name a file that holds nothing but the value",
        )
    return content


def _read(fd: int, size: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read(size)
