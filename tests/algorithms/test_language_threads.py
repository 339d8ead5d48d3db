"""Attempts of several threads: each thread is a row, they share what the attempt earned, and it counts once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loomrl.algorithms.language.advantage import Estimate, estimate, over_attempts
from loomrl.algorithms.language.loss import token_weights
from loomrl.algorithms.language.measure import measure, staleness
from loomrl.algorithms.language.packing import Sample, attempts_of, plan_update
from loomrl.algorithms.language.sample import REWARD, preferences, sample_of, samples_of
from loomrl.config import GRPO, PPO, RLOO, Reinforce
from loomrl.config.language import Optimizer
from loomrl.telemetry.metric import Metric
from loomrl.types import End, Group, Reward, Task, Tokens, Trajectory, Turn

ALGORITHMS = [
    GRPO(),
    GRPO(scale=False),
    RLOO(),
    Reinforce(gamma=1.0),
    Reinforce(normalize_advantages=False, gamma=1.0),
    PPO(gae_lambda=1.0, gamma=1.0),
]


def turn(prompt: int, action: int, reward: float = 0.0, version: int = 0) -> Turn:
    mask = np.repeat([False, True], [prompt, action])
    ids = np.arange(prompt + action, dtype=np.int32)
    versions = np.where(mask, version, -1).astype(np.int32)
    tokens = Tokens(ids, mask, np.where(mask, -0.5, 0.0).astype(np.float32), versions)
    return Turn((), "x", reward=Reward(reward, {"a": reward}, float(reward > 0)), tokens=tokens)


def attempt(id: str, reward: float, *threads: tuple[int, int]) -> Trajectory:
    """Threads as counts of given and sampled tokens; the first is `turns`, and earns the reward."""
    first, *others = threads
    return Trajectory(
        id=id,
        task=Task("Ascii", "1.0.0", "plain", 2, 0),
        turns=(turn(*first, reward),),
        end=End.TERMINATED,
        reward=Reward(reward, {"a": reward}, float(reward > 0)),
        group="g",
        threads=tuple((turn(*each),) for each in others),
    )


MANY = Group("g", (attempt("a", 1.0, (3, 2), (2, 4), (5, 1)), attempt("b", 0.0, (3, 4)), attempt("c", 0.5, (2, 1))))
ONE = Group("g", (attempt("a", 1.0, (3, 7)), attempt("b", 0.0, (3, 4)), attempt("c", 0.5, (2, 1))))
"""The same attempts, all of them in one thread."""


class Learner:
    """Only what makes advantages."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm

    def advantages(self, rewards: Any, masks: Any, *, groups: Any, values: Any) -> Estimate:
        return estimate(self.algorithm, rewards, masks, groups=groups, values=values)


def advantages(algorithm: Any, group: Group) -> tuple[list[Sample], Estimate]:
    samples, names = samples_of([group])
    rewards, masks = [s.columns[REWARD] for s in samples], [s.mask_T for s in samples]
    values = [0.25 * mask_T.astype(np.float32) for mask_T in masks]
    made = over_attempts(Learner(algorithm), rewards, masks, groups=names, values=values, attempts=attempts_of(samples))
    return samples, made


def test_every_thread_is_a_row_and_the_first_is_last() -> None:
    samples, names = samples_of([MANY])
    assert [sample.attempt for sample in samples] == ["a", "a", "a", "", ""]
    assert [sample.size.targets for sample in samples] == [4, 1, 2, 4, 1]
    assert names == ["g"] * 5
    assert [float(sample.columns[REWARD].sum()) for sample in samples] == [0, 0, 1, 0, 0.5]
    assert sum(sample.share for sample in samples) == pytest.approx(3)
    assert attempts_of(samples) == [[0, 1, 2], [3], [4]]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_threads_share_the_advantage_of_the_same_attempt_in_one_thread(algorithm: Any) -> None:
    many, made = advantages(algorithm, MANY)
    one, expected = advantages(algorithm, ONE)
    joined = np.concatenate([a[s.mask_T] for a, s in zip(made.advantages, many, strict=True)])
    whole = np.concatenate([a[s.mask_T] for a, s in zip(expected.advantages, one, strict=True)])
    np.testing.assert_allclose(joined, whole, atol=1e-9)
    assert [len(a) for a in made.advantages] == [len(s.ids_T) for s in many]
    assert all(not a[~s.mask_T].any() for a, s in zip(made.advantages, many, strict=True))


