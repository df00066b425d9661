"""docs/host-exec-bridge.md: its table is made from tests/promises.toml, its numbers from the code.

`python tests/layout/test_bridge_document.py` writes the table anew.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = REPOSITORY / "docs" / "host-exec-bridge.md"
PROMISES: Final = REPOSITORY / "tests" / "promises.toml"
SOURCE: Final = "seed: host-exec-bridge"
SOLVED: Final = "limitation solved: "
BEGIN: Final = "<!-- promises -->\n"
END: Final = "<!-- end -->"


def table() -> str:
    """The rows: what works there works here, and what was a limitation is none any more."""
    listed = tomllib.loads(PROMISES.read_text(encoding="utf-8"))["promise"]
    rows = [(one["text"], one["test"]) for one in listed if one["source"] == SOURCE]
    promised = [row for row in rows if not row[0].startswith(SOLVED)]
    solved = [(text.removeprefix(SOLVED), test) for text, test in rows if text.startswith(SOLVED)]
    return "\n".join((*_table("it promises", promised), "", *_table("it lacked", solved), ""))


def _table(title: str, rows: list[tuple[str, str]]) -> list[str]:
    lines = [f"| {title} | test |", "|---|---|"]
    return lines + [f"| {text.replace('|', '/')} | `{test}` |" for text, test in rows]


def test_the_table_is_the_one_of_the_promises() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.split(BEGIN)[1].split(END)[0] == table(), f"run: python {Path(__file__).name}"


def test_the_numbers_are_the_ones_in_force() -> None:
    from jackin_broker import protocol
    from jackin_broker.bridge import http_doorway as bridge
    from jackin_broker.bridge import http_exec, http_plain, tcp

    text = DOCUMENT.read_text(encoding="utf-8")
    assert tcp.HANDSHAKE_S == http_plain.ATTACH_S == http_plain.STATUS_S == 10
    assert tcp.STALL_S == 15 * 60
    assert f"within {bridge.BODY_S:g} s" in text
    assert f"over {http_exec.BODY_MAX_BYTES >> 20} MiB" in text
    assert f"at most {protocol.CLOSED_STDIN_MAX_BYTES >> 20} MiB" in text
    assert len(re.findall(r"\b10 s\b", text)) == 4


def test_the_handshake_is_the_one_that_is_spoken() -> None:
    from jackin_broker.bridge import handshake
    from jackin_capsule import tcp

    text = DOCUMENT.read_text(encoding="utf-8")
    assert tcp.CONTEXT.decode() in text
    assert {tcp.BROKER, tcp.CALLER} == {b"broker\0", b"caller\0"}
    for message in (handshake.Hello, handshake.Challenge, handshake.Proof):
        assert f'{{"type":"{message.__name__}"' in text


if __name__ == "__main__":
    head, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(head + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
    sys.exit(0)
