import json
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
import yaml

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import ControlExperiment
from loomrl.config.sweep import Choice, Sweep
from loomrl.errors import ArtifactError, ClusterError, ConfigError, RunTaken, StoreError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.card import write_card
from loomrl.experiments.evaluate_control import evaluate_control, idle_return
from loomrl.experiments.kinds import open_training
from loomrl.experiments.notebook.agentic import AgenticRLSystem
from loomrl.experiments.policies import exported
from loomrl.experiments.sweep import sweep
from loomrl.experiments.train import train
from loomrl.run.version import file_of
from loomrl.store import open_store
from loomrl.store.policies import EVALUATIONS
from loomrl.store.runs import POLICIES, RUNS, RunStatus, ask_to_stop
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.algorithms.control_support import MARKS
from tests.console.console_support import Browser, charts_in, console
from tests.experiments.runs import assert_goes_on, assert_same, places, stop_at, train_without_ray

pytestmark = [pytest.mark.system, *MARKS]

ENVS = "tests.algorithms.control_envs"


def experiment(folder: Path, **changes: Any) -> ControlExperiment:
    base = ControlExperiment(
        name="identity",
        environment={"kind": "custom", "entry_point": f"{ENVS}:Identity"},
        algorithm={"kind": "ppo", "learning_rate": 3e-3, "minibatch_size": 64},
        rollout={"steps": 32},
        train={"steps": 5120, "checkpoint_every": 1024, "tell_every": 256},
        evaluation={"every": 2048},
    )
    return base.override(places(folder) | changes)


@pytest.mark.parametrize(("id", "least", "most"), [("Pendulum-v1", -1700, -800), ("MountainCarContinuous-v0", 0, 0)])
def test_what_doing_nothing_earns_is_known_where_actions_have_a_zero(id: str, least: float, most: float) -> None:
    found = idle_return(ControlExperiment(name="idle", environment={"id": id}, evaluation={"episodes": 4}))
    assert least <= found <= most
    assert idle_return(ControlExperiment(name="idle", environment={"id": "CartPole-v1"})) is None


def test_a_run_is_not_kept_in_a_copy_that_ray_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "runtime_resources/working_dir_files/_ray_pkg_0f"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    asked = ControlExperiment(name="pole", artifact_url="s3://bucket/loom", train={"folder": "/shared/runs"})
    with pytest.raises(ClusterError, match=r"^store_url=loom.db: relative to .*Use `loomrl submit`"):
        train(asked)
    many = Sweep(name="many", experiment=asked, space={"seed": Choice(values=(0, 1))})
    with pytest.raises(ClusterError, match=r"^store_url=loom.db: relative"):
        sweep(many)


def checkpoints(folder: Path, run: str) -> Checkpoints:
    return Checkpoints(open_artifacts(str(folder / "artifacts")), run)


def test_a_run_learns_and_leaves_metrics_evaluations_lineage_a_page_and_a_policy(tmp_path: Path) -> None:
    settings = experiment(tmp_path)
    result = train(settings, run="r")
    assert result.before["greedy"] + 3 < result.after["greedy"] <= 8
    assert result.stopped == f"all {int(result.policy.removeprefix('r/')):,} steps done"
    rows = read_metrics(metrics_file(settings.train, "r"))
    assert rows[-1][Metric.RETURN] > rows[0][Metric.RETURN] + 2
    assert all(0 < row[Metric.TIME_LEARN] < 60 for row in rows)
    assert sum(Metric.RETURN_EVALUATED in row for row in rows) >= 3
    assert "Return" in Path(result.page).read_text()
    assert "| return | before | after |" in Path(result.page).with_suffix(".md").read_text()
    with open_store(settings.store_url) as db:
        run = RUNS.require(db, "r")
        assert run.status is RunStatus.FINISHED
        assert (run.result["policy"], run.result["best"]) == (result.policy, result.best)
        assert [name.partition("@")[0] for name in run.environments] == [f"{ENVS}:Identity"]
        versions = POLICIES.latest(db, run="r")
        assert versions[0].parent == versions[1].id
        assert {e.policy for e in EVALUATIONS.latest(db)} <= {version.id for version in versions}
        judged = evaluate_control(settings, ["r", "r/0", "random"])
    *means, random = [report.overall.reward.mean for report in judged.reports]
    assert means == [result.after["greedy"], result.before["greedy"]]
    assert random < 5
    kept = checkpoints(tmp_path, "r").numbers()
    assert kept == sorted({0, int(result.best.rpartition("/")[2]), int(result.policy.rpartition("/")[2])})


