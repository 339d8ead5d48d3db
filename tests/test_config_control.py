from pathlib import Path

import pytest

from loomrl.config import SAC, ControlExperiment, ControlPPO, Experiment, parse_experiment
from loomrl.errors import ConfigError
from loomrl.load import dump, load, parse_yaml


def test_kind_chooses_the_tree_and_what_is_dumped_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("kind: control\nname: c\nalgorithm: {kind: sac, batch: 64}\n")
    control = load([tmp_path / "c.yaml"], ["train.steps=500", "environment.settings={gravity: 9}"])
    assert isinstance(control, ControlExperiment)
    assert isinstance(control.algorithm, SAC)
    assert (control.algorithm.batch, control.train.steps) == (64, 500)
    again = parse_experiment(parse_yaml(dump(control), origin="dump"), origin="dump")
    assert again == control
    assert again.sha256 == control.sha256
    assert isinstance(load([], ["name=l"]), Experiment)


def test_the_same_settings_come_through_python_the_command_line_and_a_dotted_override(tmp_path: Path) -> None:
    python = ControlExperiment(name="c", algorithm=ControlPPO(epochs=7), train={"steps": 10})
    line = load([], ["kind=control", "name=c", "algorithm.epochs=7", "train.steps=10"])
    dotted = ControlExperiment(name="c").override({"algorithm.epochs": 7, "train.steps": 10})
    assert python.sha256 == line.sha256 == dotted.sha256


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["kind=contrl"], "kind='contrl' is unknown.*Did you mean 'control'"),
        (["kind=control", "environment.gravity=3"], "environment.gravity=3: no such setting here"),
        (["kind=control", "algorithm.kind=sac", "algorithm.epochs=3"], "algorithm.epochs=3: no such setting here"),
        (
            ["kind=control", "algorithm.kind=grpo"],
            "algorithm.kind='grpo': unknown. Known: 'ppo', 'sac', 'weave'",
        ),
        (
            ["kind=control", "curriculum={kind: ramp, begin: {g: 1}, threshold: {reward: 1}}"],
            "give environment.settings.g",
        ),
        (["kind=control", "train.stop.decline=0"], "train.stop.decline=0: Input should be greater than 0"),
    ],
)
def test_what_is_wrong_is_named(assignments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load([], ["name=x", *assignments])


def test_a_ramp_goes_in_equal_steps_to_the_environments_own_settings() -> None:
    ramp = {"kind": "ramp", "begin": {"g": 1.0, "agents": 2}, "steps": 2, "threshold": {"reward": 5}}
    environment = {"settings": {"g": 3.0, "agents": 6, "other": "x"}}
    stages = ControlExperiment(name="c", environment=environment, curriculum=ramp).stages
    assert [settings for settings, _ in stages] == [
        {"g": 1.0, "agents": 2, "other": "x"},
        {"g": 2.0, "agents": 4, "other": "x"},
        {"g": 3.0, "agents": 6, "other": "x"},
    ]
    assert [threshold is None for _, threshold in stages] == [False, False, True]


OFFLINE = ["kind=control", "data={minari: a/b-v0}"]


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["kind=control", "algorithm.kind=iql"], "iql learns from logged episodes: name them"),
        ([*OFFLINE, "algorithm.kind=ppo"], "data has no effect with ppo"),
        ([*OFFLINE, "algorithm.kind=sac"], "data has no effect with sac"),
        ([*OFFLINE, "algorithm.kind=bc", "rollout.runners=1"], "rollout.runners has no effect: bc takes no step"),
        ([*OFFLINE, "algorithm.kind=iql", "rollout.steps=8"], "rollout.steps has no effect: iql takes no step"),
        ([*OFFLINE, "algorithm.kind=iql", "train.stop.target=1"], "train.stop.target has no effect"),
        (
            [
                *OFFLINE,
                "algorithm.kind=bc",
                "curriculum={kind: stages, stages: [{settings: {}, threshold: {reward: 1}}]}",
            ],
            "curriculum has no effect",
        ),
        ([*OFFLINE, "algorithm.kind=bc", "algorithm.normalize_rewards=true"], "normalize_rewards=True has no effect"),
        ([*OFFLINE, "algorithm.kind=iql", "algorithm.network.shared=true"], "have a tower each"),
        ([*OFFLINE, "algorithm.kind=iql", "algorithm.network.memory={kind: gru}"], "iql learns from single steps"),
        ([*OFFLINE, "algorithm.kind=bc", "algorithm.network.memory={kind: gru}"], "bc learns from single steps"),
        (
            [*OFFLINE, "algorithm={kind: iql, online: {replay: {prioritized: {}}}}"],
            "replay.prioritized has no effect: iql draws evenly",
        ),
        (["kind=control", "algorithm.kind=bc", "data={}"], "name either minari"),
        (["kind=control", "algorithm.kind=bc", "data={minari: a, dataset: b}"], "name either minari"),
    ],
)
def test_settings_that_logged_data_leave_without_effect_are_named(assignments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load([], ["name=x", *assignments])


def test_iql_takes_the_settings_of_its_steps_once_it_goes_on_online() -> None:
    found = load(
        [], ["name=x", *OFFLINE, "algorithm={kind: iql, online: {}}", "rollout.runners=1", "train.stop.target=1"]
    )
    assert isinstance(found, ControlExperiment)
    assert found.rollout.runners == 1
