"""Token policies as an RLlib algorithm: they learn, resume, restore, and say what went wrong."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray import tune

from loomrl.algorithms.language.algorithm import METRICS, Language
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.evaluations import Evaluations
from loomrl.artifacts import open_artifacts
from loomrl.errors import ConfigError, HubError, LearnerError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.hub import open_hub
from loomrl.run.stopping import Stopper
from loomrl.store import beside, open_store
from loomrl.store.runs import POLICIES, RUNS
from loomrl.telemetry.metric import Metric
from loomrl.types import Trajectory
from tests.algorithms.language_support import (
    ASCII,
    ENVIRONMENTS,
    RAY,
    build,
    experiment,
    finish,
    learn,
    learn_alike,
    parameters,
    resumes,
    same,
    stored,
    timeless,
    train,
    weights,
)

pytestmark = RAY


FAR = f"{ENVIRONMENTS}FarEnvironment"
MOODY = f"{ENVIRONMENTS}MoodyEnvironment"


@pytest.mark.parametrize(
    "kind", ["ppo", "grpo", "dpo", *(pytest.param(k, marks=pytest.mark.slow) for k in ("rloo", "reinforce"))]
)
def test_every_algorithm_learns_what_is_rewarded(tmp_path: Path, kind: str) -> None:
    history = learn(build(tmp_path, kind, **{"train.updates": 14}))
    assert history[0].get(Metric.POLICY_DRIFT, 0.0) <= 1e-4


def test_answers_learn_from_what_their_turn_earned(tmp_path: Path) -> None:
    paid = {"environments": [{"id": f"{ENVIRONMENTS}InstalmentsEnvironment"}], "train.updates": 10}
    algo = build(tmp_path, **paid, **{"algorithm.credit": "turn", "algorithm.model.context": 256})
    learn(algo, Metric.REWARD_TOTAL, 0.15)


def test_same_seed_gives_bit_identical_weights_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        finish(build(tmp_path / name, "ppo", seed=seed), 2) for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_answers_that_were_cut_off_may_be_left_out(tmp_path: Path, kind: str) -> None:
    """Untrained, a policy that may write 200 tokens ends some of its answers and is cut off in others."""
    for longest, dropped in ((110, 0.0), (1, 8.0)):
        changes = {"algorithm.sampling.max_tokens": longest, "algorithm.cut_off": "skip"}
        (line,) = train(build(tmp_path / f"{longest}", kind, **changes), 1)
        assert line[Metric.GROUPS_DROPPED] == dropped
        assert not dropped or np.isfinite(list(line.values())).all()


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
        {
            "algorithm.optimizer": {"learning_rate": 1e-2, "epochs": 2, "minibatches": 2},
            "algorithm.kl.coefficient": 0.1,
            "curriculum": {"kind": "adaptive"},
        },
        {
            "algorithm.optimizer.schedule": {"kind": "adaptive"},
            "algorithm.kl": {"coefficient": 0.1, "place": "reward"},
            "rewards": {"adaptation": 0.5, "parts": [{"kind": "novelty"}, {"kind": "efficiency"}]},
        },
    ],
)
def test_resumed_run_equals_one_that_never_stopped(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The update after the last checkpoint is made again, from the same attempts."""
    resumes(tmp_path, **changes)
    with open_hub(beside(f"sqlite:///{tmp_path}/parts/loom.db", "r"), experiment(tmp_path).hub) as hub:
        line = hub.stats().environments["Ascii"]
        acked = [trajectory.id for _, trajectory in hub.replay()]
    assert len(acked) == len(set(acked)) == 4 * 64 == line.trajectories
    assert (line.acked, line.open + line.ready + line.leased) == (32, 0)


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
    algo = build(tmp_path, **{"train.updates": 4})
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
    with pytest.raises(ConfigError, match="the checkpoint is of experiment"):
        build(tmp_path / "b", seed=9).restore_from_path(str(tmp_path / "checkpoint"))


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
    whole = finish(build(tmp_path / "a"), 2)
    algo = build(tmp_path / "b")
    train(algo, 1)
    assert 0 < algo.evaluate()["env_runners"]["success"] < 1
    assert same(whole, finish(algo, 1))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}], ids=["all weights", "lora"])
