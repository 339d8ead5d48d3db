import copy
import json
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from contract_table import contracts
from jsonschema import Draft202012Validator, FormatChecker

from loomrl.bus.event import CONTRACTS, contract_of
from loomrl.errors import EventError

CASES = [(subject, *row) for subject, rows in contracts().items() for row in rows]
FORMATS = FormatChecker(["uuid"])
EXAMPLES: dict[str, Any] = {
    "uuid": "0b0f9a34-6a8e-4f5e-9c3c-0e8e9d0c8a11",
    "date-time": "2026-01-31T12:00:00.5+01:00",
    "uri": "http://127.0.0.1:8000/v1",
    "string": "text",
    "free": {"any": ["thing", 1, None]},
    "boolean": True,
    "null": None,
}
WRONG: dict[str, list[Any]] = {
    "uuid": ["no-uuid", 7],
    "date-time": ["yesterday", 1_700_000_000, "2026-01-31"],
    "uri": ["no uri", 7],
    "string": [7, ["text"]],
    "free": [["no object"]],
    "boolean": ["true", 1],
    "integer": [0.5, "1", True],
    "number": ["1", True],
    "array": [{}, "text"],
    "map": [[], "text"],
    "object": [[], "text"],
}


@FORMATS.checks("date-time")
def is_time(value: object) -> bool:
    return not isinstance(value, str) or ("T" in value and bool(datetime.fromisoformat(value)))


@FORMATS.checks("uri")
def is_uri(value: object) -> bool:
    return not isinstance(value, str) or (":" in value and " " not in value)


FORMATS.checkers["date-time"] = (is_time, ValueError)


def bounds(kind: str) -> tuple[str, list[str]]:
    name, *rest = kind.split(" ")
    return name, rest


def value_of(kind: str) -> Any:
    """A value that a kind allows, at its lower bound."""
    name, rest = bounds(kind)
    first = name.split("|")[0]
    if first.startswith("'"):
        return first.strip("'")
    if first in ("integer", "number"):
        return next((int(bound[2:]) for bound in rest if bound.startswith(">=")), -3)
    return copy.deepcopy(EXAMPLES[first])


def full(subject: str) -> dict[str, Any]:
    """An event with every property of the contract."""
    event: dict[str, Any] = {}
    for path, _, kind in contracts()[subject]:
        put(
            event,
            path,
            {} if kind.split(" ")[0] in ("object", "map") else [] if kind.startswith("array") else value_of(kind),
        )
    return event


def steps(path: str) -> list[str]:
    return path.replace("[]", ".[]").replace("{}", ".{}").split(".")


def put(event: Any, path: str, value: Any) -> None:
    """Set a property of an example; lists and maps have one element."""
    *before, last = steps(path)
    for step in before:
        event = at(event, step)
    if last == "[]":
        event[:] = [value]
    else:
        event["anything" if last == "{}" else last] = value


def at(event: Any, step: str) -> Any:
    return event[0] if step == "[]" else event["anything" if step == "{}" else step]


def drop(event: Any, path: str) -> None:
    *before, last = steps(path)
    for step in before:
        event = at(event, step)
    if last == "[]":
        event.clear()
    else:
        del event["anything" if last == "{}" else last]


@cache
def validator(subject: str) -> Draft202012Validator:
    return Draft202012Validator(CONTRACTS[subject].schema(), format_checker=FORMATS)


def is_allowed(subject: str, event: Any) -> bool:
    """True if our types allow an event; our schema must say the same."""
    payload = json.dumps(event).encode()
    try:
        CONTRACTS[subject].parse(payload)
    except EventError:
        by_types = False
    else:
        by_types = True
    by_schema = validator(subject).is_valid(json.loads(payload))
    assert by_types == by_schema, f"types: {by_types}, schema: {by_schema}: {payload.decode()}"
    return by_types


def rows_of(schema: dict[str, Any], node: Any, path: str) -> Iterator[tuple[str, bool, str]]:
    """The lines of the table that a generated schema amounts to."""
    node = resolved(schema, node)
    for name, part in node.get("properties", {}).items():
        inside = f"{path}.{name}" if path else name
        yield inside, name in node.get("required", []), kind_of(resolved(schema, part))
        yield from rows_within(schema, resolved(schema, part), inside)


def rows_within(schema: dict[str, Any], node: dict[str, Any], path: str) -> Iterator[tuple[str, bool, str]]:
    yield from rows_of(schema, node, path)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        element = node.get(key)
        if isinstance(element, dict):
            element = resolved(schema, element)
            yield f"{path}{mark}", False, kind_of(element)
            yield from rows_within(schema, element, f"{path}{mark}")


def resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    return schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def kind_of(node: dict[str, Any]) -> str:
    if "anyOf" in node:
        return "|".join(kind_of(one) for one in node["anyOf"])
    if "enum" in node:
        return "|".join(f"'{one}'" for one in node["enum"])
    name = node.get("format", node["type"])
    if name == "object" and "properties" not in node:
        name = "map" if isinstance(node.get("additionalProperties"), dict) else "free"
    limits = {"minimum": ">=", "minItems": ">=", "maximum": "<="}
    return " ".join([name, *(f"{sign}{node[key]}" for key, sign in limits.items() if key in node)])


