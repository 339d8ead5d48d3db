"""Tools, and the ways to list them for a policy."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loomrl.envs.tool.world import ToolWorld

Schema = Mapping[str, Any]


class Invalid(ValueError):
    """A value that its schema refuses."""


def text(description: str, *, longest: int = 80) -> Schema:
    """A string that is not empty."""
    return {"type": "string", "description": description, "minLength": 1, "maxLength": longest}


def whole(description: str, least: int, most: int) -> Schema:
    """A whole number between two others."""
    return {"type": "integer", "description": description, "minimum": least, "maximum": most}


def fields(*, optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def check_arguments(value: Any, schema: Schema, *, where: str = "arguments") -> Any:
    """The value, with whole numbers such as 3.0 as integers; Invalid states where and how it breaks the schema."""
    return _CHECKS[schema["type"]](value, schema, where)


def _object(value: Any, schema: Schema, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mismatch(value, schema, where)
    properties: Mapping[str, Schema] = schema["properties"]
    strangers = [name for name in value if name not in properties]
    if strangers:
        raise Invalid(f"{where}: no property {strangers[0][:40]!r}; known: {', '.join(properties) or 'none'}")
    missing = [name for name in schema["required"] if name not in value]
    if missing:
        raise Invalid(f"{where}: {missing[0]!r} is missing")
    return {name: check_arguments(item, properties[name], where=f"{where}.{name}") for name, item in value.items()}


def _string(value: Any, schema: Schema, where: str) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, schema, where)
    if not schema["minLength"] <= len(value) <= schema["maxLength"]:
        raise Invalid(f"{where}: {schema['minLength']} to {schema['maxLength']} characters expected")
    return value


def _integer(value: Any, schema: Schema, where: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mismatch(value, schema, where)
    if not schema["minimum"] <= value <= schema["maximum"]:
        raise Invalid(f"{where}: {schema['minimum']} to {schema['maximum']} expected")
    return value


def _mismatch(value: Any, schema: Schema, where: str) -> Invalid:
    return Invalid(f"{where}: {schema['type']} expected, not {_NAMES.get(type(value), 'null')}")


_NAMES = {dict: "object", list: "array", str: "string", int: "integer", float: "number", bool: "boolean"}
_CHECKS: Mapping[str, Callable[[Any, Schema, str], Any]] = {"object": _object, "string": _string, "integer": _integer}


Arguments = Mapping[str, Any]
Run = Callable[[ToolWorld, Arguments], Any]
"""Acts on the world with arguments that fit the schema; the answer is JSON, a refusal is a ToolError."""
Listing = Literal["brief", "openai", "mcp"]

PAGE = 5
"""Rows on one page of a list."""


@dataclass(frozen=True, slots=True)
class PolicyTool:
    """A function that a policy can call."""

    name: str
    description: str
    parameters: Schema
    run: Run
    changes: bool = False
    """True if it changes the world, so that repetitions matter."""


def list_tools(tools: Sequence[PolicyTool], listing: Listing) -> str:
    """The tools as text: a line each, as OpenAI's API takes them, or as an MCP server answers `tools/list`."""
    if listing == "brief":
        return "\n".join(f"{tool.name}({_signature(tool.parameters)}): {tool.description}" for tool in tools)
    if listing == "openai":
        return "\n".join(json.dumps({"type": "function", "function": _describe(tool, "parameters")}) for tool in tools)
    return json.dumps({"tools": [_describe(tool, "inputSchema") for tool in tools]})


def page_of(rows: Sequence[Mapping[str, Any]], arguments: Arguments) -> Mapping[str, Any]:
    """One page of a list; by default the first."""
    first = PAGE * (arguments.get("page", 1) - 1)
    return {"items": [dict(row) for row in rows[first : first + PAGE]], "pages": max(1, -(-len(rows) // PAGE))}


def all_pages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, int]]:
    """The arguments that ask for each page of a list."""
    return [{"page": page} if page > 1 else {} for page in range(1, page_of(rows, {})["pages"] + 1)]


def _signature(schema: Schema) -> str:
    required = schema["required"]
    return ", ".join(name if name in required else f"{name}?" for name in schema["properties"])


def _describe(tool: PolicyTool, parameters: str) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, parameters: tool.parameters}
