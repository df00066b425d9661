"""Source `env`: a variable of the broker's own environment, as it was when the broker started.

The resolver takes the name out of every child's environment (`consumed_variables`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..bindings import EnvSource
from ..errors import SourceFault
from .base import Lookup, SourceReader


class EnvReader(SourceReader[EnvSource]):
    """Reads from the mapping that it was given, never from `os.environ`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __repr__(self) -> str:
        return "<env source>"

    async def read(self, source: EnvSource, lookup: Lookup) -> bytes:
        """The variable's value.

        Raises: SourceError.
        """
        value = self._environ.get(source.variable)
        if value is None:
            raise lookup.fault(
                SourceFault.MISSING,
                f"${source.variable} is not set in the broker's environment",
                hint=f"set {source.variable} and start the broker again",
            )
        return os.fsencode(value)
