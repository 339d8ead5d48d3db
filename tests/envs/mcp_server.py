"""A real MCP server: a shelf that adds numbers up, one of whose tools fails, one hangs, and one ends it."""

import os
import sys
import time

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("shelf")
kept: list[int] = []


@server.tool()
def put(number: int) -> str:
    """Put a number on the shelf."""
    kept.append(number)
    return f"{len(kept)} on the shelf"


@server.tool()
def total() -> int:
    """The sum of what is on the shelf."""
    return sum(kept)


@server.tool()
def fail() -> str:
    """Always wrong."""
    raise ToolError("no such shelf")


@server.tool()
def hang() -> str:
    """Never comes back."""
    time.sleep(3600)
    return ""


@server.tool()
def die() -> str:
    """Takes the server down."""
    os._exit(1)


@server.tool()
def secret() -> str:
    """The part of its environment that it was started with."""
    return os.environ.get("SECRET", "nothing") + os.environ.get("GIVEN", "")


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
