"""A run that makes no progress says what it waits for, with the stacks of the part that is stuck."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from loomrl.algorithms.language.learner import LanguageLearner
from loomrl.algorithms.language.runner import LanguageRunner
from loomrl.experiments.train import WAITS
from loomrl.inference.torch.engine import TorchEngine
from loomrl.process import _catches, stacks_if_stuck
from tests.algorithms.control_envs import Identity
from tests.algorithms.control_support import ppo
from tests.algorithms.language_support import RAY, build, train

pytestmark = [*RAY, pytest.mark.slow]


@pytest.mark.parametrize(
    ("part", "method", "said"),
    [
        (LanguageRunner, "sample", "attempts of the runners"),
        (LanguageLearner, "update", "the learners"),
        (TorchEngine, "_apply", "the engines"),
    ],
)
def test_a_deadlocked_part_is_named_and_shows_its_stack(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    part: type,
    method: str,
    said: str,
) -> None:
    algo = build(tmp_path)
    train(algo, 1)
    own: Any = getattr(part, method)
    released = threading.Event()

    def deadlocked(*given: Any, **named: Any) -> Any:
        released.wait(6)
        return own(*given, **named)

    monkeypatch.setattr(part, method, deadlocked)
    with stacks_if_stuck(WAITS, 3.0):
        train(algo, 1)
    told = capfd.readouterr().err
    assert f"waiting for {said}." in told
    assert " in deadlocked" in told


@pytest.mark.usefixtures("control_environments")
def test_an_environment_of_control_that_hangs_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    algo = ppo().build_algo()
    own = Identity.step
    released = threading.Event()

    def deadlocked(self: Identity, action: Any) -> Any:
        released.wait(3)
        released.set()
        return own(self, action)

    monkeypatch.setattr(Identity, "step", deadlocked)
    with stacks_if_stuck(WAITS, 1.0):
        algo.train()
    told = capfd.readouterr().err
    assert "waiting for a step of the environment." in told
    assert " in deadlocked" in told


@pytest.mark.usefixtures("control_environments")
def test_remote_runners_and_learners_of_control_write_their_stacks_when_asked() -> None:
    algo = ppo().env_runners(num_env_runners=1).learners(num_learners=1).build_algo()
    found = [
        *algo.env_runner_group.foreach_env_runner(lambda _: _catches(os.getpid(), signal.SIGUSR2)),
        *(each.get() for each in algo.learner_group.foreach_learner(lambda _: _catches(os.getpid(), signal.SIGUSR2))),
    ]
    algo.stop()
    assert len(found) >= 2
    assert all(found)
