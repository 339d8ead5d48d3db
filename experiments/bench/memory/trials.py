"""Adaptation within an episode (RL²), on held-out tasks: beside a policy without a memory, and beside fine-tuning it.

The control is the same policy where every trial has another task, so that its memory is of no use.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from loomrl.config import ControlExperiment
from loomrl.control.play import Acts
from loomrl.envs.trials.distribution import Tasks
from loomrl.errors import ConfigError, unknown
from loomrl.experiments.algorithms import open_algorithm, ray_running
from loomrl.experiments.bench.memory.arms import KNOWN, pulled
from loomrl.experiments.evaluate_control import played
from loomrl.experiments.shipped import resolve
from loomrl.telemetry.progress import progress

UNSEEN = 1_000_003
"""Seed of the tasks that policies are judged by."""

Score = dict[str, float]
"""Mean return of a trial: of the first ones (a tenth, but at least one), the last ones, and all."""


@dataclass(frozen=True, slots=True)
class Size:
    """Amount of work."""

    seeds: Sequence[int] = (1, 2, 3)
    steps: int | None = None
    """Of each training; None for the shipped ones."""
    episodes: int = 200
    """Held-out tasks that a policy is judged by."""
    tuned: int = 4
    """Held-out tasks that a policy is fine-tuned on, per seed."""
    times: Sequence[int] = (1, 20)
    """Steps of fine-tuning, in lengths of an episode."""
    replays: int = 10
    """Episodes at each of these."""
    bandits: int = 5_000
    """Held-out bandits for the known algorithms."""


FULL = Size()
QUICK = Size(seeds=(1,), steps=800, episodes=4, tuned=1, times=(1,), replays=2, bandits=50)
DOMAINS = ("bandit", "grid", "cartpole")


def measure(size: Size, only: Sequence[str] = ()) -> dict[str, Any]:
    """Medians over seeds, by task and policy; everything of every seed under `seeds_runs`."""
    for domain in only:
        if domain not in DOMAINS:
            raise ConfigError("--only: " + unknown("task", domain, DOMAINS))
    chosen = only or DOMAINS
    runs: dict[str, list[dict[str, Any]]] = {domain: [] for domain in chosen}
    torch.set_num_threads(1)
    with ray_running(2), progress("bench meta", len(chosen) * len(size.seeds)) as report:
        for domain in chosen:
            for seed in size.seeds:
                runs[domain].append(_of_seed(domain, seed, size))
                report(sum(map(len, runs.values())), f"{domain} {seed}")
    figures: dict[str, Any] = {domain: _medians(told) for domain, told in runs.items()}
    if "bandit" in chosen:
        figures["bandit"] |= _known(size)
    return figures | {"seeds_runs": runs}


def _of_seed(domain: str, seed: int, size: Size) -> dict[str, Any]:
    experiment = resolve([f"control/trials_{domain}", f"seed={seed}"])
    assert isinstance(experiment, ControlExperiment), "it ships as one"
    asked: dict[str, Any] = {"evaluation.episodes": size.episodes, "evaluation.seed": UNSEEN}
    experiment = experiment.override(asked | ({} if size.steps is None else {"train.steps": size.steps}))
    plain = experiment.override({"algorithm.network.memory": None})
    with TemporaryDirectory(prefix="loomrl-meta-") as name:
        remembers = _learnt(experiment, Path(name, "memory"))
        forgets = _learnt(plain, Path(name, "plain"))
        told: dict[str, Any] = {
            "memory": _of_trials((outcome := played(remembers, experiment)).trials),
            "another_task_in_every_trial": _score(
                remembers, experiment.override({"evaluation.settings.redraw": "trial"})
            ),
            "no_memory": _score(forgets, plain),
        }
        tasks = [_on_task(experiment, task, size) for task in _tasks(experiment, size.tuned, seed)]
        told["same_tasks"] = {
            "memory": _mean(_score(remembers, task) for task in tasks),
            "no_memory": _mean(_score(forgets, task) for task in tasks),
        }
        length = round(statistics.mean(outcome.lengths))
        for times in size.times:
            tuned = [_tuned(task, Path(name, "plain"), times, length) for task in tasks]
            told["same_tasks"][f"tuned_{times}_episodes"] = _mean(tuned)
    return told | {"episode_steps": length}


def _learnt(experiment: ControlExperiment, folder: Path) -> Acts:
    """The policy after the whole training, whose checkpoint is left in `folder`."""
    algo = open_algorithm(experiment).build_algo()
    while algo.progress < experiment.train.steps:
        algo.train()
    algo.save_to_path(str(folder))
    policy: Acts = algo.policy()
    algo.stop()
    return policy


def _tuned(task: ControlExperiment, folder: Path, times: int, length: int) -> Score:
    """The policy in `folder` after as many more steps at one task as an episode has, or several times as many."""
    fragment = min(length, 100)
    experiment = task.override(
        {
            "algorithm.network.memory": None,
            "algorithm.minibatch_size": fragment,
            "rollout": {"environments": 1, "steps": fragment},
            "train.steps": times * length,
        }
    )
    algo = open_algorithm(experiment).build_algo()
    algo.begin_with(folder)
    while algo.progress < experiment.train.steps:
        algo.train()
    score = _score(algo.policy(), experiment)
    algo.stop()
    return score


def _tasks(experiment: ControlExperiment, count: int, seed: int) -> list[dict[str, Any]]:
    settings, chance = experiment.judged_in.settings, np.random.default_rng([UNSEEN, seed])
    tasks = Tasks(settings["vary"], settings["part"])
    return [tasks.draw(chance) for _ in range(count)]


def _on_task(experiment: ControlExperiment, task: Mapping[str, Any], size: Size) -> ControlExperiment:
    """The same, at one task only."""
    one = {f"environment.settings.vary.{name}": [value] for name, value in task.items()}
    everywhere = {"environment.settings.part": "all", "evaluation.settings": {"part": "all"}}
    return experiment.override({**one, **everywhere, "evaluation.episodes": size.replays})


def _score(policy: Acts, experiment: ControlExperiment) -> Score:
    return _of_trials(played(policy, experiment).trials)


def _of_trials(returns_NT: ArrayLike) -> Score:
    mean_T = np.asarray(returns_NT, np.float64).mean(0)
    ends = max(1, len(mean_T) // 10)
    return {"first": float(mean_T[:ends].mean()), "last": float(mean_T[-ends:].mean()), "all": float(mean_T.mean())}


def _mean(scores: Any) -> Score:
    told = list(scores)
    return {name: statistics.mean(score[name] for score in told) for name in told[0]}


def _medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of every number of a nested table."""
    first = runs[0]
    return {
        name: _medians([run[name] for run in runs])
        if isinstance(value, Mapping)
        else statistics.median(run[name] for run in runs)
        for name, value in first.items()
    }


def _known(size: Size) -> dict[str, Score]:
    """Algorithms for bandits on held-out ones, and the best arm of each."""
    experiment = resolve(["control/trials_bandit"])
    assert isinstance(experiment, ControlExperiment), "it ships as one"
    chances_NK = np.array([task["probabilities"] for task in _tasks(experiment, size.bandits, 0)])
    pulls = experiment.environment.settings["trials"]
    told = {name: _of_trials(pulled(choose, chances_NK, pulls, seed=UNSEEN)) for name, choose in KNOWN.items()}
    return told | {"best_arm": dict.fromkeys(("first", "last", "all"), float(chances_NK.max(1).mean()))}
