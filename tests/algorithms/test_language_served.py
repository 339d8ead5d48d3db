"""Runs that learn from a frozen data set: by every algorithm, resumed, and open about what they cannot use."""

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from loomrl.algorithms.language.config import LanguageConfig
from loomrl.config import DataSelection, Experiment
from loomrl.errors import ConfigError, DataError
from loomrl.experiments.data import settled
from loomrl.experiments.policies import exported
from loomrl.feedback.content import Contents
from loomrl.feedback.dataset import freeze
from loomrl.store import beside, open_store
from loomrl.store.datasets import Dataset, list_policies_trained_on, read_rows
from loomrl.store.feedback import append_feedback
from loomrl.store.policies import lineage
from loomrl.telemetry.metric import Metric
from loomrl.types import Feedback
from tests.algorithms.language_support import RAY, build, experiment, same, train, weights
from tests.feedback.served_support import as_foreign, as_served, asked, reward, serve, store, thumbs, url

pytestmark = RAY
COUNT = 64
ON_POLICY = ("rloo", "grpo", "reinforce", "ppo")
OFF_POLICY = ("kto", "dpo", "raft")


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """A folder in which version r/0 was served, and people said what they thought of it."""
    folder = tmp_path_factory.mktemp("production")
    algo = build(folder)
    algo.begin()
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
    """Updates of 16 trajectories."""
    tree = experiment(folder).plain
    shared = ("warm_start", "learners", "sampling", "optimizer", "reward_clip")
    algorithm = {"kind": kind, "model": {"context": 128}, **{name: tree["algorithm"][name] for name in shared}}
    plain = tree | {"algorithm": algorithm, "data": {"dataset": dataset, "batch": 16}}
    own = {"hub.max_staleness": 10, "algorithm.optimizer.learning_rate": 3e-3}
    found = settled(Experiment.parse(plain).override(own | changes))
    assert isinstance(found, Experiment)
    return found


def opened(folder: Path, kind: str, dataset: str, *, run: str, **changes: Any) -> Any:
    return LanguageConfig.of(settings(folder, kind, dataset, **changes), run=run).build_algo()


@pytest.mark.parametrize("kind", [*ON_POLICY, *OFF_POLICY])
def test_every_algorithm_learns_from_what_was_served_and_says_from_what(production: Path, kind: str) -> None:
    made = data(production)
    algo = opened(production, kind, made.id, run=f"once-{kind}")
    algo.begin()
    before = weights(algo)
    history = train(algo)
    assert algo.stopped == f"1 pass over data set {made.id} done"
    assert not same(before, weights(algo))
    assert all(each[Metric.FAILURES] == 0 for each in history)
    if kind in ON_POLICY:
        assert [each[Metric.STALENESS_MAX] for each in history] == [0, 1, 2, 3]
        assert history[0][Metric.POLICY_DRIFT] < 1e-3
        assert history[0][Metric.POLICY_IMPORTANCE] == pytest.approx(1, abs=1e-3)
    algo.stop()
    with open_store(url(production)) as db:
        tree = lineage(db, f"once-{kind}/{len(history)}")
        assert tree["ancestors"][-1]["id"] == "r/0"
        assert tree["made_from"]["run"]["parent_policy"] == "r/0"
        learnt = {"dataset": made.id, "sha256": made.sha256, "updates": len(history)}
        assert learnt.items() <= tree["made_from"]["data"].items()
        assert f"once-{kind}/{len(history)}" in list_policies_trained_on(db, made.id)


@pytest.mark.parametrize("kind", ["rloo", "kto"])
def test_resumed_run_makes_each_update_once_and_equals_one_that_never_stopped(production: Path, kind: str) -> None:
    changes = {"data.epochs": 2, "train.checkpoint_every": 3}
    made = data(production).id

    def finish(run: str, updates: int | None = None) -> tuple[dict[str, Any], list[float]]:
        algo = opened(production, kind, made, run=run, **changes)
        algo.begin()
        history = train(algo, updates)
        found = weights(algo)
        algo.stop()
        return found, [each[Metric.REWARD_TOTAL] for each in history]

    whole, seen = finish(f"whole-{kind}")
    _, first = finish(f"parts-{kind}", updates=4)  # of which the checkpoint has three
    parts, rest = finish(f"parts-{kind}")
    assert same(whole, parts)
    assert first[:3] + rest == seen
    assert len(seen) == 6, "train.updates is less than two passes"


