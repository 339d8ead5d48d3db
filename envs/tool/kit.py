"""Tools, and the ways to list them for a policy."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loomrl.envs.tool.schema import Schema
from loomrl.envs.tool.world import World

Run = Callable[[World, Mapping[str, Any]], Any]
"""Acts on the world with arguments that fit the schema; the answer is JSON, a refusal is a ToolError."""
Listing = Literal["brief", "openai", "mcp"]

PAGE = 5
"""Rows on one page of a list."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a policy can call."""

    name: str
    description: str
    parameters: Schema
    run: Run
    changes: bool = False
    """True if it changes the world, so that repetitions matter."""


def list_tools(tools: Sequence[Tool], listing: Listing) -> str:
    """The tools as text: a line each, as OpenAI's API takes them, or as an MCP server answers `tools/list`."""
    if listing == "brief":
        return "\n".join(f"{tool.name}({_signature(tool.parameters)}): {tool.description}" for tool in tools)
    if listing == "openai":
        return "\n".join(json.dumps({"type": "function", "function": _described(tool, "parameters")}) for tool in tools)
    return json.dumps({"tools": [_described(tool, "inputSchema") for tool in tools]})


def paged(rows: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """One page of a list; by default the first."""
    first = PAGE * (arguments.get("page", 1) - 1)
    return {"items": [dict(row) for row in rows[first : first + PAGE]], "pages": max(1, -(-len(rows) // PAGE))}


def all_pages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, int]]:
    """The arguments that ask for each page of a list."""
    return [{"page": page} if page > 1 else {} for page in range(1, paged(rows, {})["pages"] + 1)]


def _signature(schema: Schema) -> str:
    required = schema["required"]
    return ", ".join(name if name in required else f"{name}?" for name in schema["properties"])


def _described(tool: Tool, parameters: str) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, parameters: tool.parameters}
