"""Token policies as an RLlib algorithm: they learn, resume, restore, and say what went wrong."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray import tune

from loomrl.algorithms.language.algorithm import METRICS, Language
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.artifacts import open_artifacts
from loomrl.errors import ConfigError, HubError, LearnerError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.hub import EVERYTHING, open_hub
from loomrl.run.stopping import Stopper
from loomrl.store import beside, open_store
from loomrl.store.runs import POLICIES, RUNS
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import ASCII, RAY, build, experiment, weights

pytestmark = RAY


SHARED = ("model", "sampling", "optimizer")
FAR = "tests.algorithms.language_envs:FarEnvironment"
MOODY = "tests.algorithms.language_envs:MoodyEnvironment"


def train(algo: Any, updates: int | None = None) -> list[dict[str, float]]:
    """Updates until the run is over, or so many; their metrics."""
    history: list[dict[str, float]] = []
    while algo.stopped is None and (updates is None or len(history) < updates):
        history.append(algo.train()[METRICS])
    return history


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def finish(algo: Any, updates: int | None = None) -> dict[str, Any]:
    """The weights after training, and the algorithm stopped."""
    train(algo, updates)
    found = weights(algo)
    algo.stop()
    return found


@pytest.mark.parametrize("kind", ["ppo", "grpo", "rloo", "reinforce", "dpo"])
def test_every_algorithm_learns_what_is_rewarded(tmp_path: Path, kind: str) -> None:
    algo = build(tmp_path, kind, **{"train.updates": 14})
    history = train(algo)
    algo.stop()
    success = [line[Metric.SUCCESS] for line in history]
    assert np.mean(success[-2:]) > np.mean(success[:2]) + 0.12
    assert history[0].get(Metric.POLICY_DRIFT, 0.0) <= 1e-4


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_answers_learn_from_what_their_turn_earned(tmp_path: Path, kind: str) -> None:
    paid = {"environments": [{"id": "tests.algorithms.language_envs:InstalmentsEnvironment"}], "train.updates": 10}
    algo = build(tmp_path, kind, **paid, **{"algorithm.credit": "turn", "algorithm.model.context": 256})
    earned = [line[Metric.REWARD_TOTAL] for line in train(algo)]
    algo.stop()
    assert np.mean(earned[-2:]) > np.mean(earned[:2]) + 0.15


def test_same_seed_gives_bit_identical_weights_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        finish(build(tmp_path / name, "ppo", seed=seed)) for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("kind", ["ppo", "grpo", "rloo", "reinforce"])
def test_answers_that_were_cut_off_may_be_left_out_by_every_algorithm(tmp_path: Path, kind: str) -> None:
    """Untrained, a policy that may write 200 tokens ends some of its answers and is cut off in others."""
    long = {"algorithm.sampling.max_tokens": 110, "algorithm.cut_off": "skip", "train.updates": 2}
    history = train(algo := build(tmp_path / "some", kind, **long))
    algo.stop()
    assert {line[Metric.GROUPS_DROPPED] for line in history} == {0.0}
    assert all(np.isfinite(list(line.values())).all() for line in history)
    every = {"algorithm.sampling.max_tokens": 1, "algorithm.cut_off": "skip", "train.updates": 1}
    history = train(algo := build(tmp_path / "all", kind, **every))
    algo.stop()
    assert history[0][Metric.GROUPS_DROPPED] == 8.0


def test_more_attempts_than_the_hub_takes_at_once_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = finish(build(tmp_path / "whole"), updates=2)
    for place in ("loomrl.hub.queue", "loomrl.algorithms.language.collector"):
        monkeypatch.setattr(f"{place}.MOST_AT_ONCE", 13)
    assert same(whole, finish(build(tmp_path / "parts"), updates=2))


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm.optimizer.epochs": 2, "algorithm.optimizer.minibatches": 2},
        {"algorithm.kl.coefficient": 0.1, "curriculum": {"kind": "adaptive"}},
        {"rewards": {"adaptation": 0.5, "parts": [{"kind": "novelty"}, {"kind": "efficiency"}]}},
        {"algorithm.optimizer.schedule": {"kind": "adaptive"}, "algorithm.kl": {"coefficient": 0.1, "place": "reward"}},
    ],
)
def test_resumed_run_equals_one_that_never_stopped(tmp_path: Path, changes: dict[str, Any]) -> None:
    whole = finish(build(tmp_path / "whole", "ppo", **changes))
    finish(build(tmp_path / "parts", "ppo", **changes), updates=4)
    assert same(whole, finish(build(tmp_path / "parts", "ppo", **changes)))


@pytest.mark.slow
def test_update_after_the_last_checkpoint_is_made_again_from_the_same_attempts(tmp_path: Path) -> None:
    whole = finish(build(tmp_path / "whole"))
    finish(build(tmp_path / "parts"), updates=3)
    assert same(whole, finish(build(tmp_path / "parts")))
    with open_hub(beside(f"sqlite:///{tmp_path}/parts/loom.db", "r"), experiment(tmp_path).hub) as hub:
        line = hub.stats().environments["Ascii"]
        acked = [trajectory.id for _, trajectory in hub.replay()]
    assert len(acked) == len(set(acked)) == 6 * 64 == line.trajectories
    assert (line.acked, line.open + line.ready + line.leased) == (48, 0)


@pytest.mark.parametrize("leases", ["held", "expired"])
@pytest.mark.slow
def test_several_updates_after_the_last_checkpoint_are_made_again_one_by_one(tmp_path: Path, leases: str) -> None:
    changes = {"environments": [{"id": ASCII, "weight": 3}, {"id": FAR}], "train.checkpoint_every": 6}
    whole = finish(build(tmp_path / "whole", "ppo", **changes))
    finish(build(tmp_path / "parts", "ppo", **changes), updates=4)
    if leases == "expired":
        with open_hub(beside(f"sqlite:///{tmp_path}/parts/loom.db", "r"), experiment(tmp_path).hub) as hub:
            for update in range(4):
                hub.release(f"r/{update}/0")
    assert same(whole, finish(build(tmp_path / "parts", "ppo", **changes)))


def test_rllib_checkpoint_restores_into_a_run_of_its_own(tmp_path: Path) -> None:
    algo = build(tmp_path)
    train(algo, 2)
    algo.save_to_path(str(tmp_path / "checkpoint"))
    whole = finish(algo)
    restored = Language.from_checkpoint(str(tmp_path / "checkpoint"))
    assert restored.source.run != "r"
    assert restored.training_iteration == 2
    assert same(whole, finish(restored))
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        first = min(POLICIES.latest(db, run=restored.source.run), key=lambda version: version.number)
    assert first.parent == "r/2"


def test_checkpoint_of_another_experiment_is_refused(tmp_path: Path) -> None:
    algo = build(tmp_path / "a")
    algo.save_to_path(str(tmp_path / "checkpoint"))
    other = build(tmp_path / "b", seed=9)
    with pytest.raises(ConfigError, match="the checkpoint is of experiment"):
        other.restore_from_path(str(tmp_path / "checkpoint"))


def test_best_and_last_checkpoint_are_kept_and_every_version_has_its_parent(tmp_path: Path) -> None:
    algo = build(tmp_path, **{"train.stop.window": 2})
    train(algo)
    kept = {0, *algo.kept.values()}
    algo.stop()
    names = open_artifacts(str(tmp_path / "artifacts")).list_names("runs/r")
    assert {int(name.rpartition("/")[2]) for name in names} == kept >= {6}
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        versions = POLICIES.latest(db, run="r")
    assert [(v.number, v.parent) for v in versions] == [(6, "r/4"), (4, "r/2"), (2, "r/0"), (0, None)]


@pytest.mark.parametrize(("successes", "best"), [([0.2, 0.1, 0.9, 0.5], 4), ([0.2, 0.6, 0.9, 0.5], 2)])
def test_the_best_is_the_best_of_the_checkpoints_also_where_updates_between_them_were_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, successes: list[float], best: int
) -> None:
    observe = Stopper.observe
    given = iter(successes)
    monkeypatch.setattr(Stopper, "observe", lambda stopper, success, kl: observe(stopper, next(given), kl))
    algo = build(tmp_path, **{"train.stop.window": 1, "train.updates": 4})
    train(algo)
    assert algo.kept == {"best": best, "last": 4}


def test_evaluation_is_on_held_out_tasks_and_changes_nothing(tmp_path: Path) -> None:
    whole = finish(build(tmp_path / "a"))
    algo = build(tmp_path / "b")
    train(algo, 2)
    assert 0 < algo.evaluate()["env_runners"]["success"] < 1
    assert same(whole, finish(algo))


@pytest.mark.slow  # test_language_learners.py has the quick one, of two learners
def test_remote_runners_and_learners_learn_as_one_process_does(tmp_path: Path) -> None:
    few = {"environments": [{"id": FAR}], "train.updates": 3}
    spread = finish(build(tmp_path / "spread", "ppo", **few, **{"rollout.runners": 1, "algorithm.learners.count": 2}))
    alone = finish(build(tmp_path / "alone", "ppo", **few))
    assert all(np.allclose(alone[name], spread[name], atol=2e-3) for name in alone)


@pytest.mark.slow
def test_sharded_learners_resume_as_if_they_never_stopped(tmp_path: Path) -> None:
    changes = {"algorithm.learners": {"count": 2, "sharding": "fsdp"}, "algorithm.kl.coefficient": 0.1}
    whole = finish(build(tmp_path / "whole", "ppo", **changes))
    finish(build(tmp_path / "parts", "ppo", **changes), updates=4)
    again = finish(build(tmp_path / "parts", "ppo", **changes))
    assert all(np.allclose(whole[name], again[name], atol=1e-6) for name in whole)
    alone = finish(build(tmp_path / "alone", "ppo", **{"algorithm.kl.coefficient": 0.1}))
    assert all(np.allclose(whole[name], alone[name], atol=2e-3) for name in alone)


@pytest.mark.slow
def test_low_rank_additions_learn_and_the_engine_acts_with_them(tmp_path: Path) -> None:
    algo = build(tmp_path, **{"algorithm.model.lora": {"rank": 4, "alpha": 16}, "train.updates": 10})
    before = weights(algo)
    history = train(algo)
    after = weights(algo)
    algo.stop()
    assert history[-1][Metric.SUCCESS] > history[0][Metric.SUCCESS]
    assert before.keys() == after.keys()
    assert max(line[Metric.POLICY_DRIFT] for line in history) <= 1e-4


@pytest.mark.slow
def test_environment_that_raises_or_hangs_is_quarantined_and_the_rest_is_learnt(tmp_path: Path) -> None:
    changes = {
        "environments": [{"id": MOODY, "families": ["plain", "raises", "hangs"]}],
        "rollout.turn_timeout_s": 0.8,
        "rollout.quarantine": {"window": 8},
    }
    algo = build(tmp_path, **changes)
    history = train(algo)
    assert {case.name for case in algo.source.tasks.quarantine.cases} == {"Moody/raises", "Moody/hangs"}
    algo.stop()
    assert history[0][Metric.FAILURES] > 0 == history[-1][Metric.FAILURES]
    assert all(line[Metric.SUCCESS] > 0.3 for line in history)


@pytest.mark.slow
def test_runner_that_dies_is_replaced_and_its_attempts_are_made_again(tmp_path: Path) -> None:
    changes = {"rollout.runners": 2, "train.updates": 3}
    whole = finish(build(tmp_path / "whole", **changes))
    algo = build(tmp_path / "killed", **changes)
    train(algo, 1)
    for actor in algo.env_runner_group._worker_manager.actors().values():
        ray.kill(actor, no_restart=False)
    assert train(algo, 1)[0][Metric.FAILURES] == 0
    assert same(whole, finish(algo))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["dies", "freezes"])
def test_family_that_takes_its_runner_along_costs_one_timeout_and_is_quarantined(tmp_path: Path, family: str) -> None:
    changes = {
        "environments": [{"id": MOODY, "families": ["plain", family]}],
        "rollout.runners": 1,
        "rollout.quarantine": {"window": 8},
        "hub.group_timeout_s": 20.0,  # in which another runner starts, on a busy machine too
        "train.updates": 3,
    }
    algo = build(tmp_path, **changes)
    algo.begin()
    begun = time.monotonic()
    history = train(algo)
    assert time.monotonic() - begun < 150
    assert [case.name for case in algo.source.tasks.quarantine.cases] == [f"Moody/{family}"]
    algo.stop()
    assert history[0][Metric.FAILURES] > 0 == history[-1][Metric.FAILURES]
    assert all(line[Metric.SUCCESS] > 0.3 for line in history)


def test_loss_that_is_no_number_stops_the_run_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    algo = build(tmp_path, **{"algorithm.entropy_coefficient": 1e38, "algorithm.optimizer.epochs": 2})
    with pytest.raises(LearnerError, match="learning_rate"):
        train(algo)
    algo.stop()
    assert open_artifacts(str(tmp_path / "artifacts")).list_names("runs/r") == ["runs/r/000000"]


def test_context_overflow_is_a_counted_failure_and_never_a_reward(tmp_path: Path) -> None:
    algo = build(tmp_path, **{"algorithm.model.context": 20})
    with pytest.raises(HubError, match=r"no group can be trained.*failed said: policy: context=20 tokens are too few"):
        train(algo)
    with open_hub(beside(f"sqlite:///{tmp_path}/loom.db", "r"), experiment(tmp_path).hub) as hub:
        failures = {t.failure.boundary for _, t in hub.replay(selection=EVERYTHING) if t.failure}
    algo.stop()
    assert failures == {"policy"}


def test_model_path_that_is_no_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        build(tmp_path, **{"algorithm.model": {"path": str(tmp_path), "build": None}})


def test_algorithm_of_your_own_comes_by_entry_point(tmp_path: Path) -> None:
    settings = {key: value for key, value in experiment(tmp_path).model_dump()["algorithm"].items() if key in SHARED}
    own = {"kind": "custom", "entry_point": "tests.algorithms.own_algorithm:BestConfig", "settings": settings}
    algo = open_algorithm(experiment(tmp_path, algorithm=own, **{"train.updates": 14})).build_algo()
    success = [line[Metric.SUCCESS] for line in train(algo)]
    algo.stop()
    assert np.mean(success[-2:]) > np.mean(success[:2]) + 0.12


def test_setting_is_changed_by_its_path(tmp_path: Path) -> None:
    config = LanguageConfig.of(experiment(tmp_path, "ppo", **{"train.updates": 1}))
    config.changes["algorithm.optimizer.learning_rate"] = 2e-3
    algo = config.build_algo()
    (metrics,) = train(algo)
    algo.stop()
    assert metrics[Metric.LEARNING_RATE] == pytest.approx(2e-3)


@pytest.mark.slow
def test_tune_searches_any_setting_by_its_path(tmp_path: Path) -> None:
    config = LanguageConfig.of(experiment(tmp_path, "ppo", **{"train.updates": 2}))
    config.changes["algorithm.optimizer.learning_rate"] = tune.grid_search([1e-3, 1e-2])
    run = tune.RunConfig(stop={"training_iteration": 2}, storage_path=str(tmp_path / "tune"), verbose=0)
    results = tune.Tuner(Language, param_space=config, run_config=run).fit()
    assert not results.errors
    assert {round(result.metrics[METRICS][Metric.LEARNING_RATE], 6) for result in results} == {1e-3, 1e-2}
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        assert len({run.experiment for run in RUNS.latest(db, kind="train")}) == 2
