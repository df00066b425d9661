"""The server process: its link to the broker, its standard streams, its end.

The broker starts it (`mcp_hosting/confined.py`) with an agent's connection as stdin and stdout. It
refuses to know tools. Invariants: what anything prints goes to stderr, never to the agent; when the
agent or the broker goes, this process ends at once, and with it everything that the agent asked
for.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import traceback
from io import TextIOWrapper
from typing import BinaryIO, NoReturn, cast

from mcp.server.stdio import stdio_server

from jackin_broker.client import VERSION, Link
from jackin_broker.errors import BrokerUnreachable

from .ids import Answers, Requests
from .server import McpServer


def main(link_fd: int) -> NoReturn:
    """Serve until the agent's end."""
    # What somebody prints leaves at once, while its descriptor leads to stderr.
    cast("TextIOWrapper[BinaryIO]", sys.stdout).reconfigure(line_buffering=True)
    status = 1
    try:
        asyncio.run(serve(socket.socket(fileno=link_fd)))
        status = 0
    except BrokerUnreachable:
        status = 0  # it went before it said what there is
    except BaseException:  # whatever it was, it goes to the broker's log and this process ends
        traceback.print_exc()
    finally:
        # Not by way of the interpreter's own end: that would flush what somebody printed to where
        # the SDK has put the agent's stream again, and wait for the thread that still reads.
        os._exit(status)


async def serve(channel: socket.socket) -> None:
    """Serve the standard streams with requests over `channel`."""
    link = Link(channel)
    link.lost = _leave
    server = McpServer(link, await link.facts(), VERSION)
    async with stdio_server() as (incoming, outgoing):
        answers = Answers(outgoing)
        await server.sdk.run(Requests(incoming, answers), answers, server.options())


def _leave() -> None:
    os._exit(0)
