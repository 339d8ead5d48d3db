import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from rich.console import Console
from sqlalchemy import make_url

from loomrl.algorithms.language import lesson as language
from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import Experiment, HubConfig
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.train import render, resumed, train
from loomrl.hub import GroupPlan, open_hub
from loomrl.store import beside, open_store
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS
from loomrl.store.runs import POLICIES, RUNS, RunStatus, ask_to_stop
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.algorithms.language_support import experiment, shuffled

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


ROWS = [{"prompt": f"What is {n}?", "answer": "what nobody says"} for n in range(24)]
HELD_OUT = 6
"""Of these rows, by the hash of their prompts."""


def weights(folder: Path, run: str, number: int = 6) -> dict[str, torch.Tensor]:
    checkpoints = Checkpoints(open_artifacts(str(folder / "artifacts")), run)
    copy = checkpoints.get(dict(checkpoints.stored())[number], folder / f"copy-{run}")
    state: dict[str, torch.Tensor] = torch.load(copy / "state.pt", weights_only=True)["learner"]["module"]
    return state


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_run_learns_and_leaves_metrics_evaluations_lineage_and_a_page(tmp_path: Path) -> None:
    result = train(experiment(tmp_path, "ppo", **{"train.updates": 14, "evaluation.attempts": 4}), run="r")
    before, after = result.before["sampled"], result.after["sampled"]
    assert before is not None
    assert after is not None
    assert after > before + 0.15
    page = Path(result.page).read_text()
    assert "Ascii/polite" in page
    assert page.count("one of  4 right") == 1, "greedily all attempts at a task are the same"
    assert f"{after:.1%}".removesuffix("%") in page or f"{after * 100:.0f}" in page
    history = read_metrics(metrics_file(experiment(tmp_path).train, "r"))
    assert [line["step"] for line in history] == list(range(1, 15))
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        run = RUNS.require(db, "r")
        assert (run.status, run.result["policy"]) == (RunStatus.FINISHED, "r/14")
        assert {e.policy for e in EVALUATIONS.latest(db)} == {"r/0", "r/14"}


def test_a_run_without_success_has_no_best_version_and_is_no_healthy_one(tmp_path: Path) -> None:
    settings = {"rows": ROWS, "answer": "answer", "reward": "tests.gym.prompt_rewards:is_right", "held_out": 0.3}
    barren = {"id": "Prompts", "settings": settings}
    changes = {
        "environments": [barren],
        "train.updates": 2,
        "evaluation": {"every": 1, "episodes": None, "levels": None},
    }
    result = train(experiment(tmp_path, **changes), run="r")
    assert (result.best, result.policy) == (None, "r/2")
    assert [finding.name for finding in result.findings] == ["nothing is rewarded"]
    shown = Console(record=True, width=300)
    render(result, shown)
    told = shown.export_text()
    assert "no version is known to be the best" in told
    page = Path(result.page).read_text()
    assert "Nothing is rewarded" in page
    assert "finds nothing wrong" not in page
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        judged = {each.id: each.report for each in EVALUATIONS.latest(db)}
    assert judged["r/2/greedy"]["overall"]["success"]["count"] == HELD_OUT, "every held-out row once"
    assert judged["r/2/greedy"]["by_level"] == {}
    assert "level  0" not in page
    assert "Level of tasks" not in page


def test_shuffled_rewards_teach_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "samples_of", shuffled(language.samples_of))
    train(experiment(tmp_path, "ppo", **{"train.updates": 14}), run="r")
    history = read_metrics(metrics_file(experiment(tmp_path).train, "r"))
    success = [line[Metric.SUCCESS] for line in history]
    assert sum(success[-3:]) / 3 < sum(success[:3]) / 3 + 0.06


def test_training_stops_at_its_target_and_says_so(tmp_path: Path) -> None:
    stop = {"window": 2, "target": 0.62}
    result = train(experiment(tmp_path, **{"train.updates": 60, "train.stop": stop}), run="r")
    assert result.stopped.startswith("target reached")
    assert result.updates < 60


def test_resuming_with_another_experiment_is_refused(tmp_path: Path) -> None:
    train(experiment(tmp_path, **{"train.updates": 1}), run="r")
    with pytest.raises(StoreError, match="seed=9, which was 3"):
        train(experiment(tmp_path, seed=9), run="r")
    with pytest.raises(ConfigError, match="no run of 'small'"):
        resumed(experiment(tmp_path / "elsewhere"), None)


