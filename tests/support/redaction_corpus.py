"""The cases of `fixtures/redaction/`, decoded, and how far what is shown may differ from them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackin_broker.bindings import Redact

CORPUS = Path(__file__).parents[2] / "fixtures" / "redaction"


@dataclass(frozen=True)
class Case:
    """One file. A write of None is idle time."""

    name: str
    secrets: list[tuple[str, bytes, Redact]]
    writes: list[bytes | None]
    expect: bytes
    refused: list[str]
    shown: list[bytes] | None

    @property
    def has_idle(self) -> bool:
        return None in self.writes

    @property
    def data(self) -> bytes:
        return b"".join(write for write in self.writes if write is not None)


def load_cases() -> list[Case]:
    """Every case, by name."""
    return [_load(path) for path in sorted(CORPUS.glob("*.json"))]


def _load(path: Path) -> Case:
    raw: dict[str, Any] = json.loads(path.read_text())
    assert raw["source"], path
    assert raw["about"], path
    return Case(
        name=path.stem,
        secrets=[
            (secret["name"], _bytes(secret["value"]), Redact(secret.get("redact", "on")))
            for secret in raw["secrets"]
        ],
        writes=[None if write == {"idle": True} else _bytes(write) for write in raw["writes"]],
        expect=_bytes(raw["expect"]),
        refused=list(raw.get("refused", [])),
        shown=[_bytes(part) for part in raw["shown"]] if "shown" in raw else None,
    )


def _bytes(field: str | dict[str, str]) -> bytes:
    return field.encode() if isinstance(field, str) else b64decode(field["b64"], validate=True)


def heads_before_markers(shown: bytes, expected: bytes, markers: Iterable[bytes]) -> list[bytes]:
    """What `shown` has more than `expected`: in front of each marker, what a silence let go.

    Raises: AssertionError where it differs in anything else.
    """
    known = [marker for marker in markers if marker]
    heads: list[bytes] = []
    while found := [(expected.find(m), m) for m in known if m in expected]:
        _, marker = min(found)
        before, _, expected = expected.partition(marker)
        got, is_there, shown = shown.partition(marker)
        assert is_there, "a marker is missing"
        assert got.startswith(before), "what stands in front of a marker is not what was written"
        heads.append(got[len(before) :])
    assert shown == expected, "what follows the last marker is not what was written"
    return heads
