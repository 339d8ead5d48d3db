"""A served hub for the Atropos tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from hub_samples import served

from loomrl.config import HubConfig
from loomrl.hub.atropos.routes import atropos_routes
from loomrl.hub.http import create_app
from loomrl.hub.open import open_hub
from loomrl.store import open_store
from loomrl.store.notes import Notes

TRAINER = {
    "wandb_group": "group",
    "wandb_project": "project",
    "batch_size": 4,
    "max_token_len": 512,
    "checkpoint_dir": "/checkpoints",
    "save_checkpoint_interval": 10,
    "starting_step": 0,
    "num_steps": 100,
}
ENVIRONMENT = {"max_token_length": 512, "desired_name": "math", "weight": 1.0, "group_size": 4}


@contextmanager
def serving(url: str, *, lease_s: float = 600.0, max_bytes: int = 1 << 20) -> Iterator[httpx.Client]:
    """A client of a hub that is served in this process; closing and opening again is a clean restart."""
    hub, db = open_hub(url, HubConfig(lease_s=lease_s)), open_store(url)
    app = create_app(hub, extra_routes=atropos_routes(hub, Notes(db)), max_bytes=max_bytes)
    try:
        with served(app) as address, httpx.Client(base_url=address, timeout=30) as client:
            yield client
    finally:
        hub.close()
        db.close()


def group(start: int, size: int = 4, length: int = 6, **more: Any) -> dict[str, Any]:
    """A group as an environment posts it; `start` makes it unlike others."""
    tokens = [[start + row * length + place for place in range(length)] for row in range(size)]
    masks = [[-100, -100, *row[2:]] for row in tokens]
    logprobs = [[1.0, 1.0, *(-0.125 * place for place in range(2, length))] for _ in range(size)]
    return {
        "tokens": tokens,
        "masks": masks,
        "scores": [float(row) for row in range(size)],
        "inference_logprobs": logprobs,
        **more,
    }


def first_tokens(batch: list[dict[str, Any]]) -> list[int]:
    """The first tokens of groups, which tell them apart."""
    return [data["tokens"][0][0] for data in batch]
