"""Rewards: trajectories judged per second, and milliseconds from feedback on record to its reward on record.

The hub, the database and the step are the real ones; latency is that of `loomrl rewards run` in a process of its own,
while further trajectories come in. Code quality and judges are not part of it: no trajectory has code.
"""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loomrl.config import HubConfig, RewardPipeline
from loomrl.experiments.bench.model import machine
from loomrl.feedback.reward.judging import open_judging
from loomrl.hub.hub import Hub
from loomrl.serving.archive import open_endpoint_hub
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.feedback import append_feedback
from loomrl.store.rewards import latest_rewards
from loomrl.types import End, Feedback, Message, Reward, Source, Task, Tokens, Trajectory, Turn

ENDPOINT = "talk"
TURNS, TOKENS = 3, 64
TOLD_EVERY = 3
"""Every third trajectory has feedback."""
LOOK_S = 0.001
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a measurement."""

    trajectories: int = 30_000
    words: int = 200
    """Rows of feedback of which the latency is measured."""
    pause_s: float = 0.05
    arriving: int = 20
    """Trajectories that come in during each pause."""


FULL = Size()
QUICK = Size(trajectories=600, words=5, arriving=2)


def measure(size: Size = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench rewards`."""
    figures: dict[str, Any] = {"trajectories": size.trajectories, "turns": TURNS}
    for prefix, has_tokens in (("", False), ("with_tokens_", True)):
        with tempfile.TemporaryDirectory(prefix="loomrl-bench-") as name:
            found = _rate(f"sqlite:///{name}/loom.db", size, has_tokens=has_tokens)
            figures |= {f"{prefix}{figure}": value for figure, value in found.items()}
    with tempfile.TemporaryDirectory(prefix="loomrl-bench-") as name:
        figures |= _latency(f"sqlite:///{name}/loom.db", Path(name), size)
    return figures | {"machine": machine("cpu")}


def _rate(url: str, size: Size, *, has_tokens: bool) -> dict[str, float]:
    with open_store(url) as db:
        with open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub:
            _fill(db, hub, size.trajectories, has_tokens=has_tokens)
        with open_judging(db, url, ENDPOINT, RewardPipeline()) as judging:
            wall, cpu = time.perf_counter(), time.process_time()
            done = judging.drain()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert done.rewards == size.trajectories
    return {"rewards_per_s": round(done.rewards / wall), "rewards_per_cpu_s": round(done.rewards / cpu)}


def _latency(url: str, folder: Path, size: Size) -> dict[str, float]:
    with open_store(url) as db, open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub:
        set_endpoint(db, ENDPOINT, [Arm(name="stable", policy="bench")], at=time.time())
        hub.append([trajectory(f"old-{n}") for n in range(size.words)])
        with _judged_by_a_process(url, folder), _arriving(hub, size):
            _await(db, [f"old-{n}" for n in range(size.words)], 0)
            times = [_once(db, n, size.pause_s) for n in range(size.words)]
    ranked = sorted(times)
    p99 = ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
    return {"reward_ms_p50": round(1e3 * statistics.median(ranked), 1), "reward_ms_p99": round(1e3 * p99, 1)}


def _once(db: LoomDB, number: int, pause_s: float) -> float:
    """Seconds from a word of feedback on record to the reward that knows it."""
    time.sleep(pause_s)
    id = f"old-{number}"
    append_feedback(db, [_thumb(f"late-{number}", id)])
    began = time.perf_counter()
    _await(db, [id], 1)
    return time.perf_counter() - began


def _await(db: LoomDB, trajectories: Sequence[str], signals: int) -> None:
    """Return once the rewards that hold know so much feedback."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = latest_rewards(db, trajectories)
        parts = [one.content["components"]["user_feedback"]["evidence"].get("signals", ()) for one in found.values()]
        if len(parts) == len(trajectories) and all(len(part) == signals for part in parts):
            return
        time.sleep(LOOK_S)
    raise RuntimeError(f"no reward within {PATIENCE_S:.0f} s: did `loomrl rewards run` end? Its message stands above.")


@contextmanager
def _judged_by_a_process(url: str, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "loomrl", "rewards", "run", ENDPOINT, "--store", url]
    with (folder / "told").open("wb") as told:
        process = subprocess.Popen(command, stdout=told)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _arriving(hub: Hub, size: Size) -> Iterator[None]:
    """Further trajectories come in, until the block ends."""
    ended = threading.Event()

    def arrive() -> None:
        number = 0
        while not ended.wait(size.pause_s):
            hub.append([trajectory(f"new-{number + n}") for n in range(size.arriving)])
            number += size.arriving

    thread = threading.Thread(target=arrive)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _fill(db: LoomDB, hub: Hub, count: int, *, has_tokens: bool) -> None:
    for first in range(0, count, 1000):
        numbers = range(first, min(count, first + 1000))
        hub.append([trajectory(f"t{n}", has_tokens=has_tokens) for n in numbers])
        append_feedback(db, [_thumb(f"f{n}", f"t{n}") for n in numbers if n % TOLD_EVERY == 0])


def _thumb(id: str, trajectory: str) -> Feedback:
    value = float(hash(id) % 4 > 0)
    return Feedback(id=id, trajectory=trajectory, source="human", kind="thumb", value=value, created_at=time.time())


def trajectory(id: str, *, has_tokens: bool = False) -> Trajectory:
    """A served conversation of a few turns; its length and its outcome depend on the id."""
    rng = np.random.default_rng(abs(hash(id)))
    success = float(rng.integers(2))
    turns = tuple(_turn(rng, has_tokens=has_tokens) for _ in range(TURNS))
    session = {"success": success, "judged": True, "versions": ["bench"], "seconds": float(rng.uniform(1, 5))}
    return Trajectory(
        id=id,
        task=Task(ENDPOINT, "bench", "session", 1, 0),
        turns=turns,
        end=End.TERMINATED,
        reward=Reward(0.0, {}, success),
        group=id,
        source=Source.PRODUCTION,
        extra={"session": session},
    )


def _turn(rng: np.random.Generator, *, has_tokens: bool) -> Turn:
    asked = Message("user", "Tell me about it, and why it is so. " * int(rng.integers(1, 4)))
    action = "It is so because of this and that. " * int(rng.integers(1, 6))
    if not has_tokens:
        return Turn((asked,), action)
    ids_T = rng.integers(0, 50_000, TOKENS).astype(np.int32)
    mask_T = np.arange(TOKENS) >= TOKENS // 3
    versions_T = np.where(mask_T, 7, -1).astype(np.int32)
    logprobs_T = np.where(mask_T, rng.normal(-1, 1, TOKENS), 0).astype(np.float32)
    return Turn((asked,), action, tokens=Tokens(ids_T, mask_T, logprobs_T, versions_T))
