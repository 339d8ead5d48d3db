"""Self-play in a league against a frozen first version, against random moves, and without any reward for play.

All begin with one model that imitated demonstrations, and have as many attempts. Each is then judged as it was trained,
at temperature 1, on the same held-out positions: against scripted players that no training met, and against each
other's last version.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from loomrl.algorithms.language.league import standings
from loomrl.envs.game import GameEnvironment
from loomrl.experiments.evaluate import evaluate_policies
from loomrl.experiments.policies import exported
from loomrl.experiments.shipped import resolve, resolve_language
from loomrl.experiments.train import train
from loomrl.gym.base import Step
from loomrl.run.version import file_of, latest_of
from loomrl.store import open_store
from loomrl.types import Observation, Reward, Task

EXPERIMENT = "language/league_tiny"
TEMPERATURE = 1.0
PAID = 0.6
"""Chance of a reward in the control, about what is won in a training."""


class CoinGame(GameEnvironment):
    """The same games, but a coin decides who is paid for winning."""

    name = "CoinGame"

    async def reset(self, task: Task | None = None) -> Observation:
        """As in the game."""
        self._said: list[str] = []
        return await super().reset(task)

    async def step(self, action: str) -> Step:
        """As in the game, but paid by a coin that follows from what was said."""
        self._said.append(action)
        step = await super().step(action)
        won = float(step.terminated and Random(f"{self._said}").random() < PAID)
        return step._replace(reward=Reward(won, {"correctness": won}, won))


FROZEN = {"kind": "league", "every": 1_000_000, "members": 1, "present_share": 0, "scripted_share": 0}
CONTROL = "coin"
"""Of the first seed only."""
ARMS: Mapping[str, Sequence[str]] = {
    "league": (),
    "frozen": (f"environments.0.settings.opponent={json.dumps(FROZEN)}",),
    "random": ("environments.0.settings.opponent={kind: random}",),
    CONTROL: (f"environments.0.id={__name__}:CoinGame",),
}
HELD_OUT: Mapping[str, Mapping[str, Any]] = {
    "random": {"kind": "random"},
    "mcts-100": {"kind": "mcts", "simulations": 100},
    "minimax-200": {"kind": "minimax", "positions": 200},
}


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    seeds: tuple[int, ...] = (1, 2, 3)
    updates: int = 40
    tasks: int = 400
    """Held-out positions against each opponent."""
    words: tuple[str, ...] = ()
    """Overrides of the experiment."""


FULL = Size()
QUICK = Size(
    seeds=(1,),
    updates=10,
    tasks=4,
    words=("algorithm.warm_start.steps=10", "rollout.group_size=2", "rollout.groups_per_update=2"),
)


def measure(size: Size = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench league`: medians of points over the seeds, and each seed's own."""
    found = []
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as name:
        folder = Path(name)
        begin = _Bench(size, 0, folder).begin()
        for seed in size.seeds:
            found.append(_Bench(size, seed, folder).figures(begin))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    names = [(arm, opponent) for arm, row in found[0]["points"].items() for opponent in row]
    medians = {
        f"{arm}.vs.{other}": statistics.median(one["points"][arm][other] for one in found if arm in one["points"])
        for arm, other in names
        if other != f"policy-{CONTROL}"
    }
    return medians | {"updates": size.updates, "tasks": size.tasks, "seeds_runs": found}


class _Bench:
    """One seed."""

    def __init__(self, size: Size, seed: int, folder: Path) -> None:
        self._size, self._folder, self._seed = size, folder, seed
        self._store = f"sqlite:///{folder}/loom.db"
        self._words = [
            f"seed={seed}", f"store_url={self._store}", f"artifact_url={folder}/artifacts",
            f"train.folder={folder}/runs", "evaluation.episodes=1", *size.words,
        ]  # fmt: skip

    def begin(self) -> Path:
        """The folder of the model that all begin with."""
        self._train("warm", 1)
        return self._exported("warm/0")

    def figures(self, begin: Path) -> dict[str, Any]:
        """Points of every contender against every opponent, the league's own ratings, and the seconds of each arm."""
        policies, seconds = {"first": begin}, {}
        words = [f"algorithm.model.path={begin}", "algorithm.model.build=null", "algorithm.warm_start.steps=0"]
        for arm, own in ARMS.items():
            if arm == CONTROL and self._seed != self._size.seeds[0]:
                continue
            started = time.monotonic()
            self._train(f"{arm}-{self._seed}", self._size.updates, *words, *own)
            seconds[arm] = round(time.monotonic() - started, 1)
            policies[arm] = self._exported(f"{arm}-{self._seed}")
        opponents = dict(HELD_OUT) | {f"policy-{arm}": _played_by(folder) for arm, folder in policies.items()}
        judged = {name: self._judged(policies, opponent) for name, opponent in opponents.items()}
        points = {arm: {name: means[arm] for name, means in judged.items()} for arm in policies}
        return {"seed": self._seed, "points": points, "seconds": seconds, "ratings": self._ratings()}

    def _train(self, run: str, updates: int, *words: str) -> None:
        more = [f"train.updates={updates}", f"train.checkpoint_every={min(10, updates)}"]
        train(resolve([EXPERIMENT, *self._words, *more, *words]), run=run)

    def _exported(self, version: str) -> Path:
        folder = self._folder / version.replace("/", "-")
        with open_store(self._store) as db:
            exported(version, db, folder)
        return folder

    def _judged(self, policies: Mapping[str, Path], opponent: Mapping[str, Any]) -> dict[str, float | None]:
        """Mean points of each policy against this opponent."""
        words = [f"environments.0.settings.opponent={json.dumps(opponent)}", f"evaluation.episodes={self._size.tasks}"]
        experiment = resolve_language([EXPERIMENT, *self._words, *words])
        names = [str(folder) for folder in policies.values()]
        reports = evaluate_policies(experiment, names, temperature=TEMPERATURE).reports
        return {arm: report.overall.success.mean for arm, report in zip(policies, reports, strict=True)}

    def _ratings(self) -> list[dict[str, Any]]:
        with open_store(self._store) as db:
            version = latest_of(f"league-{self._seed}", db)
            state = None if version is None else file_of(version, db, "line.json")
        assert state is not None, "it was trained just now"
        ratings: list[dict[str, Any]] = standings(json.loads(state)["league"])["ratings"]
        return ratings


def _played_by(folder: Path) -> dict[str, Any]:
    """The opponent that is this model."""
    sampling = {"temperature": TEMPERATURE, "max_tokens": 12}
    return {
        "kind": "policy",
        "policy": {"kind": "language", "path": str(folder), "context": 256, "sampling": sampling},
    }
