"""A language policy so small that an update takes milliseconds."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.sample import REWARD
from loomrl.config import Experiment

QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
RAY = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster"), QUIET]
"""Marks of tests with an algorithm of RLlib, which warns about itself; on a Ray of their own."""
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


def weights(algo: Any) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in algo._weights().items()}


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