@pytest.mark.parametrize("subject", contracts())
def test_generated_schema_is_the_contract_property_by_property(subject: str) -> None:
    schema = contract_of(subject).schema()
    Draft202012Validator.check_schema(schema)
    assert (schema["$schema"], schema["$id"]) == ("https://json-schema.org/draft/2020-12/schema", subject)
    assert schema["additionalProperties"] is False
    assert sorted(rows_of(schema, schema, "")) == sorted(contracts()[subject])


def properties_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in (schema, *schema["$defs"].values()):
        for name, part in node.get("properties", {}).items():
            yield f"{node['title']}.{name}", part


@pytest.mark.parametrize("subject", contracts())
def test_every_property_is_described_and_has_examples_that_its_schema_allows(subject: str) -> None:
    schema = contract_of(subject).schema()
    bare = [name for name, part in properties_of(schema) if not part.get("description") or not part.get("examples")]
    assert bare == []
    for name, part in properties_of(schema):
        held_to = Draft202012Validator({**part, "$defs": schema["$defs"]}, format_checker=FORMATS)
        assert all(held_to.is_valid(value) for value in part["examples"]), name
    (event,) = schema["examples"]
    assert is_allowed(subject, event)


@pytest.mark.parametrize("subject", contracts())
def test_an_event_with_everything_and_one_with_the_least_are_allowed_and_the_top_is_closed(subject: str) -> None:
    event = full(subject)
    assert is_allowed(subject, event)
    assert not is_allowed(subject, event | {"further": 1})
    for path, required, _ in reversed(contracts()[subject]):
        if not required and "[]" not in path and "{}" not in path:
            drop(event, path)
    assert is_allowed(subject, event)


@pytest.mark.parametrize(("subject", "path", "required", "kind"), CASES)
def test_each_property_is_held_to_its_contract(subject: str, path: str, required: bool, kind: str) -> None:
    name, limits = bounds(kind)
    names = name.split("|")
    event = full(subject)
    if not path.endswith(("[]", "{}")):
        absent = copy.deepcopy(event)
        drop(absent, path)
        assert is_allowed(subject, absent) is not required

    def with_value(value: Any) -> bool:
        changed = copy.deepcopy(event)
        put(changed, path, value)
        return is_allowed(subject, changed)

    assert with_value(None) is ("null" in names)
    if names[0].startswith("'"):
        assert all(with_value(one.strip("'")) for one in names if one != "null")
        assert not with_value("another")
        assert not with_value(7)
        return
    for wrong in WRONG[names[0]]:
        if not (isinstance(wrong, dict) and "free" in names):
            assert not with_value(wrong)
    for limit in limits:
        bound = int(limit[2:])
        if name == "array":
            assert not with_value([])
            continue
        assert with_value(bound)
        assert not with_value(bound - 1 if limit.startswith(">=") else bound + 1)
        assert not with_value(bound - 0.001 if limit.startswith(">=") else bound + 0.001)
    if "free" in names:
        assert with_value({})
        assert with_value({"deep": {"er": [1.5, None]}})
    if name == "integer":
        assert with_value(7.0)
    if name == "object":
        further = copy.deepcopy(event)
        part: Any = further
        for step in steps(path):
            part = at(part, step)
        part["further"] = {"is": "kept"}
        assert is_allowed(subject, further)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}'])
def test_what_is_no_event_is_refused_by_name(body: bytes) -> None:
    for subject, contract in CONTRACTS.items():
        with pytest.raises(EventError, match=rf"^{subject}: "):
            contract.parse(body)


def test_what_is_no_number_in_json_is_refused_where_anything_is_allowed() -> None:
    event = full("agent.rl.trajectory.v1")
    event["turns"][0]["action"]["tool_args"] = {"limit": float("inf")}
    with pytest.raises(EventError, match="Infinity is no number in JSON"):
        CONTRACTS["agent.rl.trajectory.v1"].parse(json.dumps(event).encode())
    event["turns"][0]["action"]["tool_args"] = {"limit": "to Infinity and NaN"}
    CONTRACTS["agent.rl.trajectory.v1"].parse(json.dumps(event).encode())


def test_a_refusal_names_places_and_repeats_no_content() -> None:
    event = full("agent.rl.trajectory.v1")
    event["turns"][0]["turn_id"], event["metadata"]["model"] = "hunter2", ["hunter2"]
    with pytest.raises(EventError, match=r"turns\.0\.turn_id: .*; metadata\.model: ") as refusal:
        CONTRACTS["agent.rl.trajectory.v1"].parse(json.dumps(event).encode())
    assert "hunter2" not in str(refusal.value)


def test_times_without_an_offset_are_utc() -> None:
    event = full("agent.rl.trajectory.v1") | {"start_timestamp": "2026-01-31T12:00:00"}
    parsed = CONTRACTS["agent.rl.trajectory.v1"].parse(json.dumps(event).encode())
    assert parsed["start_timestamp"].isoformat() == "2026-01-31T12:00:00+00:00"


def test_an_unknown_subject_is_named_with_the_nearest() -> None:
    with pytest.raises(EventError, match=r"agent\.rl\.trajectry\.v1.*Did you mean 'agent\.rl\.trajectory\.v1'"):
        contract_of("agent.rl.trajectry.v1")
