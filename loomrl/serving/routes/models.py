"""`/v1/models`: the endpoints, as OpenAI's and Anthropic's clients expect models."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from loomrl.serving.gateway import Gateway
from loomrl.serving.request import HttpReply, HttpRequest
from loomrl.store.endpoints import Endpoint

MODELS = "/v1/models"
"""Each model has a path below it."""
OWNER = "loomrl"


async def answer_models(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """List all endpoints, or show one."""
    caller = await gateway.keys.caller(request.token, scope="act")
    is_anthropic = "anthropic-version" in request.headers
    if name := request.path.removeprefix(MODELS).removeprefix("/"):
        endpoint = gateway.find_endpoint(name, caller)
        answer = model(endpoint, _objectives(gateway, endpoint), anthropic=is_anthropic)
    else:
        listed = [model(each, _objectives(gateway, each), anthropic=is_anthropic) for each in gateway.view.endpoints()]
        answer = model_list(listed, anthropic=is_anthropic)
    await reply.whole(200, msgspec.json.encode(answer))


def _objectives(gateway: Gateway, endpoint: Endpoint) -> tuple[str, ...]:
    """The objectives of which the endpoint's first policy that is up reads a preference."""
    policies = (policy for arm in endpoint.arms for policy in gateway.view.replicas(arm.policy))
    return next((policy.about.weighs for policy in policies), ())


def model_list(models: list[dict[str, Any]], *, anthropic: bool = False) -> dict[str, Any]:
    """The answer of `GET /v1/models`."""
    if not anthropic:
        return {"object": "list", "data": models}
    first = models[0]["id"] if models else None
    last = models[-1]["id"] if models else None
    return {"data": models, "has_more": False, "first_id": first, "last_id": last}


def model(endpoint: Endpoint, objectives: tuple[str, ...] = (), *, anthropic: bool = False) -> dict[str, Any]:
    """The answer of `GET /v1/models/NAME`."""
    name = endpoint.name
    created = int(endpoint.created_at)
    if not anthropic:
        made = {"id": name, "object": "model", "created": created, "owned_by": OWNER}
        return made | ({"objectives": [*objectives]} if objectives else {})
    date = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": date, "lifecycle": "active"}
