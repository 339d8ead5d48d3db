import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import make_url

from loomrl.algorithms.language import lesson as language
from loomrl.config import HubConfig
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.planned import keep_plan
from loomrl.experiments.train import render, resumed, train
from loomrl.hub import GroupPlan, open_hub
from loomrl.load import dump
from loomrl.store import beside, open_store
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS
from loomrl.store.runs import POLICIES, RUNS, RunStatus
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import RAY, experiment, shuffled
from tests.experiments.runs import (
    assert_goes_on,
    assert_same,
    history,
    kill_after_an_update,
    stop_at,
    train_without_ray,
)

pytestmark = RAY

ROWS = [{"prompt": f"What is {n}?", "answer": "what nobody says"} for n in range(24)]
HELD_OUT = 6
"""Of these rows, by the hash of their prompts."""


def test_run_learns_and_leaves_metrics_evaluations_lineage_and_a_page(tmp_path: Path) -> None:
    result = train(experiment(tmp_path, "ppo", **{"train.updates": 14, "evaluation.attempts": 4}), run="r")
    after = result.after["sampled"]
    assert after > result.before["sampled"] + 0.15
    page = Path(result.page).read_text()
    assert "Ascii/polite" in page
    assert page.count("one of  4 right") == 1, "greedily all attempts at a task are the same"
    assert f"{after:.1%}".removesuffix("%") in page or f"{after * 100:.0f}" in page
    assert [line["step"] for line in history(experiment(tmp_path), "r")] == list(range(1, 15))
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        run = RUNS.require(db, "r")
        assert (run.status, run.result["policy"]) == (RunStatus.FINISHED, "r/14")
        assert {e.policy for e in EVALUATIONS.latest(db)} == {"r/0", "r/14"}


def test_a_model_that_is_built_needs_right_answers_to_learn_words_from(tmp_path: Path) -> None:
    settings = {"rows": ROWS, "reward": "tests.gym.prompt_rewards:is_right"}
    changes = {"environments": [{"id": "Prompts", "settings": settings}], "evaluation.levels": None}
    with pytest.raises(ConfigError, match=r"set answer, the column .* Or begin with an algorithm.model.path"):
        train(experiment(tmp_path, **changes), run="r")


def test_a_run_without_success_has_no_best_version_and_is_no_healthy_one(tmp_path: Path) -> None:
    settings = {"rows": ROWS, "answer": "answer", "reward": "tests.gym.prompt_rewards:is_right", "held_out": 0.3}
    barren = {"id": "Prompts", "settings": settings}
    changes = {
        "environments": [barren],
        "train.updates": 2,
        "evaluation": {"every": 1, "episodes": None, "levels": None},
    }
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        keep_plan(db, experiment(tmp_path, **changes), {"seconds": 1e4, "memory_gb": 1e-3})
    result = train(experiment(tmp_path, **changes), run="r")
    assert (result.best, result.policy) == (None, "r/2")
    assert result.planned is not None
    assert 0 < result.planned["measured"]["seconds"] < 1e4
    assert result.planned["measured"]["memory_gb"] > 0.3, "torch is in memory"
    assert [finding.name for finding in result.findings] == ["nothing is rewarded"]
    shown = Console(record=True, width=300)
    render(result, shown)
    told = shown.export_text()
    assert "no version is known to be the best" in told
    assert "planned 2 h 46 min and 0.00 GB; it took" in told
    page = Path(result.page).read_text()
    assert "Nothing is rewarded" in page
    assert "finds nothing wrong" not in page
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        judged = {each.id: each.report for each in EVALUATIONS.latest(db)}
    assert judged["r/2/greedy"]["overall"]["success"]["count"] == HELD_OUT, "every held-out row once"
    assert judged["r/2/greedy"]["by_level"] == {}
    assert "level  0" not in page
    assert "Level of tasks" not in page


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_run_of_one_process_starts_no_ray_and_equals_one_in_a_cluster(tmp_path: Path) -> None:
    small = experiment(tmp_path, "ppo", **{"train.updates": 2, "evaluation.episodes": 4})
    train_without_ray(small, run="alone")
    train(small, run="r")
    assert_same(small, "alone", "r")


