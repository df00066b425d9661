"""What the redaction bench works on: made-up secrets of ten kinds, and a made-up build log."""

from __future__ import annotations

import json
import random
import string
from base64 import b64encode

from jackin_broker.bindings import Redact
from jackin_broker.redact.forms import Form
from jackin_broker.redact.needles import NeedleSet, build, of_forms

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def secret(rng: random.Random, kind: int) -> str:
    """One of ten kinds: tokens, passwords, URLs, long tokens, key files, JSON, UUIDs."""

    def some(length: int, letters: str = LETTERS) -> str:
        return "".join(rng.choices(letters, k=length))

    match kind % 10:
        case 0:
            return "tok_" + some(36)
        case 1:
            return f"{some(20)}/{some(10)}+{some(8)}"
        case 2:
            return some(64, HEX)
        case 3:
            return some(12, LETTERS + "!@#$%^&*()'\"")
        case 4:
            return f"db://app:{some(18)}@db.example:5432/app"
        case 5:
            return f"{some(100)}.{some(143)}.{some(43)}"
        case 6:
            return "\n".join(some(64) for _ in range(26))
        case 7:
            return json.dumps({"id": some(10), "key": some(32), "n": 3})
        case 8:
            return "-".join(some(size, HEX) for size in (8, 4, 4, 4, 12))
        case _:
            return f"{some(9, LETTERS + '!?')} {some(9)}"


def credentials(count: int) -> list[tuple[str, bytes, Redact]]:
    """So many credentials, the same ones each time."""
    rng = random.Random(1)
    return [(f"S{at}", secret(rng, at).encode(), Redact.ON) for at in range(count)]


def needles_of(count: int) -> NeedleSet:
    """Exactly so many needles, all forms of as many secrets as it takes."""
    all_needles = list(build(credentials(3 + count // 8)).needles())
    texts = [needle.text for needle in all_needles[:count]]
    assert len(texts) == count
    return of_forms(["S"], [(0, Form(text)) for text in texts], {})


def build_log(size: int) -> bytes:
    """Timestamps, compilers, hashes, integrity strings, JSON, colour, stack traces."""
    rng = random.Random(2)
    lines: list[str] = []
    total = 0
    while total < size:
        lines.append(log_line(rng, len(lines)))
        total += len(lines[-1])
    return "".join(lines).encode()[:size]


def log_line(rng: random.Random, at: int) -> str:
    stamp = f"2026-11-30T18:{at // 60 % 60:02}:{at % 60:02}.{at % 1000:03}Z "
    match at % 6:
        case 0:
            return (
                f"{stamp}INFO  [worker-{at % 7}] compiled src/mod/file{at}.c -O2 in {at % 300}ms\n"
            )
        case 1:
            return f"{stamp}sha512-{b64encode(rng.randbytes(64)).decode()} pkg@1.{at % 30}.0\n"
        case 2:
            return f"\x1b[32m  ok\x1b[0m  test_case_{at}  ({at % 50} ms)\n"
        case 3:
            return (
                json.dumps({"level": "info", "time": at, "msg": "done", "path": f"/api/{at}"})
                + "\n"
            )
        case 4:
            return f"commit {rng.randbytes(20).hex()}  merge branch 'topic-{at}'\n"
        case _:
            return f"    at com.example.service.Handler.handle(Handler.java:{at % 900})\n"
