"""A run that is over is trained on, as if it had been meant to be that long from the beginning."""

from pathlib import Path

import pytest

from loomrl.errors import LoomError, StoreError
from loomrl.experiments.train import resumed, train
from loomrl.load import parse_assignments
from tests.algorithms import language_support
from tests.algorithms.control_support import MARKS
from tests.command_line import typed
from tests.experiments.runs import assert_same, history, stop_at
from tests.experiments.test_train_control import experiment

pytestmark = [pytest.mark.system, *MARKS]


def test_a_language_run_is_stopped_and_trained_on_as_if_it_had_been_longer(tmp_path: Path) -> None:
    small = {"train.updates": 1, "evaluation.episodes": 4, "rollout.groups_per_update": 4}
    settings = language_support.experiment(tmp_path, **small)
    assert train(settings, run="r").stopped == "all 1 updates done"
    longer, run = resumed(settings, "r", parse_assignments(["train.updates=4"]))
    stopped = train(longer, run=run, listener=stop_at(settings, "r", 3))
    assert (stopped.policy, stopped.stopped) == ("r/3", "stopped by ann: enough")
    again, run = resumed(settings, "r")  # it is known for how long
    last = train(again, run=run)
    assert (last.policy, last.stopped) == ("r/4", "all 4 updates done")
    assert last.seconds > stopped.seconds
    assert train(again, run=run).seconds >= last.seconds, "nothing was left to do"
    train(settings.override({"train.updates": 4}), run="whole")
    assert_same(settings, "r", "whole")


@pytest.mark.slow
def test_a_control_run_is_trained_on_from_the_command_line_as_if_it_had_been_longer(tmp_path: Path) -> None:
    """No file is named: what is changed is of the run's experiment, not of the one that `train` has by default."""
    settings = experiment(tmp_path, **{"train.steps": 512, "evaluation.every": 512})
    short = train(settings, run="r")
    assert short.stopped.endswith("steps done")
    words = ["train", "--resume", "--run", "r", f"store_url={settings.store_url}"]
    assert "steps done" in typed(*words, "train.steps=1024")
    with pytest.raises(LoomError, match=r"run r, resumed: 1 fault\(s\)\n  train.stepz=2048: no such setting here"):
        typed(*words, "train.stepz=2048")
    whole = settings.override({"train.steps": 1024})
    assert train(whole, run="whole").policy != short.policy.replace("r/", "whole/")
    assert_same(whole, "r", "whole")
    assert history(whole, "r") == history(whole, "whole")


def test_what_goes_by_the_length_is_no_run_of_another(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.steps": 256, "algorithm.schedule.kind": "linear"})
    train(settings, run="r")
    longer, run = resumed(settings, "r", parse_assignments(["train.steps=512"]))
    with pytest.raises(StoreError, match=r"train\.steps=512, which was 256.* Start a new run"):
        train(longer, run=run)


def test_a_run_that_reached_its_target_is_over_when_it_is_resumed(tmp_path: Path) -> None:
    stop = {"window": 1, "target": 0.01}
    settings = language_support.experiment(tmp_path, **{"train.updates": 9, "train.stop": stop})
    first = train(settings, run="r")
    assert first.stopped.startswith("target reached")
    assert first.updates < 9
    again = train(settings, run="r")
    assert (again.policy, again.stopped) == (first.policy, first.stopped)