def test_sharded_learners_resume_as_if_they_never_stopped(
    tmp_path: Path, lora: dict[str, int] | None, dtype: str
) -> None:
    alike = {"algorithm.kl.coefficient": 0.1, "algorithm.model.dtype": dtype, "algorithm.model.lora": lora}
    changes = {"algorithm.learners": {"count": 2, "sharding": "fsdp"}, **alike}
    whole = finish(build(tmp_path / "whole", "ppo", **changes))
    finish(build(tmp_path / "parts", "ppo", **changes), updates=4)
    again = finish(build(tmp_path / "parts", "ppo", **changes))
    assert all(np.allclose(whole[name], again[name], atol=1e-6) for name in whole)
    if dtype == "float32":  # in bfloat16 other sums sample other tokens, and from then on all is different
        alone = finish(build(tmp_path / "alone", "ppo", **alike))
        assert all(np.allclose(whole[name], alone[name], atol=2e-3) for name in alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("families", "changes"),
    [
        (["raises", "hangs"], {"rollout.turn_timeout_s": 0.8}),
        (["dies"], {"rollout.runners": 1}),
        (["freezes"], {"rollout.runners": 1}),
    ],
)
def test_families_that_fail_cost_one_timeout_are_quarantined_and_the_rest_is_learnt(
    tmp_path: Path, families: list[str], changes: dict[str, Any]
) -> None:
    asked = {
        "environments": [{"id": MOODY, "families": ["plain", *families]}],
        "rollout.quarantine": {"window": 8},
        "hub.group_timeout_s": 20.0,  # in which another runner starts, on a busy machine too
        "train.updates": 4,
    }
    algo = build(tmp_path, **asked, **changes)
    algo.begin()
    begun = time.monotonic()
    history = train(algo)
    assert time.monotonic() - begun < 150
    assert {case.name for case in algo.source.tasks.quarantine.cases} == {f"Moody/{family}" for family in families}
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
    assert {t.failure.boundary for t in stored(tmp_path) if t.failure} == {"policy"}


def test_model_path_that_is_no_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        build(tmp_path, **{"algorithm.model": {"path": str(tmp_path), "build": None}})


def test_algorithm_of_your_own_comes_by_entry_point(tmp_path: Path) -> None:
    given = experiment(tmp_path).model_dump()["algorithm"]
    settings = {key: given[key] for key in ("model", "sampling", "optimizer")}
    own = {"kind": "custom", "entry_point": "tests.algorithms.own_algorithm:BestConfig", "settings": settings}
    algo = open_algorithm(experiment(tmp_path, algorithm=own)).build_algo()
    assert len(train(algo, 1)) == 1
    assert type(algo.learner_group._learner).__name__ == "BestLearner"


def test_setting_is_changed_by_its_path(tmp_path: Path) -> None:
    config = LanguageConfig.of(experiment(tmp_path, "ppo"))
    config.changes["algorithm.optimizer.learning_rate"] = 2e-3
    (metrics,) = train(config.build_algo(), 1)
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


# -- remote learners --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("runners", "learners"), [(1, 1), (1, 2)])
@pytest.mark.slow  # test_language_weave.py has the quick one, of two learners
def test_remote_runner_and_learners_have_the_loss_of_one_process_and_identical_parameters(
    tmp_path: Path, runners: int, learners: int
) -> None:
    changes = {"algorithm.optimizer.learning_rate": 1e-3}
    one = build(tmp_path / "one", "ppo", **changes)
    remote = {"rollout.runners": runners, "algorithm.learners.count": learners}
    learn_alike(one, build(tmp_path / "apart", "ppo", **changes, **remote))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grpo", "dpo"])
def test_one_remote_learner_resumes_as_if_it_never_stopped(tmp_path: Path, kind: str) -> None:
    resumes(tmp_path, kind, stops=2, **{"algorithm.learners.count": 1})


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(0, 1), (1, 0), (1, 2), (2, 1)])
def test_any_number_of_learners_goes_on_where_another_stopped(tmp_path: Path, first: int, then: int) -> None:
    algo = build(tmp_path, **{"algorithm.learners.count": first, "algorithm.kl.coefficient": 0.1})
    train(algo, 2)
    learnt = parameters(algo)[0]
    algo.save_to_path(str(tmp_path / "checkpoint"))
    algo.stop()
    again = build(tmp_path, run="s", **{"algorithm.learners.count": then, "algorithm.kl.coefficient": 0.1})
    again.take_over(str(tmp_path / "checkpoint"))
    for each in parameters(again):
        assert all(torch.equal(learnt[name], each[name]) for name in learnt)
    train(again, 1)
    assert any(not torch.equal(learnt[name], tensor) for name, tensor in parameters(again)[0].items())


