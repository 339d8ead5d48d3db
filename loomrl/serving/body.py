"""Bodies of requests as closed models: an error names the path of the wrong part, as `messages.0.content`."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from loomrl.errors import did_you_mean
from loomrl.gym.guard import is_storable
from loomrl.schema import models_in
from loomrl.serving.refusal import Refusal, RefusalCause

DEEPEST = 64
"""Levels of objects and lists in a request."""
MOST_VALUES = 1 << 18
"""Values in a request, of all levels."""
MOST_JPEGS = 16
"""JPEG files in a request: each is decoded, which takes time."""
JPEG = ("data:image/jpeg", "image/jpeg")
MOST_IGNORED = 64
"""Fields of a request that may be ignored, where an endpoint ignores what it does not know."""
MOST_STOPS = 64
LONGEST_NAME = 256
"""Characters of a name: of a model, a tool, a user, a call."""
LARGEST = (1 << 63) - 1
SMALLEST = -(1 << 63)
MARK = "§"
"""Begins the tags of unions, which pydantic puts into the paths of errors."""
_DICTIONARY = re.compile("a valid dictionary( or .*)?$")
"""pydantic's word for what JSON calls an object."""
B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """An object in a request. Null is the same as a missing field; unknown fields are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or None not in raw.values():
            return raw
        # clients send null for fields that they leave out
        return {name: value for name, value in raw.items() if value is not None}


def _check_name(value: str) -> str:
    if len(value) > LONGEST_NAME or not value.isprintable():
        raise ValueError(f"{value[:40]!r} is not a name: it needs 1 to {LONGEST_NAME} printable characters.")
    return value


def _check_given(value: str) -> str:
    if not value:
        raise ValueError("a name is needed, and it is empty.")
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Label = Annotated[str, AfterValidator(_check_name)]
"""A name that may be empty."""
Name = Annotated[Label, AfterValidator(_check_given)]
Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number, also written as 3.0."""
Temperature = Annotated[float, Field(ge=0, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
MaxTokens = Annotated[Whole, Field(ge=1, le=1 << 31)]
TopK = Annotated[Whole, Field(ge=-1, le=1 << 31)]
"""-1 and 0 are all."""
Texts = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_several)]
"""A string or a list of strings, none of them empty."""
Plain = dict[str, Any]
"""An object whose content is the caller's own, as a JSON schema."""


def only(*values: Any) -> AfterValidator:
    """A field that is understood, and supported with these values only."""

    def check(value: Any) -> Any:
        if any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values):
            return value
        hint = f" Only {', '.join(map(show_value, values))} is." if values else ""
        raise _unsupported(f"{show_value(value)} is not supported.{hint}")

    return AfterValidator(check)


def never(reason: str) -> AfterValidator:
    """A field that is understood and never supported."""

    def check(value: Any) -> Any:
        raise _unsupported(reason)

    return AfterValidator(check)


UNSUPPORTED = "unsupported"
"""The kind of an error about a field that is understood, and could as well be left out."""


def _unsupported(message: str) -> PydanticCustomError:
    return PydanticCustomError(UNSUPPORTED, "{message}", {"message": message})


def tag_by(field: str, default: str = "", *, same: Mapping[str, str] | None = None) -> Discriminator:
    """Tells the members of a union apart by a field; `same` maps a value to the one whose member it shares."""

    def tag(raw: Any) -> str:
        value = str(raw.get(field) or default) if isinstance(raw, Mapping) else ""
        return MARK + (same or {}).get(value, value)

    return Discriminator(tag, custom_error_type=field, custom_error_message="not supported")


TEXT_OR_PARTS = Discriminator(lambda raw: f"{MARK}text" if isinstance(raw, str) else f"{MARK}parts")


def invalid(where: str, message: str) -> Refusal:
    """A refused part of a request."""
    return Refusal(RefusalCause.INVALID, message, where=where)


def read_body(form: type[B], raw: Mapping[str, Any], *, ignored: list[str] | None = None) -> B:
    """The body as a model; a Refusal names the first part that is unknown, unsupported or wrong.

    With `ignored`, fields that are unknown or unsupported are left out instead, and their paths are added to it.
    """
    check_bounds(raw)  # before pydantic, which would recurse into a hostile body
    while True:
        try:
            return form.model_validate(raw)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            path = _path_of(fault)
            can_go = fault["type"] in ("extra_forbidden", UNSUPPORTED) and path and isinstance(path[-1], str)
            if ignored is None or not can_go or len(ignored) == MOST_IGNORED:
                raise _refusal(form, raw, fault) from None
            ignored.append(".".join(map(str, path))[:LONGEST_NAME])
            raw = _without(raw, path)


