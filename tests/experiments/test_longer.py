"""A run that is over is trained on, as if it had been meant to be that long from the beginning."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from loomrl.config import AnyExperiment
from loomrl.errors import StoreError
from loomrl.experiments.cli import app
from loomrl.experiments.train import resumed, train
from loomrl.load import parse_assignments
from loomrl.store import open_store
from loomrl.store.runs import ask_to_stop
from tests.algorithms import language_support
from tests.experiments import test_train, test_train_control

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


def extended(settings: AnyExperiment, *words: str) -> tuple[AnyExperiment, str]:
    """As `loomrl train --resume --run r WORDS` has it."""
    return resumed(settings, "r", parse_assignments(words))


def stopped_at_once(settings: AnyExperiment) -> Any:
    def ask(done: int, metrics: Mapping[str, float]) -> None:
        with open_store(settings.store_url) as db:
            ask_to_stop(db, "r", who="ann", why="lunch", at=1.0)

    return ask


@pytest.mark.usefixtures("one_thread")
def test_a_language_run_is_trained_on_as_if_it_had_been_longer(tmp_path: Path) -> None:
    settings = language_support.experiment(tmp_path, **{"train.updates": 1})
    assert train(settings, run="r").stopped == "all 1 updates done"
    longer, run = extended(settings, "train.updates=3")
    assert train(longer, run=run, listener=stopped_at_once(settings)).policy == "r/2"
    again, run = resumed(settings, "r")  # it is known for how long
    assert train(again, run=run).policy == "r/3"
    train(settings.override({"train.updates": 3}), run="whole")
    assert test_train.same(test_train.weights(tmp_path, "r", 3), test_train.weights(tmp_path, "whole", 3))
    assert train(again, run=run).stopped == "all 3 updates done"


def test_a_control_run_is_trained_on_from_the_command_line(tmp_path: Path) -> None:
    """No file is named: what is changed is of the run's experiment, not of the one that `train` has by default."""
    settings = test_train_control.experiment(tmp_path, **{"train.steps": 512, "evaluation.every": 512})
    train(settings, run="r")
    words = ["train", "--resume", "--run", "r", f"store_url={settings.store_url}"]
    told = CliRunner().invoke(app, [*words, "train.steps=1024"])
    assert told.exit_code == 0, told.output
    assert "steps done" in told.output
    wrong = CliRunner().invoke(app, [*words, "train.stepz=2048"])
    assert "run r, resumed: 1 fault(s)" in str(wrong.exception)
    assert "train.stepz=2048: no such setting here" in str(wrong.exception)


def test_a_control_run_is_trained_on_as_if_it_had_been_longer(tmp_path: Path) -> None:
    settings = test_train_control.experiment(tmp_path, **{"train.steps": 512, "evaluation.every": 512})
    short = train(settings, run="r")
    assert short.stopped.endswith("steps done")
    longer, run = extended(settings, "train.steps=2048")
    last = train(longer, run=run).policy
    assert last != short.policy
    whole = settings.override({"train.steps": 2048})
    assert train(whole, run="whole").policy == last.replace("r/", "whole/")
    ours, theirs = (test_train_control.policy_of(tmp_path, name) for name in ("r", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert test_train_control.history(whole, "r") == test_train_control.history(whole, "whole")


def test_what_goes_by_the_length_is_no_run_of_another(tmp_path: Path) -> None:
    settings = test_train_control.experiment(tmp_path, **{"train.steps": 256, "algorithm.schedule.kind": "linear"})
    train(settings, run="r")
    longer, run = extended(settings, "train.steps=512")
    with pytest.raises(StoreError, match=r"train\.steps=512, which was 256.* Start a new run"):
        train(longer, run=run)


def test_a_run_that_reached_its_target_is_over_when_it_is_resumed(tmp_path: Path) -> None:
    stop = {"window": 1, "target": 0.01}
    settings = language_support.experiment(tmp_path, **{"train.updates": 9, "train.stop": stop})
    first = train(settings, run="r")
    assert first.stopped.startswith("target reached")
    again = train(settings, run="r")
    assert (again.policy, again.stopped) == (first.policy, first.stopped)