# -- evaluations on the way -------------------------------------------------------------------------------------------


def told(algo: Any) -> list[dict[str, float]]:
    return [timeless(line) for line in train(algo)]


EVERY_TWO = {"evaluation.every": 2, "train.updates": 5, "train.checkpoint_every": 5}


def test_evaluations_on_the_way_change_nothing_and_resume_bit_for_bit(tmp_path: Path) -> None:
    plain, whole = (
        build(tmp_path / name, "ppo", **changes) for name, changes in (("a", {"train.updates": 5}), ("b", EVERY_TWO))
    )
    judged = told(whole)
    assert [Metric.EVALUATED in row for row in judged] == [False, True, False, True, True], "every other, and the last"
    assert 0 < judged[1][Metric.EVALUATED.of("Ascii/polite")] < 1
    undisturbed = [{name: value for name, value in row.items() if not name.startswith("evaluation/")} for row in judged]
    assert undisturbed == told(plain)
    assert same(weights(plain), weights(whole))

    finish(build(tmp_path / "c", "ppo", **EVERY_TWO), 3)
    again = build(tmp_path / "c", "ppo", **EVERY_TWO)
    rest = told(again)
    assert rest == judged[5 - len(rest) :]
    assert same(weights(again), weights(whole))
    assert again.kept == whole.kept


@pytest.fixture
def judged_as(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes evaluations say these successes, one after the other."""
    judge = Evaluations.judge

    def given(*successes: float) -> None:
        left = iter(successes)

        def told(self: Evaluations, version: int, stopper: Any) -> dict[str, float]:
            judge(self, version, type(stopper)(stopper.rules))
            self._success = (version, success := next(left))
            stopper.judge(success)
            return {Metric.EVALUATED: success}

        monkeypatch.setattr(Evaluations, "judge", told)

    return given


@pytest.mark.parametrize(
    ("successes", "kept", "checkpoints"),
    [((0.1, 0.6, 0.3, 0.5), {"best": 2, "last": 5}, {0, 2, 5}), ((0.0,) * 4, {"last": 5}, {0, 5})],
)
def test_the_best_is_the_best_on_held_out_tasks_and_has_a_checkpoint(
    tmp_path: Path, judged_as: Any, successes: tuple[float, ...], kept: dict[str, int], checkpoints: set[int]
) -> None:
    judged_as(*successes)
    algo = build(tmp_path, **EVERY_TWO)
    train(algo)
    assert algo.kept == kept
    assert {number for number, _ in algo._ledger.checkpoints.stored()} == checkpoints


def test_a_run_stops_by_its_success_on_held_out_tasks(tmp_path: Path, judged_as: Any) -> None:
    judged_as(0.1, 0.7)
    algo = build(tmp_path, **EVERY_TWO, **{"train.stop": {"by": "evaluation", "target": 0.7}})
    assert len(train(algo)) == 2
    assert algo.stopped == "target reached: success 0.700 on held-out tasks, asked for 0.7"


def test_a_version_is_evaluated_once_in_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    algo = build(tmp_path, **EVERY_TWO)
    trial = algo.trial

    def counted(name: str, *settings: Any) -> list[Trajectory]:
        played.append(name)
        return trial(name, *settings)

    monkeypatch.setattr(algo, "trial", counted)
    train(algo, 2)
    for _ in range(2):
        assert len(algo.evaluations.attempts(2, "greedy")) == len(algo.evaluations.attempts(2, "sampled")) == 32
    assert played == ["greedy-0", "greedy-2", "sampled-2"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train.stop": {"by": "evaluation", "target": 0.5}}, "set evaluation.every"),
        ({"evaluation.every": 2, "train.stop.by": "evaluation"}, "set one of train.stop.target"),
        (
            {"evaluation.every": 2, "train.stop": {"by": "evaluation", "target": 0.5, "window": 3}},
            "window=3 has no effect",
        ),
        ({"evaluation.way": "sampled"}, "without evaluation.every"),
        (
            {"evaluation.every": 3, "rollout.publish_every": 2, "hub.max_staleness": 1},
            "evaluation.every=3 is not a multiple of rollout.publish_every=2",
        ),
    ],
)
def test_settings_that_would_change_nothing_or_too_much_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        experiment(tmp_path, **changes)
