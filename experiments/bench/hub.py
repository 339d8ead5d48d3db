"""Ingestion rate of the hub, against a JSON server like Atropos', and the cost of a lease as the hub grows."""

import gzip
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from loomrl.config import HubConfig
from loomrl.errors import LoomError
from loomrl.experiments.bench.rounds import machine, say, seconds
from loomrl.http.admission import Admission
from loomrl.http.site import Site
from loomrl.hub import Hub, open_hub
from loomrl.hub.client import HubClient
from loomrl.types import End, Group, Reward, Task, Tokens, Trajectory, Turn

GROUP_SIZE = 8
TOKENS = 8192
PROMPT = 512
VOCABULARY = 151_936
PRODUCERS = 8
TASK = Task("Math", "1.0.0", "algebra", 1, 0)


@dataclass(frozen=True, slots=True)
class HubSize:
    """The amount of work."""

    rounds: int = 5
    groups: int = 80
    json_groups: int = 24
    stored: tuple[int, int] = (1_000, 1_000_000)
    leases: int = 50


FULL = HubSize()
QUICK = HubSize(rounds=1, groups=4, json_groups=4, stored=(400, 1_000), leases=8)


def measure(size: HubSize = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench hub`, medians of interleaved rounds. It writes to a temporary folder only."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loom-bench-")))
        local = stack.enter_context(_open(folder / "local.db"))
        remote = stack.enter_context(HubClient(stack.enter_context(_spawn(_serve_hub, str(folder / "http.db")))))
        atropos = stack.enter_context(httpx.Client(base_url=stack.enter_context(_spawn(_serve_json)), timeout=120))
        rates = _ingest_rates(size, local, remote, atropos)
    low, high = size.stored
    costs = _lease_costs(size)
    return {
        "in_process_tokens_per_s": round(rates["local"]),
        "http_tokens_per_s": round(rates["http"]),
        "json_http_tokens_per_s": round(rates["json"]),
        "json_gzip_http_tokens_per_s": round(rates["gzip"]),
        "http_vs_json_ratio": round(rates["http"] / rates["json"], 2),
        "http_vs_json_gzip_ratio": round(rates["http"] / rates["gzip"], 2),
        "lease_cost_growth": round(costs[high] / costs[low], 3),
        "lease_ms": {str(stored): round(cost * 1e3, 3) for stored, cost in costs.items()},
        "group": {"trajectories": GROUP_SIZE, "tokens_each": TOKENS},
        "machine": machine(),
    }


def _ingest_rates(size: HubSize, local: Hub, remote: Hub, atropos: httpx.Client) -> dict[str, float]:
    """Tokens per second of each way in, interleaved so that the machine's variations affect them alike."""
    rng = np.random.default_rng(0)
    rates: dict[str, list[float]] = {"local": [], "http": [], "json": [], "gzip": []}
    for number in range(1, size.rounds + 1):
        say(f"round {number} of {size.rounds}")
        groups = [attempts_of(rng, GROUP_SIZE, TOKENS) for _ in range(size.groups)]
        scored = [_to_scored_data(group) for group in groups[: size.json_groups]]
        rates["local"].append(tokens_per_s(lambda group: local.append(group.trajectories), groups))
        rates["http"].append(tokens_per_s(lambda group: remote.append(group.trajectories), groups))
        rates["json"].append(tokens_per_s(lambda data: _post_json(atropos, data, pack=False), scored))
        rates["gzip"].append(tokens_per_s(lambda data: _post_json(atropos, data, pack=True), scored))
    return {way: statistics.median(found) for way, found in rates.items()}


def tokens_per_s(send: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Tokens per second with all producers sending at once."""
    with ThreadPoolExecutor(PRODUCERS) as producers:
        spent = seconds(lambda: list(producers.map(send, items)))
    return len(items) * GROUP_SIZE * TOKENS / spent


def _post_json(atropos: httpx.Client, data: dict[str, Any], *, pack: bool) -> None:
    """Compressed as an Atropos environment sends it, or uncompressed, which is faster without a network in between."""
    body = json.dumps(data).encode()
    headers = {"content-type": "application/json"}
    if pack:
        body = gzip.compress(body)
        headers = headers | {"content-encoding": "gzip"}
    atropos.post("/scored_data", content=body, headers=headers).raise_for_status()


def _lease_costs(size: HubSize) -> dict[int, float]:
    """Seconds for a lease of four groups of four and its ack, by the number of stored trajectories."""
    costs = {}
    stored = 0
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder, _open(Path(folder) / "growing.db") as hub:
        for target in size.stored:
            say(f"storing up to {target:,} trajectories")
            while stored < target:
                batch = [attempts_of(rng, 4, 4) for _ in range(min(4_000, target - stored) // 4)]
                hub.append([trajectory for group in batch for trajectory in group.trajectories])
                stored += len(batch) * 4
            costs[target] = statistics.median(_lease_cost(hub) for _ in range(size.leases))
    return costs


def _lease_cost(hub: Hub) -> float:
    return seconds(lambda: hub.ack(hub.lease(4, version=0, consumer="bench", at_least=4).id, version=1))


def _open(file: Path) -> Hub:
    return open_hub(f"sqlite:///{file}", HubConfig())


def attempts_of(rng: np.random.Generator, size: int, length: int) -> Group:
    """Attempts as of a language policy: prompt, then sampled tokens with their log-probabilities."""
    id = rng.bytes(16).hex()
    sampled = np.arange(length) >= min(PROMPT, length // 2)

    def attempt(index: int) -> Trajectory:
        tokens = Tokens(
            rng.integers(0, VOCABULARY, length, np.int32),
            sampled,
            np.where(sampled, -rng.exponential(0.5, length), 0).astype(np.float32),
            np.where(sampled, 0, -1).astype(np.int32),
        )
        reward = Reward(1.0, {"correctness": 1.0}, 1.0)
        return Trajectory(
            id=f"{id}-{index}",
            task=TASK,
            turns=(Turn((), "", reward, tokens),),
            end=End.TERMINATED,
            reward=reward,
            group=id,
            group_size=size,
            first_version=0,
            last_version=0,
        )

    return Group(id, tuple(attempt(index) for index in range(size)))


def _to_scored_data(group: Group) -> dict[str, Any]:
    """The group as an Atropos environment holds it: lists of numbers."""
    columns = [attempt.tokens for attempt in group.trajectories if attempt.tokens is not None]
    return {
        "tokens": [t.ids_T.tolist() for t in columns],
        "masks": [np.where(t.mask_T, t.ids_T, -100).tolist() for t in columns],
        "scores": [attempt.reward.total for attempt in group.trajectories],
        "inference_logprobs": [np.where(t.mask_T, t.logprobs_T, 1.0).tolist() for t in columns],
    }


def _serve_hub(port: int, file: str) -> None:
    from loomrl.http.listen import open_door
    from loomrl.hub.http import serve_hub

    serve_hub(_open(Path(file)), open_door(port=port))


def _serve_json(port: int) -> None:
    """Atropos' ingestion: FastAPI, a pydantic model of lists, a queue in memory."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    class ScoredData(BaseModel):
        tokens: list[list[int]]
        masks: list[list[int]]
        scores: list[float]
        advantages: list[list[float]] | None = None
        ref_logprobs: list[list[float]] | None = None
        inference_logprobs: list[list[float]] | None = None
        messages: list[list[dict[str, Any]]] | None = None
        env_id: int | None = None

    app = FastAPI()
    queue: list[dict[str, Any]] = []

    @app.post("/scored_data")
    async def scored_data(data: ScoredData) -> dict[str, str]:
        queue.append({name: getattr(data, name) for name in ScoredData.model_fields})
        return {"status": "received"}

    uvicorn.run(
        Admission(app, site=Site(), token=None), host="127.0.0.1", port=port, log_level="warning", access_log=False
    )


@contextmanager
def _spawn(serve: Callable[..., None], *arguments: str) -> Iterator[str]:
    """The address of a server in a process of its own, within this context."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(port, *arguments), daemon=True)
    server.start()
    try:
        _wait_for(port, server.is_alive)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.join()


def _wait_for(port: int, alive: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while alive() and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise LoomError("The server of the benchmark did not start: its own message is above.")
