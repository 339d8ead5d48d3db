"""A language policy so small that an update takes milliseconds."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.sample import REWARD
from loomrl.config import Experiment
from loomrl.hub import EVERYTHING, Selection, open_hub
from loomrl.store import beside
from loomrl.telemetry.metric import Metric
from loomrl.types import Trajectory

QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
RAY = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster"), QUIET]
"""Marks of tests with an algorithm of RLlib, which warns about itself; on a Ray of their own."""
Weights = dict[str, Any]
LOSSES = (
    Metric.POLICY_LOSS,
    Metric.VALUE_LOSS,
    Metric.VALUE_DISAGREEMENT,
    Metric.POLICY_ENTROPY,
    Metric.GRADIENT_NORM,
    Metric.POLICY_DRIFT,
)
ENVIRONMENTS = "tests.algorithms.language_envs:"
ASCII = "tests.algorithms.language_envs:AsciiEnvironment"


def experiment(folder: Path, kind: str = "grpo", **changes: Any) -> Experiment:
    base = Experiment.parse(
        {
            "name": "small",
            "seed": 3,
            "environments": [{"id": ASCII}],
            "algorithm": {
                "kind": kind,
                "model": {
                    "build": {"hidden_size": 32, "intermediate_size": 64, "layers": 1, "heads": 2, "vocabulary": 270},
                    "context": 128,
                },
                "sampling": {"max_tokens": 6},
                "optimizer": {"learning_rate": 1e-2},
            },
            "rollout": {"groups_per_update": 8, "group_size": 8},
            "train": {"updates": 6, "checkpoint_every": 2, "folder": str(folder / "runs")},
            "evaluation": {"episodes": 32, "levels": [1]},
            "store_url": f"sqlite:///{folder}/loom.db",
            "artifact_url": str(folder / "artifacts"),
        }
    )
    return base.override(changes)


def build(folder: Path, kind: str = "grpo", *, run: str = "r", **changes: Any) -> Any:
    return LanguageConfig.of(experiment(folder, kind, **changes), run=run).build_algo()


def embedded(experiment: Experiment) -> Experiment:
    """With an engine in every runner, where it has vLLM's, which take a minute to start."""
    if experiment.engine.kind != "vllm":
        return experiment
    tree = experiment.model_dump(mode="json") | {"engine": {"kind": "torch"}}
    tree["placement"]["engine"] = {}
    return Experiment.parse(tree, origin=experiment.name)


def weights(algo: Any) -> Weights:
    return {name: tensor.float().numpy() for name, tensor in algo.weights().items()}


def same(left: Weights, right: Weights) -> bool:
    """Bit for bit."""
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def train(algo: Any, updates: int | None = None) -> list[dict[str, float]]:
    """Updates until the run is over, or so many; their metrics."""
    history: list[dict[str, float]] = []
    algo.listen = lambda done, metrics: history.append(dict(metrics))
    while algo.stopped is None and (updates is None or len(history) < updates):
        algo.train()
    return history


def timeless(line: dict[str, float]) -> dict[str, float]:
    """The metrics that do not depend on time."""
    return {str(name): value for name, value in line.items() if not name.startswith(("time", "throughput"))}


def learn(algo: Any, metric: Metric = Metric.SUCCESS, gain: float = 0.12) -> list[dict[str, float]]:
    """Train until the metric has risen so much, from the first two updates to the last two."""
    history = train(algo, 4)
    first = np.mean([line[metric] for line in history[:2]])
    while np.mean([line[metric] for line in history[-2:]]) <= first + gain:
        assert algo.stopped is None, [line[metric] for line in history]
        history += train(algo, 1)
    return history


def finish(algo: Any, updates: int | None = None) -> Weights:
    """The weights after training, and the algorithm stopped."""
    train(algo, updates)
    found = weights(algo)
    algo.stop()
    return found


def resumes(folder: Path, kind: str = "ppo", *, stops: int = 3, **changes: Any) -> None:
    """A run that stops after so many of its updates and is resumed ends with the weights of one that never stopped."""
    changes = {"train.updates": 4, **changes}
    whole = finish(build(folder / "whole", kind, **changes))
    finish(build(folder / "parts", kind, **changes), stops)
    assert same(whole, finish(build(folder / "parts", kind, **changes)))


def stored(folder: Path, selection: Selection = EVERYTHING) -> list[Trajectory]:
    """The attempts that run r has on record."""
    given = experiment(folder)
    with open_hub(beside(given.store_url, "r"), given.hub) as hub:
        return [trajectory for _, trajectory in hub.replay(selection=selection)]


def shuffled(samples_of: Callable[..., Any]) -> Callable[..., Any]:
    """`samples_of`, with what the attempts of an update earned dealt out anew among them."""
    rng = random.Random(0)

    def dealt_anew(*args: Any, **kwargs: Any) -> Any:
        samples, names = samples_of(*args, **kwargs)
        totals = [float(sample.columns[REWARD].sum()) for sample in samples]
        rng.shuffle(totals)
        for sample, total in zip(samples, totals, strict=True):
            sample.columns[REWARD][:] = 0
            sample.columns[REWARD][sample.mask_T.nonzero()[0][-1]] = total
        return samples, names

    return dealt_anew


def parameters(algo: Any) -> list[dict[str, torch.Tensor]]:
    """The parameters of every learner."""
    results = algo.learner_group.foreach_learner(
        lambda learner: {name: p.detach().cpu().clone() for name, p in learner._own.named_parameters()}
    )
    return [result.get() for result in results]


def learn_alike(one: Any, apart: Any) -> None:
    """Learners elsewhere have the losses of one in this process, and the same parameters on every rank."""
    first, same = (train(algo, 1)[0] for algo in (one, apart))
    for name in (name for name in LOSSES if name in first):
        assert same[name] == pytest.approx(first[name], abs=1e-5), name
    train(apart, 1)
    left, *others = parameters(apart)
    assert len(others) == apart.config.num_learners - 1
    for right in others:
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)
    assert any(not torch.equal(left[name], tensor) for name, tensor in parameters(one)[0].items())
