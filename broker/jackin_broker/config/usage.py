"""What a command may use, from `[limits]` or a binary's own table: the three optional limits.

It refuses to know how they are enforced. None where a key is absent; 0 is no limit.
"""

from __future__ import annotations

from typing import Final

from .table import Table

# The leader of a command lives within the same limit, and an interpreter takes 30 MiB.
ADDRESS_SPACE_MIN_BYTES: Final = 64 * 1024 * 1024
# Beyond what the kernel's own numbers hold.
_BYTES_MAX: Final = 2**62
# The kernel's largest pid.
_PROCESSES_MAX: Final = 2**22


def read_output_bytes(table: Table) -> int | None:
    """How much of its output is passed on."""
    return _whole(table, "output_bytes", high=_BYTES_MAX)


def read_address_space(table: Table) -> int | None:
    """How much memory each of its processes may reserve."""
    size = _whole(table, "address_space_bytes", high=_BYTES_MAX)
    if size and size < ADDRESS_SPACE_MIN_BYTES:
        table.add(
            "address_space_bytes", f"expected 0 for none, or at least {ADDRESS_SPACE_MIN_BYTES}"
        )
        return None
    return size


def read_processes(table: Table) -> int | None:
    """How many processes and threads it may have at once."""
    return _whole(table, "processes", high=_PROCESSES_MAX)


def _whole(table: Table, key: str, *, high: int) -> int | None:
    return table.whole(key, 0, low=0, high=high) if table.has(key) else None
