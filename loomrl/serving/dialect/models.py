"""The list of endpoints as OpenAI's and Anthropic's clients expect models."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

OWNER = "loomrl"


def many(listed: Sequence[tuple[str, float]], *, anthropic: bool = False) -> dict[str, Any]:
    """All endpoints, by name and time of creation: `GET /v1/models`."""
    data = [one(name, created, anthropic=anthropic) for name, created in listed]
    if not anthropic:
        return {"object": "list", "data": data}
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"data": data, "has_more": False} | ends


def one(name: str, created: float, *, anthropic: bool = False) -> dict[str, Any]:
    """One endpoint: `GET /v1/models/NAME`."""
    if not anthropic:
        return {"id": name, "object": "model", "created": int(created), "owned_by": OWNER}
    date = datetime.fromtimestamp(int(created), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": date, "lifecycle": "active"}