def test_the_film_of_a_runs_end_is_in_its_checkpoint_in_the_console_and_in_its_card(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"environment.entry_point": "tests.control.test_film:Drawn", "train.steps": 512})
    result = train(settings, run="r")
    with open_store(settings.store_url) as db:
        for name, folder in (("r", "last"), ("r/0", "first")):
            write_card(exported(name, db, tmp_path / folder), db, tmp_path / folder)
        assert file_of(POLICIES.require(db, "r/0"), db, "film/film.gif") is None
        film = file_of(POLICIES.require(db, result.policy), db, "film/film.gif")
    assert film is not None
    assert film == (tmp_path / "last" / "film.gif").read_bytes()
    card = (tmp_path / "last" / "README.md").read_text()
    _, header, body = card.split("---\n", 2)
    told = yaml.safe_load(header)
    (judged,) = told["model-index"][0]["results"]
    assert (told["library_name"], told["model_name"]) == ("loomrl", result.policy)
    assert judged["metrics"][0]["value"].startswith(f"{result.after['greedy']:.2f} +/- ")
    assert "![An episode](film.gif)" in body
    assert "An episode of 12 steps with a return of" in body
    assert "experiment: `" in body
    for folder in ("first", "last"):
        assert (tmp_path / folder / "film.gif").is_file()
    assert (tmp_path / "last" / "curve.png").read_bytes().startswith(b"\x89PNG")
    with console(settings.store_url) as (_, app), Browser(app) as browser:
        for page, query in ((f"/policies/{result.policy}", f"policy={quote(result.policy, safe='')}"), ("/runs/r", "")):
            shown = browser.get(page).text
            found = re.search(r'data-src="(/film.gif[^"]+)"', shown)
            assert found is not None
            assert query in found[1]
            answer = browser.get(unescape(found[1]))
            assert (answer.headers["content-type"], answer.content) == ("image/gif", film)
            assert [chart["title"] for chart in charts_in(shown)] == ["Reward", "Value", "Action", "Observation"]
        assert "data-src" not in browser.get("/policies/r/0").text
        assert browser.get("/film.gif?policy=r%2F0").status_code == 404
        assert browser.get("/film.gif?run=..%2Fr").status_code == 404


HEAVY = {"transformers", "torch._dynamo", "matplotlib", "smart_open", "uvicorn", "wandb"}


