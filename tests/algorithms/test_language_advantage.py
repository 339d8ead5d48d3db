from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.algorithms.advantage import explained_variance, has_signal
from loomrl.algorithms.language.advantage import (
    Estimate,
    estimate,
    group_relative,
    leave_one_out,
    over_attempts,
    preference_pairs,
    token_gae,
    whiten,
)
from loomrl.algorithms.language.loss import token_weights
from loomrl.algorithms.language.measure import measure, staleness
from loomrl.algorithms.language.packing import Sample, attempts_of, plan_update
from loomrl.algorithms.language.sample import REWARD, preferences, samples_of
from loomrl.config import GRPO, PPO, RLOO, Reinforce
from loomrl.config.language import Optimizer
from loomrl.telemetry.metric import Metric
from loomrl.types import Group, Trajectory
from tests.algorithms.attempts import attempt, turn

rewards = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=9).map(np.array)


@st.composite
def episodes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, values and mask of one sample; rewards sit on action tokens."""
    mask = np.array(draw(st.lists(st.booleans(), min_size=1, max_size=12)))
    numbers = st.lists(st.floats(-3, 3), min_size=len(mask), max_size=len(mask)).map(np.array)
    return draw(numbers) * mask, draw(numbers), mask


def test_group_relative_is_the_distance_to_the_mean_in_deviations() -> None:
    np.testing.assert_allclose(group_relative(np.array([1, 0, 0, 0]), scale=False), [0.75, -0.25, -0.25, -0.25])
    scaled = group_relative(np.array([3.0, 1.0]), scale=True)
    np.testing.assert_allclose(scaled, [1, -1])


@given(rewards)
def test_leave_one_out_equals_its_definition(rewards_G: np.ndarray) -> None:
    siblings = [np.delete(rewards_G, i) for i in range(len(rewards_G))]
    expected = [reward - rest.mean() if len(rest) else 0.0 for reward, rest in zip(rewards_G, siblings, strict=True)]
    np.testing.assert_allclose(leave_one_out(rewards_G), expected, atol=1e-6)


@pytest.mark.parametrize("equal", [[1.0], [0.0, 0.0], [0.3, 0.1 + 0.2, 0.3], [-1e6] * 4])
def test_equal_rewards_teach_nothing(equal: list[float]) -> None:
    rewards_G = np.array(equal)
    assert not has_signal(rewards_G)
    assert has_signal(np.append(rewards_G, rewards_G[0] + 0.01))
    assert not group_relative(rewards_G, scale=True).any()
    assert not leave_one_out(rewards_G).any()
    assert preference_pairs(rewards_G, limit=4) == []


def gae_of_one(
    rewards_T: np.ndarray, values_T: np.ndarray, mask_T: np.ndarray, *, gamma: float, lam: float
) -> tuple[np.ndarray, np.ndarray]:
    (advantages_T,), (returns_T,) = token_gae([rewards_T], [values_T], [mask_T], gamma=gamma, lam=lam)
    return advantages_T, returns_T


@given(episodes())
def test_gae_without_discount_is_return_minus_value(episode: tuple[np.ndarray, ...]) -> None:
    rewards_T, values_T, mask_T = episode
    advantages, returns = gae_of_one(rewards_T, values_T, mask_T, gamma=1.0, lam=1.0)
    to_go = np.cumsum(rewards_T[::-1])[::-1]
    np.testing.assert_allclose(advantages, np.where(mask_T, to_go - values_T, 0), atol=1e-9)
    np.testing.assert_allclose(returns, np.where(mask_T, to_go, 0), atol=1e-9)


def test_environment_tokens_take_no_time_between_turns() -> None:
    rewards_T = np.array([0, 0, 1, 0, 0, 4.0])
    values_T = np.array([9, 0.5, 0.5, 9, 9, 0.5])
    mask_T = np.array([False, True, True, False, False, True])
    advantages, returns = gae_of_one(rewards_T, values_T, mask_T, gamma=0.5, lam=0.5)
    # deltas: 0 + .25 - .5, 1 + .25 - .5, 4 - .5; discounted by gamma * lam = .25
    np.testing.assert_allclose(advantages, [0, -0.25 + 0.25 * (0.75 + 0.875), 0.75 + 0.875, 0, 0, 3.5])
    np.testing.assert_allclose(returns[mask_T], advantages[mask_T] + 0.5)
    assert not returns[~mask_T].any()


def test_a_reward_that_no_action_token_would_get_is_refused() -> None:
    with pytest.raises(ValueError, match="last action token"):
        gae_of_one(np.array([0.0, 1.0]), np.zeros(2), np.array([True, False]), gamma=1.0, lam=1.0)


@given(st.lists(episodes(), min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_a_batch_is_estimated_as_its_samples_are_one_by_one(
    batch: list[tuple[np.ndarray, ...]], gamma: float, lam: float
) -> None:
    together = token_gae(*([episode[i] for episode in batch] for i in range(3)), gamma=gamma, lam=lam)
    for i, episode in enumerate(batch):
        alone = gae_of_one(*episode, gamma=gamma, lam=lam)
        for whole, single in zip(together, alone, strict=True):
            np.testing.assert_allclose(whole[i], single, atol=1e-12)


@given(episodes())
def test_whitening_gives_mean_zero_and_deviation_one_inside_the_mask(episode: tuple[np.ndarray, ...]) -> None:
    _, values_T, mask_T = episode
    white = whiten(values_T, mask_T)
    assert not white[~mask_T].any()
    if has_signal(values_T[mask_T]):
        assert white[mask_T].mean() == pytest.approx(0, abs=1e-6)
        assert white[mask_T].std() == pytest.approx(1, abs=1e-6)
    else:
        assert not white.any()


def test_best_attempts_are_preferred_to_worst_and_equal_ones_to_nobody() -> None:
    assert preference_pairs(np.array([0.0, 1.0, 0.5, 0.2]), limit=4) == [(1, 0), (2, 3)]
    assert preference_pairs(np.array([0.0, 1.0, 0.0, 0.0]), limit=4) == [(1, 3)]
    assert preference_pairs(np.array([0.0, 1.0, 0.5, 0.2]), limit=1) == [(1, 0)]


def test_explained_variance_is_one_for_a_prophet_and_zero_for_a_constant() -> None:
    returns = np.array([0.0, 1.0, 2.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.full(3, 5.0), returns) == 0.0
    assert explained_variance(-returns, returns) == pytest.approx(-3.0)
    assert explained_variance(returns, np.zeros(3)) == 0.0


ALGORITHMS = [
    GRPO(),
    GRPO(scale=False),
    RLOO(),
    Reinforce(gamma=1.0),
    Reinforce(normalize_advantages=False, gamma=1.0),
    PPO(gae_lambda=1.0, gamma=1.0),
]


def played(id: str, reward: float, *threads: tuple[int, int]) -> Trajectory:
    """Threads as counts of given and sampled tokens; the first is `turns`, and earns the reward."""
    first, *others = threads
    return attempt(id, [turn(*first, reward)], threads=tuple((turn(*each),) for each in others))


MANY = Group("g", (played("a", 1.0, (3, 2), (2, 4), (5, 1)), played("b", 0.0, (3, 4)), played("c", 0.5, (2, 1))))
ONE = Group("g", (played("a", 1.0, (3, 7)), played("b", 0.0, (3, 4)), played("c", 0.5, (2, 1))))
"""The same attempts, all of them in one thread."""


def advantages(algorithm: Any, group: Group) -> tuple[list[Sample], Estimate]:
    samples, names = samples_of([group])
    rewards = [s.columns[REWARD] for s in samples]
    masks = [s.mask_T for s in samples]
    values = [0.25 * mask_T.astype(np.float32) for mask_T in masks]
    made = over_attempts(
        partial(estimate, algorithm), rewards, masks, groups=names, values=values, attempts=attempts_of(samples)
    )
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
        optimizer = Optimizer(minibatches=1, micro_batch_tokens=1024)
        ((step,),) = plan_update(sizes, optimizer=optimizer, learners=1, rng=np.random.default_rng(0))
        targets_N = np.array([size.targets for size in sizes])
        shares = [size.share for size in sizes]
        made = token_weights(targets_N, average=average, tokens=step.targets, samples=step.samples, shares_N=shares)
        assert (made * targets_N).sum() == pytest.approx(1)
        return np.array([sum((made * targets_N)[threads]) for threads in attempts_of(samples)])

    np.testing.assert_allclose(weights(MANY), weights(ONE), rtol=1e-6)


def test_what_an_attempt_earned_is_learnt_even_if_its_first_thread_has_no_ids() -> None:
    whole = played("a", 2.0, (3, 2), (2, 4))
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
