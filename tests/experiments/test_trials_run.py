"""Learning within an episode, from the command line: what a memory gains, by trial; beginning with other weights, and
what these save.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from loomrl.config import ControlExperiment
from loomrl.errors import ArtifactError, ConfigError
from loomrl.experiments.cli import app
from loomrl.experiments.commands.output import shown_counts
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from loomrl.experiments.transfer import transfer
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS
from tests.algorithms.control_support import MARKS
from tests.experiments.test_train_control import assert_goes_on, history, policy_of

pytestmark = [pytest.mark.system, *MARKS]

TWO = {"environment": "loomrl.envs.trials:LoomBandit-v0", "vary": {"probabilities": [[0.0, 1.0], [1.0, 0.0]]}}


def arms(folder: Path, **changes: Any) -> ControlExperiment:
    """Two arms, one of which pays always: ten pulls."""
    base = ControlExperiment(
        name="arms",
        seed=1,
        environment={"id": "loomrl.envs.trials:LoomTrials-v0", "settings": {**TWO, "trials": 10}},
        algorithm={
            "kind": "ppo",
            "network": {"hidden": [16], "memory": {"kind": "lstm", "size": 16}},
            "learning_rate": 1e-2,
            "minibatch_size": 40,
            "epochs": 8,
        },
        rollout={"environments": 16, "steps": 10},
        train={"steps": 3200, "checkpoint_every": 800, "tell_every": 160, "folder": str(folder / "runs")},
        evaluation={"every": None, "episodes": 40},
        store_url=f"sqlite:///{folder}/loom.db",
        artifact_url=str(folder / "artifacts"),
    )
    return base.override(changes)


def told(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def by_trial(folder: Path, run: str, *words: str) -> Any:
    report = told("evaluate", run, f"store_url=sqlite:///{folder}/loom.db", *words)["policies"][run]
    np.testing.assert_allclose(sum(report["trials"]), report["overall"]["reward"]["mean"])
    return np.array(report["trials"])


def test_a_memory_finds_the_arm_that_pays_and_without_past_half_of_all_pulls_do(tmp_path: Path) -> None:
    train(arms(tmp_path), run="remembers")
    train(arms(tmp_path, **{"algorithm.network.memory": None, "environment.settings.recall": False}), run="blind")
    found = by_trial(tmp_path, "remembers")
    assert found[0] < 0.8  # the first pull is a guess
    assert found[2:].min() > 0.9
    assert by_trial(tmp_path, "blind").max() < 0.8
    assert by_trial(tmp_path, "remembers", "evaluation.settings.redraw=trial")[2:].mean() < 0.7  # nothing to remember
    shown = CliRunner().invoke(app, ["evaluate", "remembers", f"store_url=sqlite:///{tmp_path}/loom.db"]).stdout
    assert "Mean return by trial" in shown


def test_many_trials_are_shown_from_the_first_to_the_last() -> None:
    assert shown_counts(5) == [1, 2, 3, 4, 5]
    assert shown_counts(8) == list(range(1, 9))
    assert shown_counts(100) == [1, 2, 4, 7, 14, 27, 52, 100]


def test_a_run_over_trials_that_broke_off_goes_on_as_if_it_never_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poles = {"environment": "loomrl.envs.trials:LoomPhysics-v0", "vary": {"force_mag": [-10.0, 10.0]}, "trials": 3}
    same = {"rollout": {"environments": 4, "steps": 40}, "train.steps": 640, "train.checkpoint_every": 160}
    plain = arms(tmp_path, **same).plain
    settings = {**plain, "environment": {**plain["environment"], "settings": poles}}
    assert_goes_on(ControlExperiment.parse(settings), tmp_path, monkeypatch)


def test_a_run_begins_with_the_weights_of_another_and_with_nothing_else(tmp_path: Path) -> None:
    first = train(arms(tmp_path), run="first")
    again = train(arms(tmp_path, parent="first", **{"train.steps": 160}), run="again")
    assert again.before == first.after
    assert history(arms(tmp_path), "again")[0]["step"] == 160
    with open_store(arms(tmp_path).store_url) as db:
        begun = POLICIES.latest(db, run="again")[-1]
        assert (begun.id, begun.parent) == ("again/0", first.policy)
    same = {name: policy_of(tmp_path, run) for name, run in (("first", "first"), ("again", "again"))}
    assert any(not torch.equal(same["first"][name], same["again"][name]) for name in same["first"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm.network.hidden": [8]}, r"parent: .*network.hidden is \[16\] there and \[8\] here"),
        ({"algorithm.network.memory.size": 8}, "parent: .*network.memory is"),
        ({"environment.settings.vary.probabilities": [[0.0, 0.5, 1.0]]}, "parent: .*observations is .* actions is"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    train(arms(tmp_path, **{"train.steps": 160}), run="first")
    with pytest.raises(ArtifactError, match=words):
        train(arms(tmp_path, parent="first", **changes), run="other")
    with pytest.raises(ArtifactError, match=words):
        transfer(arms(tmp_path, **changes, **LEVEL), ["first"], seeds=[1])
    with open_store(arms(tmp_path).store_url) as db:
        assert all(not made.run.startswith("arms-transfer") for made in POLICIES.latest(db))  # nothing was trained


LEVEL = {"train.stop.evaluated": 8.5, "evaluation.every": 320, "evaluation.episodes": 20}


def test_a_run_ends_when_an_evaluation_reaches_the_level_also_before_the_first_update(tmp_path: Path) -> None:
    result = train(arms(tmp_path, **LEVEL), run="r")
    assert result.stopped.startswith("level reached: ")
    assert result.policy.startswith("r/")
    assert 0 < int(result.policy[2:]) < 3200
    again = train(arms(tmp_path, **LEVEL, parent="r"), run="again")
    assert (again.policy, again.updates) == ("again/0", 0)
    assert again.stopped.startswith("level reached: ")


def test_transfer_tells_the_steps_from_scratch_and_from_each_version(tmp_path: Path) -> None:
    train(arms(tmp_path), run="meta")
    train(arms(tmp_path, **{"environment.settings.vary.probabilities": [[0.0, 1.0]], "train.steps": 800}), run="plain")
    swapped = {"environment.settings.vary.probabilities": [[1.0, 0.0]], "algorithm.learning_rate": 1e-3}
    (tmp_path / "to.yaml").write_text(dump(arms(tmp_path, **LEVEL, **swapped)))
    found = told("evaluate", "--transfer", "meta", "--transfer", "plain", str(tmp_path / "to.yaml"), "--seed", "1")
    scratch, meta, plain = found["starts"]
    assert [each["parent"].split("/")[0] for each in found["starts"]] == ["scratch", "meta", "plain"]
    assert (scratch["before"], f"meta/{meta['before']}") == (0, meta["parent"])
    assert (meta["steps"], meta["median"]) == ([0], 0)  # it knows what to do with an arm that pays nothing
    assert plain["first"][0] < 2  # it knows one arm only, and that is the other
    assert plain["steps"] != [0]
    assert scratch["steps"][0] is None or scratch["steps"][0] > 0
    with open_store(arms(tmp_path).store_url) as db:
        assert RUNS.require(db, found["run"]).result["level"] == 8.5
        assert RUNS.require(db, meta["runs"][0]).parent_policy == meta["parent"]


@pytest.mark.parametrize(
    ("changes", "parents", "words"),
    [
        ({}, ["first"], "--transfer: no level to reach. Give train.stop.evaluated"),
        ({"train.stop.target": 5}, ["first"], "evaluation.every=null tells of no level"),
        ({**LEVEL, "parent": "first"}, ["first"], "parent=first has no effect"),
        (LEVEL, ["fist"], r"--transfer: version='fist' is unknown.*Did you mean 'first'"),
    ],
)
def test_a_transfer_that_cannot_be_is_refused_by_name(
    changes: dict[str, Any], parents: list[str], words: str, tmp_path: Path
) -> None:
    train(arms(tmp_path, **{"train.steps": 160}), run="first")
    with pytest.raises(ConfigError, match=words):
        transfer(arms(tmp_path, **changes), parents, seeds=[1])


def test_options_of_a_transfer_are_refused_without_one_and_language_is_too() -> None:
    alone = CliRunner().invoke(app, ["evaluate", "control/cartpole", "--seed", "2"])
    assert "--seed=2 is of --transfer FROM" in repr(alone.exception)
    beside = CliRunner().invoke(app, ["evaluate", "--transfer", "a", "control/cartpole", "--policy", "random"])
    assert "--policy=random: --transfer evaluates what it trains" in repr(beside.exception)
    with pytest.raises(ConfigError, match="is one of language"):
        transfer(resolve(["language/math_tiny"]), ["a"], seeds=[1])
    with pytest.raises(ConfigError, match=r"train\.stop\.evaluated=3 has no effect with several objectives"):
        resolve(["control/minecart", "train.stop.evaluated=3"])
