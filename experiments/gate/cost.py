"""Costs of policies: latency and tokens side by side, memory each in a process of its own."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomrl.config import EvaluationConfig
from loomrl.config.suite import Suite
from loomrl.errors import PolicyError
from loomrl.experiments.gate.party import Party
from loomrl.gym.held_out import draw_held_out
from loomrl.gym.policy import PolicyFactory
from loomrl.gym.registry import make
from loomrl.gym.task_mixture import TaskMixture
from loomrl.release.gate.cost import Costs
from loomrl.store import LoomDB
from loomrl.types import Task

CHILD_S = 900.0
"""Time limit of a process that measures memory."""


async def side_by_side(
    policies: Mapping[str, PolicyFactory], mixture: TaskMixture, settings: EvaluationConfig
) -> dict[str, Costs]:
    """Each policy's first answers to the same tasks, one at a time and in turns, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in policies}
    tokens: dict[str, list[int]] = {name: [] for name in policies}
    draws = draw_held_out(mixture, settings)
    for index, draw in enumerate([draws[0], *draws]):
        member = mixture.member(draw)
        for name in sorted(policies, reverse=bool(index % 2)):  # neither is always the first
            took, sampled = await answer(policies[name], member.task(draw), member.config.settings)
            if index:
                seconds[name].append(took)
                tokens[name] += [] if sampled is None else [sampled]
    return {name: Costs(seconds=seconds[name], tokens=tokens[name] or None) for name in policies}


async def answer(policy: PolicyFactory, task: Task, settings: Mapping[str, Any]) -> tuple[float, int | None]:
    """Seconds and sampled tokens of the first action of an attempt."""
    environment = make(f"{task.environment}@{task.version}", settings)
    try:
        observation = await environment.reset(task)
        acting = policy(environment, random.Random(task.seed))
        began = time.perf_counter()
        action = await acting.act(observation)
        took = time.perf_counter() - began
    finally:
        await environment.close()
    return took, None if action.tokens is None else int(action.tokens.mask_T.sum())


def turns(acts: Mapping[str, Callable[[Any], Any]], observations: Sequence[Any]) -> dict[str, Costs]:
    """Each policy's actions for the same observations, as `side_by_side`."""
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for index, observation in enumerate([observations[0], *observations]):
        for name in sorted(acts, reverse=bool(index % 2)):
            began = time.perf_counter()
            acts[name](observation)
            if index:
                seconds[name].append(time.perf_counter() - began)
    return {name: Costs(seconds=each) for name, each in seconds.items()}


def memory_of(suite: Suite, parties: Mapping[str, Party | None], db: LoomDB) -> dict[str, float]:
    """Peak memory of each party in megabytes, if the suite limits it."""
    if suite.cost is None or (suite.cost.memory_mb is None and suite.cost.memory_times is None):
        return {}
    return {name: _peak_mb(suite, party, db) for name, party in parties.items() if party is not None}


def _peak_mb(suite: Suite, party: Party, db: LoomDB) -> float:
    """Peak memory of a process that opens the policy and lets it act."""
    asked = {
        "suite": suite.model_dump(mode="json"),
        "policy": party.key,
        "store": db.engine.url.render_as_string(hide_password=False),
    }
    command = [sys.executable, "-m", "loomrl.experiments.gate.memory"]
    try:
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=CHILD_S)
    except subprocess.TimeoutExpired:
        raise PolicyError(f"policy {party.key!r}: its memory could not be measured within {CHILD_S:g} s.") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PolicyError(f"policy {party.key!r}: the process that measures its memory failed: {last}")
    return float(json.loads(done.stdout.splitlines()[-1])["peak_mb"])
