import copy
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from contract_table import contracts
from jsonschema import Draft202012Validator, FormatChecker

from loomrl.bus.event import CONTRACTS, MODEL_DEPLOYED, TRAJECTORY, Contract, contract_of
from loomrl.errors import EventError

FORMATS = FormatChecker(["uuid"])


@FORMATS.checks("date-time")
def is_time(value: object) -> bool:
    return not isinstance(value, str) or ("T" in value and bool(datetime.fromisoformat(value)))


@FORMATS.checks("uri")
def is_uri(value: object) -> bool:
    return not isinstance(value, str) or (":" in value and " " not in value)


FORMATS.checkers["date-time"] = (is_time, ValueError)


def is_allowed(contract: Contract[Any], event: Any) -> bool:
    """True if our types allow an event; our schema must say the same."""
    payload = json.dumps(event).encode()
    try:
        contract.parse(payload)
    except EventError:
        by_types = False
    else:
        by_types = True
    by_schema = Draft202012Validator(contract.schema(), format_checker=FORMATS).is_valid(json.loads(payload))
    assert by_types == by_schema, f"types: {by_types}, schema: {by_schema}: {payload.decode()}"
    return by_types


def example(contract: Contract[Any], path: str = "", value: Any = None) -> dict[str, Any]:
    """The event with every property, of which one may be another."""
    event: Any = copy.deepcopy(contract.example)
    if path:
        part = event
        *before, last = path.split(".")
        for step in before:
            part = part[int(step)] if step.isdigit() else part[step]
        part[last] = value
    found: dict[str, Any] = event
    return found


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
def test_generated_schema_is_the_contract_property_by_property_with_examples_that_it_allows(subject: str) -> None:
    contract = contract_of(subject)
    schema = contract.schema()
    Draft202012Validator.check_schema(schema)
    assert (schema["$schema"], schema["$id"]) == ("https://json-schema.org/draft/2020-12/schema", subject)
    assert sorted(rows_of(schema, schema, "")) == sorted(contracts()[subject])
    for node in (schema, *schema["$defs"].values()):
        for name, part in node.get("properties", {}).items():
            assert part.get("description"), name
            held_to = Draft202012Validator({**part, "$defs": schema["$defs"]}, format_checker=FORMATS)
            assert part["examples"], name
            assert all(held_to.is_valid(value) for value in part["examples"]), name
    assert schema["examples"] == [contract.example]
    assert is_allowed(contract, contract.example)
    assert not is_allowed(contract, {**contract.example, "further": 1}), "the top is closed"


def test_values_are_held_to_their_kinds_without_conversion() -> None:
    turn = "turns.0"
    for path, allowed, refused in (
        ("trajectory_id", [], ["no-uuid", 7, None]),
        ("session_id", ["text"], [7, ["text"], None]),
        ("end_timestamp", ["2026-01-31T12:00:00.5+01:00"], ["yesterday", 1_700_000_000, "2026-01-31", None]),
        ("subordinate_profile", ["hacker", None], ["another", 7]),
        ("turns", [], [[], {}, "text"]),
        (f"{turn}.turn_id", [1, 7.0], [0, 0.5, "1", True, None]),
        (f"{turn}.action.tool_args", [{}, {"deep": {"er": [1.5, None]}}], [["no object"], "text", None]),
        (f"{turn}.result.success", [True], ["true", 1, None]),
        (f"{turn}.result.output", ["text", {"any": 1}, None], [["no object"], 7]),
        (f"{turn}.result.further", [{"is": "kept"}], []),
        ("metadata.temperature", [0, 2, 0.5], [-0.001, 2.001, "1", True, None]),
        ("metadata.total_tokens", [0], [-1, 0.5]),
    ):
        assert all(is_allowed(TRAJECTORY, example(TRAJECTORY, path, value)) for value in allowed), path
        assert not any(is_allowed(TRAJECTORY, example(TRAJECTORY, path, value)) for value in refused), path
    endpoint = "deployment_config.endpoint"
    assert is_allowed(MODEL_DEPLOYED, example(MODEL_DEPLOYED, endpoint, "http://127.0.0.1:8000/v1"))
    assert not any(is_allowed(MODEL_DEPLOYED, example(MODEL_DEPLOYED, endpoint, value)) for value in ("no uri", 7))


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}'])
def test_what_is_no_event_is_refused_by_name(body: bytes) -> None:
    for subject, contract in CONTRACTS.items():
        with pytest.raises(EventError, match=rf"^{subject}: "):
            contract.parse(body)


def test_what_is_no_number_in_json_is_refused_where_anything_is_allowed() -> None:
    where = "turns.0.action.tool_args"
    for name in ("Infinity", "NaN"):
        with pytest.raises(EventError, match=f"{name} is no number in JSON"):
            TRAJECTORY.parse(json.dumps(example(TRAJECTORY, where, {"limit": float(name)})).encode())
    TRAJECTORY.parse(json.dumps(example(TRAJECTORY, where, {"limit": "to Infinity and NaN"})).encode())


def test_a_refusal_names_places_and_repeats_no_content() -> None:
    event = example(TRAJECTORY, "turns.0.turn_id", "hunter2")
    event["metadata"]["model"] = ["hunter2"]
    with pytest.raises(EventError, match=r"turns\.0\.turn_id: .*; metadata\.model: ") as refusal:
        TRAJECTORY.parse(json.dumps(event).encode())
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(EventError, match=r"session_id: .*; and \d more$"):
        TRAJECTORY.parse(b"{}")


def test_times_without_an_offset_are_utc() -> None:
    event = example(TRAJECTORY, "start_timestamp", "2026-01-31T12:00:00")
    parsed = TRAJECTORY.parse(json.dumps(event).encode())
    assert parsed["start_timestamp"].isoformat() == "2026-01-31T12:00:00+00:00"
