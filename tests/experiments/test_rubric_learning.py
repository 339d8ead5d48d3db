"""A tiny language policy learns what a rubric asks, from a judge behind a server; and nothing from shuffled rewards."""

from pathlib import Path
from statistics import mean

import pytest

from loomrl.algorithms.language import lesson as language
from loomrl.config import Experiment, HubConfig
from loomrl.experiments.train import train
from loomrl.hub import open_hub
from loomrl.store import beside
from tests.algorithms.language_support import RAY, experiment, shuffled
from tests.gym.rubric_support import NO, PARTLY, YES, Asked, ScriptedJudge, completion, serve_judge

pytestmark = [*RAY, pytest.mark.slow]
UPDATES = 14


def loud(asked: Asked, criterion: str) -> str:
    """The share of capitals: a tenth of what a random model says, and to the environment like other letters."""
    text = asked.answer
    share = sum("A" <= letter <= "Z" for letter in text) / max(len(text), 1)
    return YES if share > 0.5 else PARTLY if share > 0.15 else NO


def settings(folder: Path, judge: ScriptedJudge, **changes: object) -> Experiment:
    criteria = [{"name": "loud", "says": "What the assistant said is in capitals."}]
    part = judge.part(criteria=criteria, weight=4.0)
    return experiment(folder, "ppo", **{"train.updates": UPDATES, "rewards.parts": [part.plain], **changes})


def grades(settings: Experiment) -> list[list[float]]:
    """The judge's scores, by update."""
    found: list[list[float]] = [[] for _ in range(UPDATES)]
    with open_hub(beside(settings.store_url, "r"), HubConfig()) as hub:
        for _, one in hub.replay():
            if one.failure is None:
                found[one.first_version].append(one.extra["grades"]["rubric"]["raw"])
    return found


def test_a_policy_learns_what_a_rubric_asks(tmp_path: Path) -> None:
    with serve_judge(loud) as judge:
        judge.faults = [(200, completion("full marks"))] * 20  # ten attempts fail, and none of them is rewarded
        run = settings(tmp_path, judge)
        train(run, run="r")
        asked = len(judge.asked)
    found = grades(run)
    assert mean(found[-1]) > mean(found[0]) + 0.3
    assert sum(map(len, found)) < 64 * UPDATES
    assert asked <= 64 * UPDATES + 20


def test_from_shuffled_rewards_it_learns_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "samples_of", shuffled(language.samples_of))
    with serve_judge(loud) as judge:
        run = settings(tmp_path, judge)
        train(run, run="r")
    found = grades(run)
    assert mean(found[-1]) < mean(found[0]) + 0.1
