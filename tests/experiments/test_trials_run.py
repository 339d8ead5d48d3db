"""Learning within an episode, from the command line: what a memory gains, by trial; beginning with other weights, and
what these save.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.config import ControlExperiment
from loomrl.errors import ArtifactError, ConfigError
from loomrl.experiments.commands.output import shown_counts
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from loomrl.experiments.transfer import transfer
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS
from tests.algorithms.control_support import MARKS
from tests.command_line import typed, typed_json
from tests.experiments.runs import assert_goes_on, history, places, same, weights

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
        train={"steps": 3200, "checkpoint_every": 800, "tell_every": 160},
        evaluation={"every": None, "episodes": 40},
    )
    return base.override(places(folder) | changes)


def by_trial(folder: Path, run: str, *words: str) -> Any:
    report = typed_json("evaluate", run, f"store_url=sqlite:///{folder}/loom.db", *words)["policies"][run]
    np.testing.assert_allclose(sum(report["trials"]), report["overall"]["reward"]["mean"])
    return np.array(report["trials"])


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None, one_thread_in_module: None) -> Path:
    """The folder of a run `meta` that has learnt to find the arm."""
    folder = tmp_path_factory.mktemp("meta")
    train(arms(folder), run="meta")
    return folder


def test_a_memory_finds_the_arm_that_pays_and_without_past_half_of_all_pulls_do(meta: Path) -> None:
    train(arms(meta, **{"algorithm.network.memory": None, "environment.settings.recall": False}), run="blind")
    found = by_trial(meta, "meta")
    assert found[0] < 0.8  # the first pull is a guess
    assert found[2:].min() > 0.9
    assert by_trial(meta, "blind").max() < 0.8
    assert by_trial(meta, "meta", "evaluation.settings.redraw=trial")[2:].mean() < 0.7  # nothing to remember
    assert "Mean return by trial" in typed("evaluate", "meta", f"store_url=sqlite:///{meta}/loom.db")


def test_many_trials_are_shown_from_the_first_to_the_last() -> None:
    assert shown_counts(5) == [1, 2, 3, 4, 5]
    assert shown_counts(8) == list(range(1, 9))
    assert shown_counts(100) == [1, 2, 4, 7, 14, 27, 52, 100]


def test_a_run_over_trials_that_broke_off_goes_on_as_if_it_never_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poles = {"environment": "loomrl.envs.trials:LoomPhysics-v0", "vary": {"force_mag": [-10.0, 10.0]}, "trials": 3}
    small = {"rollout": {"environments": 4, "steps": 40}, "train.steps": 640, "train.checkpoint_every": 160}
    plain = arms(tmp_path, **small, **{"evaluation.episodes": 2}).plain
    settings = {**plain, "environment": {**plain["environment"], "settings": poles}}
    assert_goes_on(ControlExperiment.parse(settings), monkeypatch)


def test_a_run_begins_with_the_weights_of_another_and_with_nothing_else(tmp_path: Path) -> None:
    short = {"train.steps": 160}
    settings = arms(tmp_path, **short)
    first = train(settings, run="first")
    again = train(arms(tmp_path, parent="first", **short), run="again")
    assert again.before == first.after
    assert history(settings, "again")[0]["step"] == 160
    with open_store(settings.store_url) as db:
        begun = POLICIES.latest(db, run="again")[-1]
        assert (begun.id, begun.parent) == ("again/0", first.policy)
    assert not same(weights(settings, "first"), weights(settings, "again"))
    for changes, words in (
        ({"algorithm.network.hidden": [8]}, r"parent: .*network.hidden is \[16\] there and \[8\] here"),
        ({"algorithm.network.memory.size": 8}, "parent: .*network.memory is"),
        ({"environment.settings.vary.probabilities": [[0.0, 0.5, 1.0]]}, "parent: .*observations is .* actions is"),
    ):
        with pytest.raises(ArtifactError, match=words):
            train(arms(tmp_path, parent="first", **changes), run=f"other-{len(words)}")
        with pytest.raises(ArtifactError, match=words):
            transfer(arms(tmp_path, **changes, **LEVEL), ["first"], seeds=[1])
    with open_store(settings.store_url) as db:
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


@pytest.mark.slow
def test_transfer_tells_the_steps_from_scratch_and_from_each_version(meta: Path) -> None:
    train(arms(meta, **{"environment.settings.vary.probabilities": [[0.0, 1.0]], "train.steps": 800}), run="plain")
    swapped = {"environment.settings.vary.probabilities": [[1.0, 0.0]], "algorithm.learning_rate": 1e-3}
    (meta / "to.yaml").write_text(dump(arms(meta, **LEVEL, **swapped, **{"train.steps": 640})))
    words = ["--transfer", "meta", "--transfer", "plain", "--seed", "1"]
    found = typed_json("evaluate", str(meta / "to.yaml"), *words)
    scratch, learnt, plain = found["starts"]
    assert [each["parent"].split("/")[0] for each in found["starts"]] == ["scratch", "meta", "plain"]
    assert (scratch["before"], f"meta/{learnt['before']}") == (0, learnt["parent"])
    assert (learnt["steps"], learnt["median"]) == ([0], 0)  # it knows what to do with an arm that pays nothing
    assert plain["first"][0] < 2  # it knows one arm only, and that is the other
    assert plain["steps"] != [0]
    assert scratch["steps"][0] is None or scratch["steps"][0] > 0
    with open_store(arms(meta).store_url) as db:
        assert RUNS.require(db, found["run"]).result["level"] == 8.5
        assert RUNS.require(db, learnt["runs"][0]).parent_policy == learnt["parent"]


def test_a_transfer_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    train(arms(tmp_path, **{"train.steps": 160, "evaluation.episodes": 2}), run="first")
    for changes, parent, words in (
        ({}, "first", "--transfer: no level to reach. Give train.stop.evaluated"),
        ({"train.stop.target": 5}, "first", "evaluation.every=null tells of no level"),
        ({**LEVEL, "parent": "first"}, "first", "parent=first has no effect"),
        (LEVEL, "fist", r"--transfer: version='fist' is unknown.*Did you mean 'first'"),
    ):
        with pytest.raises(ConfigError, match=words):
            transfer(arms(tmp_path, **changes), [parent], seeds=[1])
    with pytest.raises(ConfigError, match="is one of language"):
        transfer(resolve(["language/math_tiny"]), ["a"], seeds=[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["control/cartpole", "--seed", "2"], "--seed=2 is of --transfer FROM"),
        (
            ["--transfer", "a", "control/cartpole", "--policy", "random"],
            "--policy=random: --transfer evaluates what it trains",
        ),
        (["control/minecart", "train.stop.evaluated=3"], "evaluated=3 has no effect with several objectives"),
    ],
)
def test_options_of_a_transfer_are_refused_without_one(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        typed("evaluate", *words)