def read_closed(form: type[B], raw: Any) -> B:
    """`read_body` of an object of any size."""
    if not isinstance(raw, dict):
        raise Refusal(RefusalCause.INVALID, "The body must be an object.")
    try:
        return form.model_validate(raw)
    except ValidationError as error:
        raise _refusal(form, raw, error.errors(include_url=False)[0]) from None


def _path_of(fault: ErrorDetails) -> list[str | int]:
    """The way to a fault in the body, without the tags of unions."""
    return [part for part in fault["loc"] if not str(part).startswith(MARK)]


def _without(raw: Any, path: Sequence[str | int]) -> Any:
    """A copy of the body without the field at a path."""
    first, *rest = path
    if not rest:
        return {name: value for name, value in raw.items() if name != first}
    copy = raw.copy()
    copy[first] = _without(raw[first], rest)
    return copy


def _refusal(form: type[Body], raw: Any, fault: ErrorDetails) -> Refusal:
    path = [str(part)[:LONGEST_NAME] for part in _path_of(fault)]
    kind = fault["type"]
    message = fault["msg"]
    if kind == "extra_forbidden":
        others = [name for name in _names(form) if name != path[-1]]  # it may be known in another place
        message = f"the field is unknown, or not supported.{did_you_mean(path[-1], others)}"
    elif kind == "missing":
        message = "the field is missing."
    elif kind in ("type", "role"):
        given = fault["input"]
        if isinstance(given, Mapping):
            path.append(kind)
            message = f"{show_value(given.get(kind))} is not supported here."
        else:
            message = f"it must be an object, got {kind_of(given)}."
    elif "error" in fault.get("ctx", {}):
        message = str(fault["ctx"]["error"])
    elif kind == UNSUPPORTED:
        pass
    elif kind.endswith(("too_long", "too_short")):
        message = f"{message}."
    else:
        wanted = _DICTIONARY.sub("an object", message).replace("Input should", "it must")
        message = f"{wanted}, got {show_value(fault['input'])}."
    return invalid(".".join(path), message)


@cache
def _names(form: type[Body]) -> list[str]:
    """The fields of a form and of all forms in it."""
    found: dict[str, None] = {}
    waiting = [form]
    seen = set()
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            found |= dict.fromkeys(one.model_fields)
            waiting += [inner for spec in one.model_fields.values() for inner in models_in(spec.annotation)]  # type: ignore[misc]
    return sorted(found)


def check_bounds(body: Mapping[str, Any]) -> None:
    """Refuse requests that are too deep or too large, numbers that are not finite, and text without UTF-8."""
    count = 0
    jpegs = 0
    level: list[Any] = [body]
    for _ in range(DEEPEST):
        count += sum(len(value) for value in level if isinstance(value, dict | list))
        if count > MOST_VALUES:
            raise invalid("", f"the request has more than {MOST_VALUES} values.")
        if not all(map(_is_sound, level)):
            _name_fault("", body)
        jpegs += sum(isinstance(value, str) and value.startswith(JPEG) for value in level)
        if jpegs > MOST_JPEGS:
            raise invalid("", f"the request has more than {MOST_JPEGS} JPEG pictures: send PNG.")
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise invalid("", f"the request is nested more than {DEEPEST} levels deep.")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return (*value, *value.values())
    return value if isinstance(value, list) else ()


def _is_sound(value: Any) -> bool:
    if isinstance(value, str):
        return is_storable(value)
    if isinstance(value, int):
        return SMALLEST <= value <= LARGEST
    return not isinstance(value, float) or math.isfinite(value)


def _name_fault(where: str, value: Any, depth: int = 0) -> None:
    """Refuse the first unsound value by its path; deeper ones wait until those above are known to be sound."""
    if not _is_sound(value):
        raise invalid(where, "it is a number that JSON does not have, or of more than 64 bits, or text without UTF-8.")
    if depth == DEEPEST:
        return
    for name, inner in _items(value):
        if not _is_sound(name):
            raise invalid(where, "the name of a field has no UTF-8.")
        _name_fault(f"{where}.{name}"[:LONGEST_NAME] if where else str(name)[:LONGEST_NAME], inner, depth + 1)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def kind_of(value: object) -> str:
    """The JSON type of a value, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def show_value(value: object) -> str:
    """A value in a message, cut where it is long."""
    if isinstance(value, bool):
        return kind_of(value)
    text = repr(value) if not isinstance(value, list | Mapping) or len(value) < 9 else kind_of(value)
    return text if len(text) <= 60 else text[:57] + "…"
