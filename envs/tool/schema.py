"""Arguments against a JSON Schema: the part of it that our tools use, checked strictly and quickly.

`type` (object, string, integer), `properties`, `required`, `minimum`, `maximum`, `minLength`, `maxLength`. Properties
that are not named are refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

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


def checked(value: Any, schema: Schema, *, where: str = "arguments") -> Any:
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
    return {name: checked(item, properties[name], where=f"{where}.{name}") for name, item in value.items()}


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
