"""JSON object schemas as text: usage, and random objects."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

Schema = Mapping[str, Any]
_WORDS = ("yes", "no", "1", "left", "hello")


def fields(schema: Schema) -> dict[str, Schema]:
    """The properties that a policy may set; OpenEnv's metadata is excluded."""
    return {name: part for name, part in schema.get("properties", {}).items() if name != "metadata"}


def text_field(schema: Schema) -> str | None:
    """The name of the only property, if it is a plain text."""
    (name, part), *others = list(fields(schema).items()) or [("", {})]
    return name if part.get("type") == "string" and "enum" not in part and not others else None


def describe(schema: Schema) -> str:
    """Usage text for an object of this schema, with its definitions if it has any."""
    required = set(schema.get("required", ()))
    parts = [f"{json.dumps(name)}: {_kind(part, name in required)}" for name, part in fields(schema).items()]
    text = f"{{{', '.join(parts)}}}"
    return f"{text} where {json.dumps(schema['$defs'])}" if "$defs" in schema else text


def _kind(part: Schema, required: bool) -> str:
    if "enum" in part:
        kind = " or ".join(map(json.dumps, part["enum"]))
    elif set(part) <= {"type", "title", "description", "default", "minimum", "maximum"} and "type" in part:
        low, high = part.get("minimum"), part.get("maximum")
        limits = "" if low is None and high is None else f" from {low} to {high}"
        kind = f"{part['type']}{limits}"
    else:
        kind = json.dumps({key: value for key, value in part.items() if key not in ("title", "description")})
    told = f" ({part['description']})" if part.get("description") else ""
    return f"<{kind}{told}{'' if required else ', optional'}>"


def invent(schema: Schema, rng: Random) -> dict[str, Any]:
    """A random object that fits a plain schema."""
    return {name: _value(part, rng) for name, part in fields(schema).items() if name in schema.get("required", ())}


def _value(part: Schema, rng: Random) -> Any:
    if "enum" in part:
        return rng.choice(list(part["enum"]))
    kind = part.get("type")
    if kind in ("integer", "number"):
        return rng.randint(int(part.get("minimum", 0)), int(part.get("maximum", 9)))
    if kind == "boolean":
        return rng.random() < 0.5
    return [] if kind == "array" else {} if kind == "object" else rng.choice(_WORDS)
