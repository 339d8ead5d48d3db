"""A tiny language policy learns from nothing but ranks of its attempts, from a judge behind a server."""

import random
from pathlib import Path
from statistics import mean

import pytest

from loomrl.config import HubConfig
from loomrl.experiments.train import train
from loomrl.hub import open_hub
from loomrl.store import beside
from tests.algorithms.language_support import ENVIRONMENTS, RAY, experiment
from tests.gym.rank_support import Key, RankingJudge
from tests.gym.rubric_support import completion, serve_judge

pytestmark = [*RAY, pytest.mark.slow]
UPDATES = 20


def capitals(text: str, place: int = 0) -> float:
    """The share of capitals: a tenth of what a random model says."""
    return sum("A" <= letter <= "Z" for letter in text) / max(len(text), 1)


def shares(folder: Path, rule: Key, *, failures: int = 0) -> tuple[list[float], int]:
    """The share of capitals of each update's attempts that were ranked, and how many attempts that were."""
    with serve_judge(rule, RankingJudge) as judge:
        judge.faults = [(200, completion("The first is best."))] * failures
        part = judge.part(question="Which attempts have more capitals?", twice=0.25)
        settings = experiment(
            folder,
            "grpo",
            **{
                "environments": [{"id": f"{ENVIRONMENTS}SilentEnvironment"}],
                "train.updates": UPDATES,
                "rewards.parts": [part.plain],
            },
        )
        train(settings, run="r")
    found: list[list[float]] = [[] for _ in range(UPDATES)]
    with open_hub(beside(settings.store_url, "r"), HubConfig()) as hub:
        for _, one in hub.replay():
            if one.failure is None:
                assert one.reward.total == one.extra["grades"]["rank"]["score"], "nothing else pays"
                found[one.first_version].append(capitals(one.turns[-1].action))
    return [mean(each) for each in found], sum(map(len, found))


def test_a_policy_learns_from_ranks_alone_though_some_groups_get_none(tmp_path: Path) -> None:
    found, ranked = shares(tmp_path, capitals, failures=12)  # eight groups ask, and at least four of them twice in vain
    assert mean(found[-2:]) > mean(found[:2]) + 0.3
    assert ranked <= 64 * UPDATES - 4 * 8


def test_from_ranks_drawn_by_lot_it_learns_nothing(tmp_path: Path) -> None:
    lot = random.Random(0)
    found, _ = shares(tmp_path, lambda text, place: lot.random())
    assert mean(found[-2:]) < mean(found[:2]) + 0.1
