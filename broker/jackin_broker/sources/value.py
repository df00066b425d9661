"""Source `value`: a text that is written into the configuration itself."""

from __future__ import annotations

from ..bindings import ValueSource
from .base import Lookup, SourceReader


class ValueReader(SourceReader[ValueSource]):
    """Gives what the configuration says."""

    async def read(self, source: ValueSource, lookup: Lookup) -> bytes:
        """The text as UTF-8."""
        return source.value.encode()
