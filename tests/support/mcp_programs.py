"""Programs that an agent runs inside its capsule to call the MCP tool: three clients, one script.

`SDK` is the official client, `RAW` is written from the specification with the standard library,
and the inspector's command line comes from npm. Each prints one JSON line. They refuse to know
what the operator answers.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

from .real import REQUIRE_REAL, missing

RELAY: Final = "/jackin/bin/jackin-capsule"
# Where the capsule sees the packages of the tests' own interpreter.
PACKAGES: Final = "/packages"
# Where the capsule sees what npm installed.
NPM: Final = "/npm"
# Filled by `.ci/run`; `npm install --prefix DIR @modelcontextprotocol/inspector` fills one by hand.
NPM_VARIABLE: Final = "JACKIN_TEST_NPM"
_NPM_PREFIX: Final = os.environ.get(NPM_VARIABLE, "")

SDK: Final = """
import asyncio, json, sys
from mcp import Client, StdioServerParameters

async def main(mode, tool, arguments):
    reports = []
    async def report(done, total, words):
        reports.append(words)
    server = StdioServerParameters(command=sys.argv[4], args=["mcp"])
    async with Client(server, mode=mode) as client:
        tools = [one.name for one in (await client.list_tools()).tools]
        result = await client.call_tool(tool, arguments, progress_callback=report)
        print(json.dumps({"version": client.protocol_version, "tools": tools, "reports": reports,
                          "result": result.structured_content, "error": result.is_error}))

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"""

RAW: Final = """
import json, subprocess, sys
server = subprocess.Popen([sys.argv[4], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def ask(number, method, **params):
    line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(line).encode() + b"\\n")
    server.stdin.flush()
    while True:
        said = json.loads(server.stdout.readline())
        assert said["jsonrpc"] == "2.0"
        if "method" not in said:
            assert said["id"] == number
            return said["result"]

me = {"name": "raw", "version": "1"}
said = ask(1, "initialize", protocolVersion=sys.argv[1], capabilities={}, clientInfo=me)
server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\\n')
tools = [one["name"] for one in ask(2, "tools/list")["tools"]]
result = ask(3, "tools/call", name=sys.argv[2], arguments=json.loads(sys.argv[3]))
server.stdin.close()
assert server.wait(10) == 0
print(json.dumps({"version": said["protocolVersion"], "tools": tools,
                  "result": result["structuredContent"], "error": result["isError"]}))
"""


def require_shared_interpreter() -> str:
    """The interpreter that a capsule sees too, whose packages fit ours.

    A virtual environment's interpreter is a link to one of the system's, usually.
    """
    path = os.path.realpath(sys.executable)
    if not path.startswith("/usr/"):
        missing(f"{path} is not visible in a capsule: make the virtual environment of /usr/bin's")
    return path


def packages() -> str:
    """The folder of the official SDK and what it needs."""
    return os.path.realpath(sysconfig.get_path("purelib"))


def require_npm(package: str) -> Path:
    """The prefix where npm installed `package`, as `.ci/run` has it do."""
    folder = Path(_NPM_PREFIX) if _NPM_PREFIX else None
    if folder is None or not (folder / "node_modules" / package).is_dir():
        missing(f"{package} is absent: npm install --prefix DIR {package}, {NPM_VARIABLE}=DIR")
    if shutil.which("node", path="/usr/bin:/usr/local/bin") is None:
        missing("node is absent: apt-get install nodejs")
    return folder


def has_npm(package: str) -> bool:
    """Whether the package is there; where real parts are required its absence is a failure."""
    return REQUIRE_REAL or bool(_NPM_PREFIX and Path(_NPM_PREFIX, "node_modules", package).is_dir())