def test_a_run_of_one_process_starts_no_ray_and_equals_one_in_a_cluster_resumed_or_not(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.steps": 1024, "evaluation.every": None, "evaluation.episodes": 2})
    parts = [settings.override({"train.steps": 512}), settings]
    assert not HEAVY & train_without_ray(*parts, run="alone")
    for each in parts:
        train(each, run="r")
    assert_same(settings, "alone", "r")


def test_initial_weights_are_those_of_the_seed_whatever_the_machines_cores(tmp_path: Path) -> None:
    settings = experiment(tmp_path)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with open_store(settings.store_url) as db:
                training = open_training(settings, f"r{threads}", db, clock=lambda: 1.0)
                found.append(training.algo.learner_group._learner.own.state_dict())
                training.stop()
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


WRAPPED = [
    {"entry_point": "gymnasium.wrappers:TimeLimit", "settings": {"max_episode_steps": 6}},
    {"entry_point": "gymnasium.wrappers:TimeAwareObservation"},
]
"""They have a state: both count steps."""


SAC = {
    "algorithm": {"kind": "sac", "batch": 16},
    "rollout.steps": 1,
    "train": {"steps": 600, "checkpoint_every": 200, "tell_every": 100},
    "evaluation.every": 300,
}


@pytest.mark.parametrize(
    "changes",
    [{"train.steps": 1024, "train.checkpoint_every": 256}, pytest.param(SAC, marks=pytest.mark.slow)],
    ids=["ppo", "sac"],
)
def test_a_run_that_broke_off_goes_on_as_if_it_never_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    assert_goes_on(experiment(tmp_path, **{"environment.wrappers": WRAPPED} | changes), monkeypatch)


def test_a_run_stops_when_somebody_asks_and_is_resumed_as_if_it_never_had(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.steps": 1536, "evaluation.every": None})
    train(settings, run="whole")
    stopped = train(settings, run="parts", listener=stop_at(settings, "parts"))
    assert stopped.stopped == "stopped by ann: enough"
    assert checkpoints(tmp_path, "parts").numbers()[-1] == int(stopped.policy.removeprefix("parts/")) < 1024
    with open_store(settings.store_url) as db:
        assert RUNS.require(db, "parts").status is RunStatus.FINISHED
        with pytest.raises(StoreError, match="only a running training can be stopped"):
            ask_to_stop(db, "parts", who="ann", why="again", at=2.0)
    train(settings, run="parts")
    assert_same(settings, "parts", "whole")


def test_of_two_processes_that_train_one_run_the_later_one_leads_it(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.steps": 1024, "evaluation.every": None})
    train(settings, run="alone")
    results = []

    def another(done: int, metrics: Mapping[str, float]) -> None:
        if not results:
            results.append(train(settings, run="r"))

    with pytest.raises(RunTaken, match="run 'r': was resumed on "):
        train(settings, run="r", listener=another)
    with open_store(settings.store_url) as db:
        run, numbers = RUNS.require(db, "r"), [version.number for version in POLICIES.latest(db, run="r")]
    assert (run.status, run.result["policy"]) == (RunStatus.FINISHED, results[0].policy)
    assert len(numbers) == len(set(numbers))
    assert_same(settings, "r", "alone")


def test_checkpoints_of_another_experiment_are_not_taken_for_its_own(tmp_path: Path) -> None:
    train(experiment(tmp_path, **{"train.steps": 256}), run="r")
    elsewhere = {"store_url": f"sqlite:///{tmp_path}/other.db", "train.steps": 512}
    with pytest.raises(ArtifactError, match=r"the checkpoints of run 'r' in .* are of experiment"):
        train(experiment(tmp_path, **elsewhere), run="r")


def test_training_stops_when_it_is_enough(tmp_path: Path) -> None:
    target = train(experiment(tmp_path, **{"train.stop.target": 4.5, "train.steps": 50_000}), run="target")
    assert target.stopped.startswith("target reached: return ")
    assert target.stopped.endswith(" of the latest 100 episodes, asked for 4.5")
    stuck = {"algorithm.learning_rate": 1e-9, "train.steps": 50_000, "train.stop.plateau": 1500}
    plateau = train(experiment(tmp_path, **stuck), run="plateau")
    assert plateau.stopped.startswith("plateau: nothing better than return ")
    assert plateau.updates < 50


@pytest.mark.parametrize("runners", [0, 1])
@pytest.mark.slow
def test_a_curriculum_climbs_at_its_threshold_and_goes_on_where_it_was(tmp_path: Path, runners: int) -> None:
    ramp = {"kind": "ramp", "begin": {"steps": 2}, "steps": 2, "threshold": {"reward": 1.2, "episodes": 50}}
    changes = {"environment.settings": {"steps": 8}, "curriculum": ramp, "train.steps": 6144}
    changes["rollout.runners"] = runners
    settings = experiment(tmp_path, **changes)
    train(settings, run="r")
    rows = read_metrics(metrics_file(settings.train, "r"))
    stages = [row[Metric.STAGE] for row in rows]
    assert stages == sorted(stages)
    assert (stages[0], stages[-1]) == (1, 3)
    first_of_third = stages.index(3)
    assert rows[0][Metric.EPISODE_STEPS] == 2
    assert rows[first_of_third][Metric.EPISODE_STEPS] == 8
    stored = checkpoints(tmp_path, "r")
    copy = stored.get(dict(stored.stored())[int(rows[-1]["step"])], tmp_path / "copy")
    assert json.loads((copy / "course.json").read_text())["stage"] == 2


@pytest.mark.parametrize(("needed", "stage"), [(0.7, 2), (0.7001, 1)])
def test_a_threshold_is_reached_by_what_float32_leaves_of_it_and_not_by_less(
    tmp_path: Path, needed: float, stage: int
) -> None:
    ramp = {"kind": "ramp", "begin": {"steps": 1}, "steps": 1, "threshold": {"reward": needed, "episodes": 10}}
    pays = {"kind": "custom", "entry_point": f"{ENVS}:Countdown", "settings": {"steps": 2, "price": 0.7}}
    settings = experiment(tmp_path, environment=pays, curriculum=ramp, **{"train.steps": 1024})
    train(settings, run="r")
    assert read_metrics(metrics_file(settings.train, "r"))[-1][Metric.STAGE] == stage


def test_a_policy_leaves_as_a_folder_and_is_judged_beside_code_where_it_can_act(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.steps": 256})
    train(settings, run="r")
    with open_store(settings.store_url) as db:
        assert exported("r", db, tmp_path / "out", onnx=True) == POLICIES.latest(db, run="r", limit=1)[0].id
        with pytest.raises(ConfigError, match="is not empty"):
            exported("r", db, tmp_path / "out")
    assert (tmp_path / "out" / "policy.onnx").stat().st_size > 1000
    reports = evaluate_control(settings, ["r", str(tmp_path / "out"), f"{__name__}:echo"]).reports
    whole, folder, code = (report.overall.reward.mean for report in reports)
    assert (whole, code) == (folder, 8)
    with pytest.raises(ConfigError, match=r"the policy sees Discrete.* the environment has Box"):
        evaluate_control(settings.override({"environment.settings": {"kind": "box"}}), ["r"])
    with pytest.raises(ConfigError, match="policy name='nobody' is unknown"):
        evaluate_control(settings, ["nobody"])


def echo(**settings: Any) -> Any:
    return lambda observations: observations


STAGES = {"kind": "stages", "stages": [{"settings": {"kind": "box"}, "threshold": {"reward": 1}}]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"environment": {"kind": "gymnasium", "id": "CartPoll-v1"}}, r"'CartPoll-v1' with {} cannot be made"),
        ({"environment.settings": {"size": 3}}, r"with {'size': 3} cannot be made.*unexpected keyword"),
        ({"curriculum": STAGES}, r"in stage 2 environment .* has the spaces"),
        ({"train.stop.success": 0.5}, r"train.stop.success=0.5 would change nothing.*has no info"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        train(experiment(tmp_path, **changes))


KINDS = {
    "ppo": {"kind": "ppo", "learning_rate": 3e-3, "minibatch_size": 64},
    "dqn": {"kind": "dqn", "learning_rate": 3e-3, "warmup": 256, "exploration": {"steps": 2000}},
}


@pytest.mark.parametrize(("kind", "hole"), [("ppo", True), ("ppo", False), ("dqn", True)])
def test_a_run_whose_episodes_are_paid_and_not_correct_is_stopped(tmp_path: Path, kind: str, hole: bool) -> None:
    changes = {"environment.entry_point": f"{ENVS}:Hole", "environment.settings": {"hole": hole}}
    settings = experiment(tmp_path, algorithm=KINDS[kind], **changes)
    result = train(settings, run="r")
    rows = read_metrics(metrics_file(settings.train, "r"))
    assert result.stopped.startswith("reward hacking since step " if hole else "all 5,")
    assert [row[Metric.REWARD_HACKED] for row in rows] == [0.0] * (len(rows) - 1) + [float(hole)]
    assert rows[-1][Metric.REWARD_CHECKED] > 0.8 or hole


def kept(folder: Path) -> dict[str, Any]:
    """Settings of `AgenticRLSystem`."""
    tree = experiment(folder).plain
    return {name: tree[name] for name in ("store_url", "artifact_url", "train")}


def test_the_short_door_trains_agents_that_share_a_policy(tmp_path: Path) -> None:
    settings = kept(tmp_path)
    system = AgenticRLSystem(
        "loomrl.envs.teamwork.parallel:TeamParallel", 2, env_settings={"steps": 16}, settings=settings
    )
    with pytest.raises(ConfigError, match="nothing was trained yet"):
        system.evaluate()
    early = system.train(total_timesteps=50_000, completion_rate=0.01)
    assert early.stopped.startswith("success reached: 0.")
    assert early.updates * 2048 < 50_000
    result = system.train(total_timesteps=2048)
    assert 2048 <= int(result.policy.rpartition("/")[2]) < 4096
    assert system.evaluate(n_episodes=1, policy="random").returns.overall.episodes == 4
    report = system.evaluate(n_episodes=3)
    assert report.task_completion_rate == report.team.completion
    report = report.returns
    assert report.overall.episodes == 3 * 4
    assert report.overall.steps == 16
    assert np.isfinite(report.overall.reward.mean or np.nan)


def test_choices_are_drawn_evenly_as_often_as_asked_and_real_actions_are_not_choices(tmp_path: Path) -> None:
    settings = kept(tmp_path) | {"train": {"steps": 512}}
    greedy = AgenticRLSystem("CartPole-v1", 4, epsilon=0.25, batch_normalization=True, settings=settings)
    algorithm = greedy.experiment.algorithm
    assert (algorithm.experts, algorithm.critics, algorithm.exploration[0].epsilon) == (1, 1, 0.25)
    assert algorithm.normalize_observations
    algo = open_algorithm(greedy.experiment).build_algo()
    inputs = torch.zeros(1, 3)  # of the one expert: its weight, then its logits
    inputs[0, 1] = 50.0
    chances = [algo.get_module().net.distribution.logp(inputs, torch.tensor([one])).exp().item() for one in (0, 1)]
    algo.stop()
    assert chances == pytest.approx([0.875, 0.125])
    with pytest.raises(ConfigError, match="real-valued actions are not chosen evenly"):
        AgenticRLSystem("Pendulum-v1", 4, epsilon=0.25, settings=settings).train(total_timesteps=256)