def test_sft_imitates_what_was_recorded_and_rl_begins_with_what_it_made(production: Path) -> None:
    made = data(production, holdout=0.3)
    algo = opened(
        production, "sft", made.id, run="sft", **{"data.epochs": 2, "evaluation.every": 2, "train.updates": 99}
    )
    history = train(algo)
    whole = weights(algo)
    algo.stop()
    per_pass = -(-made.content["sizes"]["train"] // 16)
    assert algo.stopped == f"2 passes over data set {made.id} done"
    assert len(history) == 1 + 2 * per_pass
    with open_store(url(production)) as db, Contents(url(production)) as contents:
        attempts = [contents.read(row) for row in read_rows(db, made.id, part="holdout")]
    drawn = [attempt.tokens.logprobs_T[attempt.tokens.mask_T] for attempt in attempts if attempt and attempt.tokens]
    assert history[0] == {Metric.EVALUATED_LOSS: pytest.approx(-np.concatenate(drawn).mean(), abs=1e-4)}
    assert history[-1][Metric.EVALUATED_LOSS] != pytest.approx(history[0][Metric.EVALUATED_LOSS], abs=1e-3)
    assert [Metric.EVALUATED in line for line in history] == [n > 0 and n % 2 == 0 for n in range(len(history))]
    assert Metric.REWARD_TOTAL not in history[-1]
    last = f"sft/{2 * per_pass}"
    with open_store(url(production)) as db:
        assert lineage(db, last)["made_from"]["data"]["dataset"] == made.id
        assert last in list_policies_trained_on(db, made.id)
    begun = {"parent": last, "algorithm.model.build": None, "train.updates": 1}
    after = build(production, "grpo", run="after-sft", **begun)
    after.begin()
    assert same(weights(after), whole)
    after.stop()


def test_run_that_begins_with_a_later_version_knows_how_old_the_answers_are(production: Path) -> None:
    made = data(production).id
    first = opened(production, "rloo", made, run="first")
    train(first)
    first.stop()
    second = opened(production, "rloo", made, run="second", **{"parent": "first/4", "hub.max_staleness": 5})
    history = train(second)
    assert [each.get(Metric.STALENESS_MAX) for each in history] == [4, 5, None, None]
    assert [each.get(Metric.FAILURES.of("staleness")) for each in history] == [None, None, 16, 16]
    assert history[0][Metric.POLICY_IMPORTANCE] != pytest.approx(1, abs=1e-3)
    second.stop()
    model = str(folder_of(production, "first/4"))
    alien = opened(production, "rloo", made, run="alien", **{"parent": model})
    with pytest.raises(DataError, match=r"none of 64 trajectories was answered by .* or an ancestor, but by r/0"):
        alien.begin()


def folder_of(folder: Path, version: str) -> Path:
    """The model of a version as a folder that no run made."""
    target = folder / "exported"
    with open_store(url(folder)) as db:
        exported(version, db, target)
    return target


def test_promise_that_the_data_set_would_break_is_refused_before_anything_is_learnt(production: Path) -> None:
    made = data(production).id
    algo = opened(production, "rloo", made, run="stale", **{"hub.max_staleness": 2})
    with pytest.raises(ConfigError, match=r"hub.max_staleness=2: the run makes 4 updates.*Set hub.max_staleness=3"):
        algo.begin()


def test_trajectory_that_was_deleted_since_teaches_nothing_and_is_counted(tmp_path: Path, production: Path) -> None:
    made = data(production)
    folder = shutil.copytree(production, tmp_path / "copy")
    with open_store(beside(url(folder), "endpoint-assistant")) as hub, hub.write() as connection:
        connection.execute(text("DELETE FROM trajectories WHERE position <= 10"))
    algo = opened(folder, "raft", made.id, run="gone", **{"algorithm.best": 1.0})
    history = train(algo)
    assert sum(each.get(Metric.FAILURES.of("data"), 0) for each in history) == 10


def test_text_of_other_agents_is_followed_and_their_rewards_alone_teach_nothing(production: Path) -> None:
    made = data(production, endpoints=[], agents=["7"], parent="r/0").id
    algo = opened(production, "raft", made, run="foreign", **{"algorithm.best": 1.0, "data.epochs": 4})
    history = train(algo)
    assert history[-1][Metric.SUPERVISED_LOSS] < history[0][Metric.SUPERVISED_LOSS] - 0.1
    algo.stop()
    without = opened(production, "rloo", made, run="no-ids")
    with pytest.raises(DataError, match="token ids and a reward"):
        without.begin()


def test_corrections_are_preferred_to_what_they_correct(production: Path) -> None:
    with open_store(url(production)) as db:
        ids = [row.trajectory for row in read_rows(db, data(production).id)][:16]
        said = [
            Feedback(id=f"fix-{id}", trajectory=id, source="human", kind="correction", value=0.2, data={"text": "ok"})
            for id in ids
        ]
        append_feedback(db, said)
    changes = {"algorithm.margin": 2.0, "data.epochs": 6}  # no two rewards are so far apart
    algo = opened(production, "dpo", data(production).id, run="fixed", **changes)
    history = train(algo)
    assert len(history) == 6
    assert history[0][Metric.PREFERENCE_MARGIN] < history[-1][Metric.PREFERENCE_MARGIN]
    assert history[-1][Metric.PREFERENCE_ACCURACY] == 1


def test_leash_keeps_the_policy_near_the_one_in_production(production: Path) -> None:
    made = data(production).id
    moved = []
    for coefficient in (0.0, 30.0):
        more = {"data.epochs": 2, "train.updates": 8, "algorithm.optimizer.learning_rate": 3e-3}
        changes = {**more, "algorithm.best": 1.0, "algorithm.kl.coefficient": coefficient}
        algo = opened(production, "raft", made, run=f"leash-{coefficient:g}", **changes)
        moved.append(train(algo)[-1][Metric.POLICY_KL])
    assert moved[1] < 0.5 * moved[0]


def test_settings_that_a_data_set_makes_idle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm.model.build has no effect with data.dataset=d"):
        experiment(tmp_path).override({"data": {"dataset": "d"}})
    with pytest.raises(ConfigError, match=r"algorithm.kind=kto learns from what was served: name a data set"):
        Experiment.parse({"name": "x", "algorithm": {"kind": "kto"}})
    with pytest.raises(ConfigError, match="importance_cap is null"):
        Experiment.parse({"name": "x", "data": {"dataset": "d"}, "algorithm": {"kind": "rloo", "importance_cap": None}})
    given = Experiment.parse({"name": "x", "data": {"dataset": "d"}, "algorithm": {"kind": "rloo"}})
    with pytest.raises(ConfigError, match="a run begins with one policy"):
        LanguageConfig.of(given).validate()
    with pytest.raises(DataError, match="data set id='d' is unknown"):
        settled(given.override({"store_url": url(tmp_path)}))
