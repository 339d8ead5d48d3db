import json
import math
import random

import pytest

from algorithms.bandit import Bandit
from loomrl.config import BanditAlgorithm
from loomrl.errors import ConfigError
from loomrl.gym.policy import log_softmax
from loomrl.types import End, Failure, Group, Reward, Task, Tokens, Trajectory, Turn

TASK = Task("Math", "1.0.0", "a", 1, 0)
WORTH = (1.0, 0.1, 0.0)


def attempt(arm: int, reward: float, *, failed: bool = False) -> Trajectory:
    return Trajectory(
        id="t",
        task=TASK,
        turns=(Turn((), "x", tokens=Tokens.of([arm], [True], [-1.0], [0])),),
        end=End.FAILED if failed else End.TERMINATED,
        reward=Reward(reward),
        group="g",
        failure=Failure("environment", "E", "m") if failed else None,
    )


def groups(bandit: Bandit, rng: random.Random, *, shuffled: bool = False) -> list[Group]:
    chances = [math.exp(p) for p in log_softmax(bandit.logits)]
    arms = rng.choices(range(3), chances, k=64)
    rewards = [WORTH[arm] for arm in arms]
    if shuffled:
        rng.shuffle(rewards)
    attempts = [attempt(arm, reward) for arm, reward in zip(arms, rewards, strict=True)]
    return [Group(str(i), tuple(attempts[i : i + 8])) for i in range(0, 64, 8)]


def trained(seed: int, *, shuffled: bool) -> float:
    bandit, rng = Bandit(BanditAlgorithm()), random.Random(seed)
    for _ in range(30):
        bandit.learn(groups(bandit, rng, shuffled=shuffled))
    return math.exp(log_softmax(bandit.logits)[0])


def test_reward_reaches_the_policy_and_shuffled_reward_does_not() -> None:
    learnt = [trained(seed, shuffled=False) for seed in range(5)]
    control = [trained(seed, shuffled=True) for seed in range(5)]
    assert min(learnt) > 0.9
    assert sum(control) / 5 < 0.6


def test_failed_attempts_and_lone_ones_teach_nothing() -> None:
    bandit = Bandit(BanditAlgorithm())
    bandit.learn([Group("g", (attempt(0, 1.0), attempt(1, 0.0, failed=True))), Group("h", (attempt(2, 5.0),))])
    assert bandit.logits == [0.0, 0.0, 0.0]


def test_bandit_resumes_as_if_it_never_stopped() -> None:
    whole, resumed = Bandit(BanditAlgorithm()), Bandit(BanditAlgorithm())
    rng = random.Random(3)
    whole.learn(groups(whole, rng))
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    batch = groups(whole, rng)
    assert whole.learn(batch) == resumed.learn(batch)
    assert whole.logits == resumed.logits


def test_checkpoint_of_other_arms_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.arms"):
        Bandit(BanditAlgorithm()).load_state_dict(Bandit(BanditAlgorithm(arms=("oracle", "random"))).state_dict())


def test_policy_carries_what_was_learnt() -> None:
    bandit = Bandit(BanditAlgorithm())
    bandit.learn(groups(bandit, random.Random(0)))
    policy = bandit.policy(7)
    assert (policy.arms, policy.logits, policy.version) == (bandit.settings.arms, tuple(bandit.logits), 7)
