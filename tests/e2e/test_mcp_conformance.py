"""The protocol's own conformance suite, over a gateway, for it speaks HTTP alone.

Of its scenarios these are about what this server has. The others call tools, prompts, completions,
logging, subscriptions and elicitations by the names of the suite's own demonstration server, or
test the HTTP transport, which here is the gateway of the tests.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker import broker
from support.mcp_gateway import gateway
from support.mcp_programs import require_npm
from support.real import short_directory

CONFIG = """\
schema = 1
[capsules.web]
kind = "none"
host_binaries = ["true"]
"""
SUITE = "@modelcontextprotocol/conformance"
SCENARIOS = ("server-initialize", "ping", "tools-list", "resources-list")
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broker(CONFIG) as served, short_directory() as folder, gateway(served, folder) as found:
        yield found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_conformance_suite_passes(url: str, scenario: str, tmp_path: Path) -> None:
    suite = require_npm(SUITE) / "node_modules" / ".bin" / "conformance"
    argv = ["node", str(suite), "server", "--url", url, "--scenario", scenario, "--verbose"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout[done.stdout.index("[") : done.stdout.rindex("]") + 1])
    assert checks, "the suite checked something"
    assert {one["status"] for one in checks} <= {"SUCCESS", "INFO"}, checks
