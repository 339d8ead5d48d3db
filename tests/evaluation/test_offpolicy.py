"""Estimates of another policy from logs, where its value is known exactly."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loomrl.control.logged import Logged
from loomrl.errors import DataError
from loomrl.evaluation.offpolicy import judge_logged

CHOICES = 3
NUMBERS = 2
Array = NDArray[Any]


class Softmax:
    """Chooses by a linear score of what it sees."""

    def __init__(self, seed, sharpness):
        self._weights = np.random.default_rng(seed).normal(size=(NUMBERS, CHOICES)) * sharpness

    def chances(self, seen_B, *, greedy):
        scores = seen_B @ self._weights
        if greedy:
            return np.eye(CHOICES)[scores.argmax(1)]
        shares = np.exp(scores - scores.max(1, keepdims=True))
        return shares / shares.sum(1, keepdims=True)


LOGGING = Softmax(1, 0.5)
CANDIDATE = Softmax(2, 1.0)
WORTH = np.random.default_rng(3).normal(size=(NUMBERS, CHOICES))


def chance_of_success(seen_B):
    return 1 / (1 + np.exp(-(seen_B @ WORTH)))


def bandit(count, seed):
    """One decision per episode: a context, a choice, success or none."""
    rng = np.random.default_rng(seed)
    seen_B = rng.normal(size=(count, NUMBERS)).astype(np.float32)
    chances_BA = LOGGING.chances(seen_B, greedy=False)
    chosen_B = (rng.random((count, 1)) > chances_BA.cumsum(1)).sum(1).clip(max=CHOICES - 1)
    won_B = rng.random(count) < chance_of_success(seen_B)[np.arange(count), chosen_B]
    return [
        Logged(
            seen=np.stack([seen_B[at]] * 2),
            actions=chosen_B[at : at + 1],
            rewards_T=won_B[at : at + 1].astype(np.float32),
            terminated=True,
            logprobs_T=np.log(chances_BA[at, chosen_B[at : at + 1]]).astype(np.float32),
        )
        for at in range(count)
    ]


def truth(*, greedy):
    seen_B = np.random.default_rng(9).normal(size=(400_000, NUMBERS))
    return float((CANDIDATE.chances(seen_B, greedy=greedy) * chance_of_success(seen_B)).sum(1).mean())


def judged(episodes, **settings):
    return judge_logged(episodes, CANDIDATE, **({"gamma": 1.0, "greedy": False} | settings))


def covered(count, runs, *, greedy):
    """Share of the 95 % intervals that hold the true value."""
    value = truth(greedy=greedy)
    names = ("ips", "snips", "dr", "logged")
    found = [judged(bandit(count, seed), greedy=greedy) for seed in range(runs)]
    return {
        name: float(np.mean([getattr(one, name).low <= value <= getattr(one, name).high for one in found]))
        for name in names
    }


def test_intervals_hold_the_value_as_often_as_they_promise():
    found = covered(400, 60, greedy=False)
    assert min(found[name] for name in ("ips", "snips", "dr")) >= 0.87
    assert found["logged"] < 0.8  # what was logged is another policy's


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [False, True])
def test_coverage_is_that_of_the_level(greedy):
    found = covered(1000, 400, greedy=greedy)
    for name in ("ips", "snips", "dr"):
        assert 0.92 <= found[name] <= 0.98, (name, found)


def test_what_is_known_of_rewards_makes_intervals_narrower():
    one = judged(bandit(2000, 0))
    width = {name: getattr(one, name).high - getattr(one, name).low for name in ("ips", "snips", "dr")}
    assert width["dr"] <= width["snips"] < width["ips"]


def test_a_policy_that_logged_itself_is_worth_its_mean_return():
    found = judge_logged(bandit(200, 0), LOGGING, gamma=1.0, greedy=False)
    assert found.effective == pytest.approx(200, rel=1e-3)
    for one in (found.ips, found.snips):
        assert one.mean == pytest.approx(found.logged.mean, abs=1e-4)


def chain(count, seed, act):
    """Three steps, each worth the number of its choice more than the one before, and what is seen is left to chance."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(count):
        seen = rng.normal(size=(4, NUMBERS)).astype(np.float32)
        chances = act(seen[:-1])
        chosen = np.array([rng.choice(CHOICES, p=row) for row in chances])
        episodes.append(
            Logged(
                seen=seen,
                actions=chosen,
                rewards_T=np.cumsum(chosen).astype(np.float32),
                terminated=True,
                logprobs_T=np.log(chances[np.arange(3), chosen]).astype(np.float32),
            )
        )
    return episodes


def test_sequences_are_weighed_step_by_step():
    mine = chain(4000, 1, lambda seen: CANDIDATE.chances(seen, greedy=False))
    value = np.mean([float((0.5 ** np.arange(3) * one.rewards_T).sum()) for one in mine])
    found = judged(chain(4000, 2, lambda seen: LOGGING.chances(seen, greedy=False)), gamma=0.5)
    for name in ("ips", "snips", "dr"):
        assert abs(getattr(found, name).mean - value) < 0.08, (name, value, found)
    assert abs(found.logged.mean - value) > 0.1


def test_logs_without_probabilities_tell_nothing():
    bare = [Logged(seen=one.seen, actions=one.actions, rewards_T=one.rewards_T, terminated=True)
            for one in bandit(30, 0)]  # fmt: skip
    with pytest.raises(DataError, match="0 of 30 episodes have the probabilities of all their actions"):
        judged(bare)
    assert judged([*bare, *bandit(30, 1)]).left_out == 30
