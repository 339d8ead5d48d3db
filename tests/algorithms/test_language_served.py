"""Runs that learn from a frozen data set: by every algorithm, resumed, killed, and honest about what they cannot use."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from loomrl.algorithms.language.algorithm import METRICS
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.config import DataSelection, Experiment
from loomrl.errors import ConfigError, DataError
from loomrl.experiments.data import settled
from loomrl.feedback.dataset import freeze
from loomrl.store import beside, open_store
from loomrl.store.datasets import Dataset, trained_from
from loomrl.store.feedback import append_feedback
from loomrl.store.lineage import lineage
from loomrl.telemetry.metric import Metric
from loomrl.types import Feedback
from tests.algorithms.language_support import build, experiment, weights
from tests.feedback.served_support import as_foreign, as_served, asked, reward, serve, store, thumbs, url

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]
COUNT = 64
ON_POLICY = ("rloo", "grpo", "reinforce", "ppo")
OFF_POLICY = ("kto", "dpo", "raft")


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """A folder in which version r/0 was served, and people said what they thought of it."""
    folder = tmp_path_factory.mktemp("production")
    algo = build(folder)
    algo.warm_up()
    algo.stop()
    played = asked(folder, experiment(folder), "r/0", COUNT, group=4)
    share = {one.id: one.reward.total for one in played}
    store(folder, "assistant", [as_served(one, "r/0") for one in played])
    store(folder, "agent-7", [as_foreign(one) for one in played])
    with open_store(url(folder)) as db:
        serve(db, "r/0")
        reward(db, share)
        thumbs(db, {id: float(value > 0.5) for id, value in share.items()})
    return folder


def data(folder: Path, **selection: Any) -> Dataset:
    with open_store(url(folder)) as db:
        parsed = DataSelection.parse({"endpoints": ["assistant"], "holdout": 0.0, **selection})
        return freeze(db, url(folder), parsed, now=time.time())


def settings(folder: Path, kind: str, dataset: str, **changes: Any) -> Experiment:
    """Three updates of 16 and one of the rest."""
    model = {"algorithm.model.build": None, "algorithm.optimizer.learning_rate": 3e-3}
    more = {"data": {"dataset": dataset, "batch": 16}, "hub.max_staleness": 10}
    if "algorithm.model.lora" not in changes and kind in ("raft",):
        more["algorithm.best"] = 1.0
    tree = experiment(folder).plain
    tree["algorithm"] = {**tree["algorithm"], "kind": kind}
    for name in ("clip", "kl", "entropy_coefficient", "average", "importance_cap", "dynamic_sampling",
                 "normalize_advantages", "scale"):  # fmt: skip
        del tree["algorithm"][name]
    tree["algorithm"]["model"]["build"] = None
    found = settled(Experiment.parse(tree | {"data": {"dataset": dataset, "batch": 16}}).override(model | more | changes))
    assert isinstance(found, Experiment)
    return found


def opened(folder: Path, kind: str, dataset: str, *, run: str, **changes: Any) -> Any:
    return LanguageConfig.of(settings(folder, kind, dataset, **changes), run=run).build_algo()


def train(algo: Any, updates: int | None = None) -> list[dict[str, float]]:
    history: list[dict[str, float]] = []
    while algo.stopped is None and (updates is None or len(history) < updates):
        history.append(algo.train()[METRICS])
    return history


@pytest.mark.parametrize("kind", [*ON_POLICY, *OFF_POLICY])
def test_every_algorithm_learns_from_what_was_served_and_says_from_what(production: Path, kind: str) -> None:
    made = data(production)
    algo = opened(production, kind, made.id, run=f"once-{kind}")
    before = None
    algo.warm_up()
    before = weights(algo)
    history = train(algo)
    after = weights(algo)
    assert len(history) == 4 or kind == "dpo"
    assert algo.stopped == f"1 pass over data set {made.id} done" or algo.stopped.endswith("updates done")
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    if kind in ON_POLICY:
        assert [round(each[Metric.STALENESS_MAX]) for each in history] == [0, 1, 2, 3]
        assert history[0][Metric.POLICY_DRIFT] < 1e-3
    algo.stop()
    with open_store(url(production)) as db:
        tree = lineage(db, f"once-{kind}/{len(history)}")
        assert tree["ancestors"][-1]["id"] == "r/0"
        assert tree["made_from"]["run"]["parent_policy"] == "r/0"
        assert tree["made_from"]["data"]["dataset"] == made.id
        assert f"once-{kind}/{len(history)}" in trained_from(db, made.id)
