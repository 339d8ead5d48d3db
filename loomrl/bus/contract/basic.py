"""The types that contracts are made of.

A contract is closed at the top: a property that it does not name is refused. Objects within it may have further ones,
which are kept. An optional property may be absent, but not null.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
OPEN = ConfigDict(extra="allow", allow_inf_nan=False, use_attribute_docstrings=True)
"""The string below a property is its description in the JSON Schema."""
ISO = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d")
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


def _timestamp(value: object) -> datetime:
    """A time without an offset is UTC."""
    if not isinstance(value, str) or not ISO.match(value):
        raise ValueError("not a time by ISO 8601, such as 2026-01-31T12:00:00Z")
    try:
        time = datetime.fromisoformat(value.upper())
    except ValueError:
        raise ValueError("not a time by ISO 8601, such as 2026-01-31T12:00:00Z") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _whole(value: object) -> object:
    """In JSON 1.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _uri(value: str) -> str:
    if not URI.fullmatch(value):
        raise ValueError("not a URI, such as http://127.0.0.1:8000")
    return value


Timestamp = Annotated[
    datetime, PlainValidator(_timestamp), WithJsonSchema({"type": "string", "format": "date-time"}, mode="validation")
]
Uri = Annotated[str, AfterValidator(_uri), WithJsonSchema({"type": "string", "format": "uri"})]
Integer = Annotated[int, BeforeValidator(_whole)]
Natural = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
Positive = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
NotNegative = Annotated[float, Field(ge=0)]
Object = dict[str, Any]
Domain = Literal["coding", "research", "data_analysis", "general", "debugging", "writing"]
