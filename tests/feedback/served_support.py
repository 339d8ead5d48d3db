"""What a tiny policy was asked in production, and what people thought of it, as the gateway would have left it."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from loomrl.config import DataSelection, Experiment, HubConfig, RolloutConfig
from loomrl.experiments.policies import find_policy, open_policy
from loomrl.feedback.dataset import freeze
from loomrl.gym.curriculum import open_curriculum
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.recording.trajectory import FAMILY
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.feedback import append_feedback
from loomrl.store.rewards import StoredReward, store_rewards
from loomrl.types import Feedback, Reward, Source, Task, Trajectory, Turn
from tests.algorithms.language_support import build, experiment

ENDPOINT = "assistant"


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/loom.db"


def asked(
    folder: Path, given: Experiment, version: str, count: int, *, group: int = 1, seed: int = 0
) -> list[Trajectory]:
    """Attempts of a version at tasks of the experiment, `group` of them at each, judged by the checker."""
    with open_store(url(folder)) as db:
        policy = find_policy(version, db, temperature=1.0).choice
        mixture = open_task_mixture(given, db)
    curriculum, rng = open_curriculum(mixture.families, given.curriculum), random.Random(seed)
    plans = []
    for number in range(count // group):
        member = mixture.member(draw := curriculum.draw(rng))
        for again in range(group):
            id = f"s-{version.replace('/', '-')}-{seed}-{number}-{again}"
            attempt = Attempt(id=id, task=member.task(draw), group=id, version=policy.version)
            plans.append(Plan(attempt=attempt, policy=policy, settings=member.config.settings))

    async def play() -> list[Trajectory]:
        async with LoomRLGym(RolloutConfig(concurrency=128), open_policy=open_policy) as gym:
            return [played async for played in gym.run(plans)]

    order = {plan.attempt.id: at for at, plan in enumerate(plans)}
    return sorted(asyncio.run(play()), key=lambda played: order[played.id])


def as_served(played: Trajectory, version: str, *, told: bool = True) -> Trajectory:
    """The attempt as the session that a gateway would have recorded: nobody judged it, and its task is unknown."""
    family = f"{played.task.environment}/{played.task.family}"
    about = {
        "key": "",
        "ended": "told",
        "judged": False,
        "outcome": {"domain": family} if told else {},
        "arms": ["stable"],
        "versions": [version],
        "calls": [[f"{played.id}.{at}/0" for at, _ in enumerate(played.turns)]],
        "stopped": {},
    }
    return replace(
        played,
        task=Task(ENDPOINT, version, FAMILY, 1, 0),
        turns=tuple(replace(turn, reward=Reward()) for turn in played.turns),
        reward=Reward(),
        source=Source.PRODUCTION,
        run="",
        snapshot="",
        extra={"session": about},
    )


def as_foreign(played: Trajectory) -> Trajectory:
    """The attempt as text that somebody else's agent published."""
    bare = tuple(Turn(turn.observation, turn.action) for turn in played.turns)
    return replace(
        played,
        task=replace(played.task, version="", seed=0),
        turns=bare,
        reward=Reward(),
        source=Source.PRODUCTION,
        first_version=-1,
        last_version=-1,
        extra={},
    )


def store(folder: Path, hub: str, attempts: Sequence[Trajectory]) -> None:
    """Put trajectories into the hub of an endpoint, or of an agent of others (`agent-NAME`)."""
    if hub.startswith("agent-"):
        from loomrl.hub import open_hub
        from loomrl.store import beside

        opened = open_hub(beside(url(folder), hub), HubConfig())
    else:
        opened = open_endpoint_hub(url(folder), hub, HubConfig())
    with opened:
        for first in range(0, len(attempts), 64):
            opened.append(attempts[first : first + 64])


def serve(db: LoomDB, version: str) -> None:
    """Make this version the endpoint's stable policy."""
    set_endpoint(db, ENDPOINT, [Arm(name="stable", policy=version)], at=1.0)


def reward(db: LoomDB, totals: dict[str, float], *, confidence: float = 1.0, round: int = 0) -> None:
    """A reward row for each of these trajectories."""
    rows = [
        StoredReward(
            id=f"reward-{round}-{id}",
            trajectory=id,
            endpoint=ENDPOINT,
            task="",
            total=total,
            confidence=confidence,
            created_at=2.0,
        )
        for id, total in totals.items()
    ]
    store_rewards(db, rows)


def thumbs(db: LoomDB, values: dict[str, float], *, call: Callable[[str], str] = lambda id: "") -> None:
    """A thumb up or down for each of these trajectories."""
    said = [
        Feedback(
            id=f"thumb-{id}", trajectory=id, source="human", kind="thumb", value=value, call=call(id), created_at=3.0
        )
        for id, value in values.items()
    ]
    append_feedback(db, said)


def frozen_production(folder: Path, name: str) -> str:
    """A data set of this name, of what a tiny policy was asked and what people thought of it; its id."""
    algo = build(folder, run="served")
    algo.begin()
    algo.stop()
    played = asked(folder, experiment(folder), "served/0", 32, group=2)
    store(folder, ENDPOINT, [as_served(one, "served/0") for one in played])
    with open_store(url(folder)) as db:
        serve(db, "served/0")
        reward(db, {one.id: one.reward.total for one in played})
        thumbs(db, {one.id: float(number % 2) for number, one in enumerate(played)})
        selection = DataSelection.parse({"name": name, "endpoints": [ENDPOINT], "holdout": 0.0})
        return freeze(db, url(folder), selection, now=4.0).id


def mistaken(success: dict[str, float], *, wrong: float, seed: int = 0) -> dict[str, float]:
    """What people say of answers: right or wrong, and in a share of the cases the opposite of what is true."""
    rng = random.Random(seed)
    return {id: float((value > 0.5) != (rng.random() < wrong)) for id, value in success.items()}


def shuffled(values: dict[str, float], *, seed: int = 0) -> dict[str, float]:
    """The same judgements, dealt out anew."""
    dealt = list(values.values())
    random.Random(seed).shuffle(dealt)
    return dict(zip(values, dealt, strict=True))
