"""TensorZero in front of an endpoint: its configuration from ours, and the feedback that was posted there.

Its variants are the endpoint's arms. It divides calls among them as our shares do when the file is written, and names
the arm to the gateway (`ENDPOINT@ARM`), which then compares nothing by itself.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loomrl.errors import ConfigError, DataError, unknown
from loomrl.store.endpoints import Arm, Endpoint, Role

METRICS: Mapping[str, tuple[str, str]] = {
    "thumb": ("boolean", "True: the answer was liked."),
    "stars": ("float", "1 to 5."),
    "success": ("boolean", "The outcome, which only the caller knows."),
    "reward": ("float", "The outcome as a number from 0 to 1."),
}
"""Metric → its type, and what it means. Comments and demonstrations need no declaration there."""
OWN = ("comment", "demonstration")
PROVIDER = "loomrl"


def configuration(endpoint: Endpoint, *, url: str, key_variable: str | None) -> str:
    """A `tensorzero.toml` whose function is the endpoint, and whose variants are its arms that answer callers."""
    arms = [arm for arm in endpoint.arms if arm.role is not Role.SHADOW]
    key = f"env::{key_variable}" if key_variable else "none"
    function = f"functions.{_name(endpoint.name)}"
    lines = [
        f"# Endpoint {endpoint.name} at revision {endpoint.revision}, written by `loomrl endpoints export`.",
        "# Write it anew when the arms have changed: a release changes them.",
        "",
        *(line for arm in arms for line in _model(endpoint, arm, url=url, key=key)),
        f"[{function}]",
        'type = "chat"',
        "",
    ]
    for arm in arms:
        lines += [
            f"[{function}.variants.{_name(arm.name)}]",
            'type = "chat_completion"',
            f"model = {_text(_model_name(endpoint, arm))}",
            "",
        ]
    shares = ", ".join(f"{_name(arm.name)} = {arm.share:g}" for arm in arms if arm.share > 0)
    lines += [f"[{function}.experimentation]", 'type = "static"', f"candidate_variants = {{ {shares} }}", ""]
    for metric, (kind, meaning) in METRICS.items():
        lines += [
            f"[metrics.{metric}]",
            f"type = {_text(kind)}",
            'level = "inference"',
            'optimize = "max"',
            f"description = {_text(meaning)}",
            "",
        ]
    return "\n".join(lines)


def told_in(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Feedback as our gateway takes it, from lines `{"id", "metric", "value", "call"}`; a DataError names a bad one."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            yield {"id": f"tensorzero-{given['id']}", "call": given["call"], **_said(given["metric"], given["value"])}
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(
                f"line {number}: {reason}. docs/coordinate.md has the query that writes such lines."
            ) from None


def _said(metric: str, value: Any) -> dict[str, Any]:
    """A value by the name of its metric; ClickHouse may have made text of it."""
    match metric:
        case "thumb":
            return {"thumb": "up" if _is_true(value) else "down"}
        case "stars":
            return {"stars": round(float(value))}
        case "success":
            return {"outcome": {"success": float(_is_true(value))}}
        case "reward":
            return {"outcome": {"reward": float(value)}}
        case "comment":
            return {"comment": str(value)}
        case "demonstration":
            return {"correction": _read_demonstration(value)}
    raise ConfigError(unknown("metric", metric, [*METRICS, *OWN]))


def _read_demonstration(value: Any) -> str:
    """The text of a demonstration, which is a list of blocks of content."""
    blocks = json.loads(value) if isinstance(value, str) and value.startswith("[") else value
    if isinstance(blocks, str):
        return blocks
    return "\n".join(block["text"] for block in blocks if block.get("type") == "text")


def _is_true(value: Any) -> bool:
    if value in (True, "true", "1", 1):
        return True
    if value in (False, "false", "0", 0):
        return False
    raise ValueError(f"value={value!r:.60} is neither true nor false")


def _model(endpoint: Endpoint, arm: Arm, *, url: str, key: str) -> list[str]:
    name = f"models.{_text(_model_name(endpoint, arm))}"
    return [
        f"[{name}]",
        f"routing = [{_text(PROVIDER)}]",
        "",
        f"[{name}.providers.{PROVIDER}]",
        'type = "openai"',
        "model_name = " + _text(f"{endpoint.name}@{arm.name}"),
        "api_base = " + _text(url.rstrip("/") + "/v1/"),
        f"api_key_location = {_text(key)}",
        "",
    ]


def _model_name(endpoint: Endpoint, arm: Arm) -> str:
    return f"{endpoint.name}-{arm.name}"


def _name(text: str) -> str:
    """A key of TOML: dots would part it."""
    return text if "." not in text else _text(text)


def _text(text: str) -> str:
    return json.dumps(text)