def kill_in_the_middle(words: list[str], folder: Path, delay_s: float) -> None:
    """SIGKILL a training process some time after its next update."""
    metrics = folder / "runs" / "killed" / "metrics.jsonl"

    def lines() -> int:
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    before = lines()
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen(
        [sys.executable, "-m", "loomrl", *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment
    )
    while lines() == before and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()


def killed_again_and_again(folder: Path, kills: int, **changes: object) -> None:
    settings: Experiment = experiment(folder, "ppo", **{"hub.lease_s": 20.0, **changes})
    (folder / "e.yaml").write_text(json.dumps(settings.model_dump(mode="json")))
    rng = random.Random(kills)
    for _ in range(kills):
        kill_in_the_middle(["train", str(folder / "e.yaml"), "--run", "killed"], folder, rng.uniform(0, 0.6))
    again, run = resumed(settings, None)
    assert run == "killed"
    assert train(again, run=run).updates == 6
    train(settings, run="whole")
    assert same(weights(folder, "killed"), weights(folder, "whole"))
    told = [
        {name: value for name, value in line.items() if not name.startswith(("time", "throughput"))}
        for line in read_metrics(metrics_file(settings.train, "killed"))
    ]
    assert told == [
        {name: value for name, value in line.items() if not name.startswith(("time", "throughput"))}
        for line in read_metrics(metrics_file(settings.train, "whole"))
    ]
    with open_hub(beside(settings.store_url, "killed"), HubConfig()) as hub:
        line = hub.stats().environments["Ascii"]
        acked = [t.id for _, t in hub.replay()]
    assert len(acked) == len(set(acked)) == 6 * 64 == line.trajectories
    assert (line.acked, line.open + line.ready + line.leased) == (48, 0)


def test_run_that_was_stopped_is_resumed_as_if_it_never_had_been(tmp_path: Path) -> None:
    settings = experiment(tmp_path, "ppo")
    train(settings, run="whole")

    def ask(done: int, metrics: Mapping[str, float]) -> None:
        if done == 3:
            with open_store(settings.store_url) as db:
                ask_to_stop(db, "parts", who="ann", why="enough", at=1.0)

    stopped = train(settings, run="parts", listener=ask)
    assert (stopped.stopped, stopped.policy) == ("stopped by ann: enough", "parts/3")
    whole = train(settings, run="parts")
    assert whole.policy == "parts/6"
    assert whole.seconds > stopped.seconds
    assert train(settings, run="parts").seconds >= whole.seconds, "nothing was left to do"
    assert same(weights(tmp_path, "parts"), weights(tmp_path, "whole"))


@pytest.mark.usefixtures("one_thread")  # as remote learners and runners have
def test_a_run_is_resumed_with_other_learners_but_not_with_other_settings(tmp_path: Path) -> None:
    settings = experiment(tmp_path, "ppo", **{"train.updates": 3})

    def ask(done: int, metrics: Mapping[str, float]) -> None:
        with open_store(settings.store_url) as db:
            ask_to_stop(db, "parts", who="ann", why="enough", at=1.0)

    assert train(settings, run="parts", listener=ask).policy == "parts/1"
    with pytest.raises(StoreError, match=r"algorithm\.optimizer\.learning_rate=1e-06, which was .* Start a new run"):
        train(
            settings.override({"algorithm.optimizer.learning_rate": 1e-6, "algorithm.learners.count": 1}), run="parts"
        )
    remote, run = resumed(settings, "parts", {"algorithm": {"learners": {"count": 1}}, "rollout": {"runners": 1}})
    assert train(remote, run=run, listener=ask).policy == "parts/2"
    assert train(settings, run="parts").policy == "parts/3"
    train(settings, run="whole")
    assert same(weights(tmp_path, "parts", 3), weights(tmp_path, "whole", 3))
    with open_store(settings.store_url) as db:
        begun = [event.data.get("changed") for _, event in EVENTS.read(db, subject="parts", kind="run.resumed")]
    assert begun == [{"algorithm.learners.count": "1", "rollout.runners": "1"}, {}]


def test_killed_run_resumes_as_if_it_never_stopped(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, 1, **{"evaluation.every": 2, "evaluation.episodes": 8})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_run_that_is_killed_again_and_again_equals_one_that_never_stopped(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, 5)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_run_with_replay_that_is_killed_replays_the_same_groups(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, 2, **{"rollout.replay": {"groups": 8, "max_age": 4}})


def test_killed_neighbour_does_not_hold_up_a_run(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.updates": 2})
    with open_hub(beside(settings.store_url, "dead"), settings.hub, groups_per_update=4) as hub:
        hub.open([GroupPlan(f"dead/{i}", "Ascii", 4, 0) for i in range(4)])
    assert train(settings, run="alive").updates == 2


def test_training_runs_on_postgresql_with_sharded_hubs(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(postgres_url)
    monkeypatch.setenv("PGPASSWORD", str(url.password))
    stores = {"store_url": postgres_url.replace(f":{url.password}@", "@"), "hub.shards": 2, "train.updates": 2}
    assert train(experiment(tmp_path, **stores), run="r").updates == 2
    with open_store(postgres_url) as db:
        assert [v.number for v in POLICIES.latest(db, run="r")] == [2, 0]
