"""The broker: the daemon on the operator's side, and the operator's command line."""

from __future__ import annotations

__version__ = "0.1.0"