def test_shuffled_rewards_teach_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "samples_of", shuffled(language.samples_of))
    train(experiment(tmp_path, "ppo", **{"train.updates": 14}), run="r")
    success = [line[Metric.SUCCESS] for line in history(experiment(tmp_path), "r")]
    assert sum(success[-3:]) / 3 < sum(success[:3]) / 3 + 0.06


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"placement": {"wait_s": 7}}, {"placement.wait_s": "7.0"}),
        pytest.param(
            {"algorithm": {"learners": {"count": 1}}, "rollout": {"runners": 1}},
            {"algorithm.learners.count": "1", "rollout.runners": "1"},
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.usefixtures("one_thread")  # as remote learners and runners have
def test_a_run_is_resumed_elsewhere_but_not_with_other_settings(
    tmp_path: Path, changes: Any, told: dict[str, str]
) -> None:
    small = {"train.updates": 3, "evaluation.episodes": 4, "rollout.groups_per_update": 4}
    whole = experiment(tmp_path, "ppo", **small)
    assert train(whole, run="parts", listener=stop_at(whole, "parts")).policy == "parts/1"
    with pytest.raises(StoreError, match=r"algorithm\.optimizer\.learning_rate=1e-06, which was .* Start a new run"):
        train(whole.override({"algorithm.optimizer.learning_rate": 1e-6, "placement.wait_s": 7}), run="parts")
    elsewhere, run = resumed(whole, "parts", changes)
    assert train(elsewhere, run=run, listener=stop_at(whole, "parts")).policy == "parts/2"
    assert train(whole, run="parts").policy == "parts/3"
    train(whole, run="whole")
    assert_same(whole, "parts", "whole")
    with open_store(whole.store_url) as db:
        begun = [event.data.get("changed") for _, event in EVENTS.read(db, subject="parts", kind="run.resumed")]
    assert begun == [told, {}]


def assert_every_attempt_was_trained_on_once(settings: Any, run: str) -> None:
    """Of six updates."""
    with open_hub(beside(settings.store_url, run), HubConfig()) as hub:
        line = hub.stats().environments["Ascii"]
        acked = [one.id for _, one in hub.replay()]
    rollout = settings.rollout
    assert len(acked) == len(set(acked)) == 6 * rollout.group_size * rollout.groups_per_update == line.trajectories
    assert (line.acked, line.open + line.ready + line.leased) == (6 * rollout.groups_per_update, 0)


def test_a_run_that_broke_off_goes_on_as_if_it_never_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"evaluation": {"every": 2, "episodes": 4, "levels": [1]}, "rollout.groups_per_update": 4}
    settings = experiment(tmp_path, "ppo", **small)
    assert_goes_on(settings, monkeypatch)
    assert_every_attempt_was_trained_on_once(settings, "parts")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kills", "changes"),
    [(5, {"evaluation.every": 2}), (2, {"rollout.replay": {"groups": 8, "max_age": 4}})],
    ids=["again and again", "replays the same groups"],
)
def test_a_run_that_is_killed_equals_one_that_never_stopped(tmp_path: Path, kills: int, changes: Any) -> None:
    settings = experiment(tmp_path, "ppo", **{"hub.lease_s": 20.0, "evaluation.episodes": 8, **changes})
    (tmp_path / "e.yaml").write_text(dump(settings))
    rng = random.Random(kills)
    for _ in range(kills):
        kill_after_an_update(tmp_path, "killed", str(tmp_path / "e.yaml"), delay_s=rng.uniform(0, 0.6))
    again, run = resumed(settings, None)
    assert run == "killed"
    assert train(again, run=run).updates == 6
    train(settings, run="whole")
    assert_same(settings, "killed", "whole")
    assert history(settings, "killed") == history(settings, "whole")
    assert_every_attempt_was_trained_on_once(settings, "killed")


def test_killed_neighbour_does_not_hold_up_a_run(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.updates": 2})
    with open_hub(beside(settings.store_url, "dead"), settings.hub, groups_per_update=4) as hub:
        hub.open([GroupPlan(f"dead/{i}", "Ascii", 4, 0) for i in range(4)])
    assert train(settings, run="alive").updates == 2


@pytest.mark.parametrize("shards", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_training_runs_on_postgresql(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    url = make_url(postgres_url)
    monkeypatch.setenv("PGPASSWORD", str(url.password))
    stores = {"store_url": postgres_url.replace(f":{url.password}@", "@"), "hub.shards": shards, "train.updates": 2}
    assert train(experiment(tmp_path, **stores), run="r").updates == 2
    with open_store(postgres_url) as db:
        assert [v.number for v in POLICIES.latest(db, run="r")] == [2, 0]