@pytest.mark.parametrize("average", ["token", "sequence"])
def test_an_attempt_has_the_weight_that_it_has_in_one_thread(average: Any) -> None:
    def weights(group: Group) -> np.ndarray[Any, Any]:
        samples, _ = samples_of([group])
        sizes = [sample.size for sample in samples]
        optimizer = Optimizer(minibatches=1)
        ((step,),) = plan_update(sizes, optimizer=optimizer, learners=1, rng=np.random.default_rng(0))
        targets_N = np.array([size.targets for size in sizes])
        shares = [size.share for size in sizes]
        made = token_weights(targets_N, average=average, tokens=step.targets, samples=step.samples, shares_N=shares)
        assert (made * targets_N).sum() == pytest.approx(1)
        return np.array([sum((made * targets_N)[threads]) for threads in attempts_of(samples)])

    np.testing.assert_allclose(weights(MANY), weights(ONE), rtol=1e-6)


def test_attempts_without_threads_are_learnt_bit_by_bit_as_before() -> None:
    samples, _ = samples_of([ONE])
    assert all((sample.attempt, sample.share) == ("", 1.0) for sample in samples)
    for sample, played in zip(samples, ONE.trajectories, strict=True):
        alone = sample_of(played)
        assert alone is not None
        assert all(np.array_equal(sample.columns[name], alone.columns[name]) for name in alone.columns)
    targets_N = np.array([7, 4, 1])
    before = (1 / (np.maximum(targets_N, 1) * max(3, 1))).astype(np.float32)
    for shares in ((), (1.0, 1.0, 1.0)):
        now = token_weights(targets_N, average="sequence", tokens=12, samples=sum([1.0] * 3), shares_N=shares)
        assert now.tobytes() == before.tobytes()
    steps = plan_update([s.size for s in samples], optimizer=Optimizer(), learners=1, rng=np.random.default_rng(0))
    assert sum(step.samples for step in steps[0]) == 3 * Optimizer().epochs


def test_what_an_attempt_earned_is_learnt_even_if_its_first_thread_has_no_ids() -> None:
    whole = attempt("a", 2.0, (3, 2), (2, 4))
    lost = replace(whole, turns=(replace(whole.turns[0], tokens=None),))
    for clip, earned in ((None, 2.0), ((-1.0, 1.0), 1.0)):
        (sample,), _ = samples_of([Group("g", (lost,))], clip=clip)
        assert sample.columns[REWARD].sum() == pytest.approx(earned)
        assert not sample.attempt


def test_preferences_compare_attempts_not_threads() -> None:
    samples, names = samples_of([MANY])
    chosen, units = preferences([MANY], samples, names, pairs=4)
    assert units == [(0, 1)]
    assert [sample.size.targets for sample in chosen] == [2, 4]
    assert all(sample.share == 1.0 for sample in chosen)


def test_metrics_count_the_tokens_of_all_threads_and_the_attempt_once() -> None:
    found = measure([MANY], [], family_of=lambda task: task.family)
    assert found[Metric.REWARD_TOTAL] == 0.5
    assert found[Metric.LENGTH_ACTION] == pytest.approx(12 / 3)
    older = replace(MANY.trajectories[1], threads=((turn(1, 1, version=3),),))
    assert staleness([Group("g", (older,))], 5)[Metric.STALENESS_MEAN] == pytest.approx((4 * 5 + 2) / 5)
