"""Two runs on the same tasks: the difference, when it is decided, and what cannot be compared."""

import math
from pathlib import Path

import numpy as np
import pytest

from loomrl.errors import ConfigError
from loomrl.experiments.compare import compare
from loomrl.experiments.fork import fork
from loomrl.experiments.train import train
from loomrl.release.paired import bound_mean
from loomrl.store import open_store
from loomrl.store.runs import RUNS
from tests.algorithms.control_support import MARKS
from tests.algorithms.language_support import experiment as language
from tests.experiments.test_fork import SHORT, control

pytestmark = [pytest.mark.system, *MARKS]


def test_bounds_of_a_mean_hold_at_every_look_and_shrink() -> None:
    chance = np.random.default_rng(7)
    missed = 0
    for values in chance.normal(0.3, 2.0, (300, 60)):
        bounds = [bound_mean(values[:count].tolist()) for count in range(1, 61)]
        missed += any(not low <= 0.3 <= high for low, high in bounds)
    assert missed <= 0.05 * 300
    assert bounds[0] == (-math.inf, math.inf)
    assert bounds[59][1] - bounds[59][0] < 5
    assert bound_mean([1.0] * 5) == bound_mean([0.0] * 50) == (-math.inf, math.inf)
    assert bound_mean([1.0] * 6) == (1.0, 1.0)


def test_runs_of_control_are_compared_until_it_is_decided(tmp_path: Path) -> None:
    settings = control(tmp_path)
    train(settings, run="a")
    found = compare(settings.store_url, "a/0", "a", ["evaluation.episodes=200"])
    assert (found.metric, found.unit) == ("return", "task")
    assert found.pairs < found.of == 200
    assert found.low is not None
    assert 0 < found.low <= found.difference
    with open_store(settings.store_url) as db:
        assert RUNS.require(db, found.run).result["comparison"]["difference"] == found.difference


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.slow
def test_a_fork_of_language_plays_the_same_tasks_with_the_same_random_numbers(tmp_path: Path) -> None:
    settings = language(tmp_path, "grpo", **SHORT | {"train.updates": 3})
    train(settings, run="a")
    child, run = fork(settings.store_url, "a@2", ["algorithm.optimizer.learning_rate=1e-5"], run="b")
    train(child, run=run)
    equal = compare(settings.store_url, "a/2", "b/2", ["evaluation.episodes=32", "evaluation.attempts=2"])
    assert (equal.pairs, equal.difference, equal.means[0]) == (32, 0.0, equal.means[1])
    found = compare(settings.store_url, "a", "b", ["evaluation.episodes=32"])
    assert (found.unit, found.pairs) == ("task", 32)
    assert found.low is not None
    assert found.low <= found.difference <= found.high


def test_sets_of_seeds_are_compared_seed_by_seed(tmp_path: Path) -> None:
    settings = control(tmp_path, **{"train.steps": 512, "train.checkpoint_every": 512})
    for seed in (1, 2, 3):
        train(settings.override({"seed": seed}), run=f"a{seed}")
    found = compare(settings.store_url, "a1/0,a2/0,a3/0", "a1,a2,a3", ["evaluation.episodes=8"])
    assert (found.unit, found.pairs, found.of) == ("seed", 3, 3)
    assert found.difference == pytest.approx(sum(found.by_seed) / 3)
    assert found.low is not None
    assert found.low < found.difference < found.high
    for names, said in {
        ("a1", "a1"): "is named twice",
        ("a1,a2", "a3"): "2 runs against 1",
        ("a1", "nothing"): "run name='nothing' is unknown",
    }.items():
        with pytest.raises(ConfigError, match=said):
            compare(settings.store_url, *names)


def test_runs_of_other_environments_or_tasks_are_refused(tmp_path: Path) -> None:
    settings = control(tmp_path, **{"train.steps": 256})
    for run, changes in {
        "a": {},
        "b": {"environment.settings.steps": 4},
        "c": {"evaluation.seed": 9},
        "d": {"environment.entry_point": "tests.algorithms.control_envs:Echo"},
    }.items():
        train(settings.override(changes), run=run)
    for other in ("b", "d"):
        with pytest.raises(ConfigError, match=r"trained in other environments: .*Identity.*--policy A --policy B"):
            compare(settings.store_url, "a", other)
    with pytest.raises(ConfigError, match=r"evaluation.seed is 0 for a/.* and 9 for c/.*evaluation.seed=0"):
        compare(settings.store_url, "a", "c")
    assert compare(settings.store_url, "a", "c", ["evaluation.seed=1"]).difference == 0
    with pytest.raises(ConfigError, match=r"seed=2: only evaluation.… can be said"):
        compare(settings.store_url, "a", "c", ["seed=2"])
