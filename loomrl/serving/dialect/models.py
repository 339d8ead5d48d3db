"""The list of endpoints as OpenAI's and Anthropic's clients expect models."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

OWNER = "loomrl"


class Listed(NamedTuple):
    """An endpoint."""

    name: str
    created_at: float
    objectives: tuple[str, ...] = ()
    """Those of which its policy reads a preference."""


def many(listed: Sequence[Listed], *, anthropic: bool = False) -> dict[str, Any]:
    """All endpoints: `GET /v1/models`."""
    data = [one(each, anthropic=anthropic) for each in listed]
    if not anthropic:
        return {"object": "list", "data": data}
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"data": data, "has_more": False} | ends


def one(listed: Listed, *, anthropic: bool = False) -> dict[str, Any]:
    """One endpoint: `GET /v1/models/NAME`."""
    name = listed.name
    created = int(listed.created_at)
    if not anthropic:
        made = {"id": name, "object": "model", "created": created, "owned_by": OWNER}
        return made | ({"objectives": [*listed.objectives]} if listed.objectives else {})
    date = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": date, "lifecycle": "active"}
