"""JSON schemas of objects as text: how an object is written, and one made up."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

Schema = Mapping[str, Any]
_WORDS = ("yes", "no", "1", "left", "hello")


def fields(schema: Schema) -> dict[str, Schema]:
    """The properties that a policy may set: OpenEnv's metadata is none of them."""
    return {name: part for name, part in schema.get("properties", {}).items() if name != "metadata"}


def text_field(schema: Schema) -> str | None:
    """The one property there is, where that is a plain text."""
    (name, part), *others = list(fields(schema).items()) or [("", {})]
    return name if part.get("type") == "string" and "enum" not in part and not others else None


def describe(schema: Schema) -> str:
    """How an object of this schema is written, with its definitions where it has some."""
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
    """An object that fits a plain schema."""
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
