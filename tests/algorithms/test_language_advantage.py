import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.algorithms.advantage import explained_variance, has_signal
from loomrl.algorithms.language.advantage import (
    discounted_returns,
    gae,
    gae_batch,
    group_relative,
    leave_one_out,
    preference_pairs,
    whiten,
)

rewards = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=9).map(np.array)
gammas = st.floats(0, 1)


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


def test_leave_one_out_compares_with_the_mean_of_the_siblings() -> None:
    np.testing.assert_allclose(leave_one_out(np.array([1.0, 0.5, 0.0])), [0.75, 0.0, -0.75])


@given(rewards)
def test_leave_one_out_equals_its_definition(rewards_G: np.ndarray) -> None:
    siblings = [np.delete(rewards_G, i) for i in range(len(rewards_G))]
    expected = [reward - rest.mean() if len(rest) else 0.0 for reward, rest in zip(rewards_G, siblings, strict=True)]
    np.testing.assert_allclose(leave_one_out(rewards_G), expected, atol=1e-6)


@given(rewards, st.floats(-5, 5), st.floats(0.1, 10))
def test_group_relative_forgets_scale_and_offset_of_the_reward(rewards_G: np.ndarray, by: float, times: float) -> None:
    whole = np.round(rewards_G)  # spreads near rounding error are another test's
    np.testing.assert_allclose(
        group_relative(whole * times + by, scale=True), group_relative(whole, scale=True), atol=1e-6
    )


@given(rewards)
def test_group_advantages_sum_to_zero(rewards_G: np.ndarray) -> None:
    for advantages in (group_relative(rewards_G, scale=True), leave_one_out(rewards_G)):
        assert abs(advantages.sum()) < 1e-6
        assert np.isfinite(advantages).all()


@pytest.mark.parametrize("equal", [[1.0], [0.0, 0.0], [0.3, 0.1 + 0.2, 0.3], [-1e6] * 4])
def test_equal_rewards_teach_nothing(equal: list[float]) -> None:
    rewards_G = np.array(equal)
    assert not has_signal(rewards_G)
    assert not group_relative(rewards_G, scale=True).any()
    assert not leave_one_out(rewards_G).any()
    assert preference_pairs(rewards_G, limit=4) == []


def test_different_rewards_have_signal() -> None:
    assert has_signal(np.array([0.0, 0.0, 0.01]))
    assert not has_signal(np.array([]))


@given(episodes(), st.floats(-3, 3))
def test_gae_without_discount_is_return_minus_value(episode: tuple[np.ndarray, ...], bootstrap: float) -> None:
    rewards_T, values_T, mask_T = episode
    advantages, returns = gae(rewards_T, values_T, mask_T, gamma=1.0, lam=1.0, bootstrap=bootstrap)
    to_go = np.cumsum(rewards_T[::-1])[::-1] + bootstrap
    np.testing.assert_allclose(advantages, np.where(mask_T, to_go - values_T, 0), atol=1e-9)
    np.testing.assert_allclose(returns, np.where(mask_T, to_go, 0), atol=1e-9)


@given(episodes(), gammas)
def test_gae_with_lambda_zero_is_the_one_step_error(episode: tuple[np.ndarray, ...], gamma: float) -> None:
    rewards_T, values_T, mask_T = episode
    advantages, _ = gae(rewards_T, values_T, mask_T, gamma=gamma, lam=0.0, bootstrap=2.0)
    values = values_T[mask_T]
    expected = rewards_T[mask_T] + gamma * np.append(values[1:], 2.0)[: len(values)] - values
    np.testing.assert_allclose(advantages[mask_T], expected, atol=1e-9)


def test_environment_tokens_take_no_time_between_turns() -> None:
    rewards_T, values_T = np.array([0, 0, 1, 0, 0, 4.0]), np.array([9, 0.5, 0.5, 9, 9, 0.5])
    mask_T = np.array([False, True, True, False, False, True])
    advantages, returns = gae(rewards_T, values_T, mask_T, gamma=0.5, lam=0.5)
    # deltas: 0 + .25 - .5, 1 + .25 - .5, 4 - .5; discounted by gamma * lam = .25
    np.testing.assert_allclose(advantages, [0, -0.25 + 0.25 * (0.75 + 0.875), 0.75 + 0.875, 0, 0, 3.5])
    np.testing.assert_allclose(returns[mask_T], advantages[mask_T] + 0.5)
    assert not returns[~mask_T].any()


def test_a_reward_that_no_action_token_would_get_is_refused() -> None:
    with pytest.raises(ValueError, match="last action token"):
        gae(np.array([0.0, 1.0]), np.zeros(2), np.array([True, False]), gamma=1.0, lam=1.0)


@given(st.lists(st.tuples(episodes(), st.floats(-3, 3)), min_size=1, max_size=6), gammas, gammas)
def test_a_batch_is_estimated_as_its_samples_are_one_by_one(
    batch: list[tuple[tuple[np.ndarray, ...], float]], gamma: float, lam: float
) -> None:
    columns = [[episode[i] for episode, _ in batch] for i in range(3)]
    together = gae_batch(*columns, gamma=gamma, lam=lam, bootstrap_N=[bootstrap for _, bootstrap in batch])
    for i, ((rewards_T, values_T, mask_T), bootstrap) in enumerate(batch):
        alone = gae(rewards_T, values_T, mask_T, gamma=gamma, lam=lam, bootstrap=bootstrap)
        for whole, single in zip(together, alone, strict=True):
            np.testing.assert_allclose(whole[i], single, atol=1e-12)


def test_a_batch_of_512_samples_takes_milliseconds() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(30, 50, 512)
    masks = [rng.random(n) < 0.7 for n in lengths]
    columns = [[rng.random(len(mask)) * mask for mask in masks], [rng.random(n) for n in lengths], masks]
    times = []
    for _ in range(5):
        start = time.process_time()
        gae_batch(*columns, gamma=0.99, lam=0.95, bootstrap_N=np.zeros(512))
        times.append(time.process_time() - start)
    assert min(times) < 0.03  # sample by sample it is above 0.1


@given(episodes(), gammas)
def test_discounted_returns_follow_their_recursion(episode: tuple[np.ndarray, ...], gamma: float) -> None:
    rewards_T, _, mask_T = episode
    returns_T = discounted_returns(rewards_T, mask_T, gamma=gamma)
    earned, returns = rewards_T[mask_T], returns_T[mask_T]
    np.testing.assert_allclose(returns, earned + gamma * np.append(returns[1:], 0.0)[: len(returns)], atol=1e-9)


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


@given(rewards, st.integers(1, 5))
def test_pairs_are_strict_and_nobody_is_in_two(rewards_G: np.ndarray, limit: int) -> None:
    pairs = preference_pairs(rewards_G, limit=limit)
    assert len(pairs) <= limit
    assert all(rewards_G[better] > rewards_G[worse] for better, worse in pairs)
    members = [member for pair in pairs for member in pair]
    assert len(members) == len(set(members))
    if has_signal(rewards_G):
        assert pairs[0] == (rewards_G.argmax(), len(rewards_G) - 1 - rewards_G[::-1].argmin())


def test_explained_variance_is_one_for_a_prophet_and_zero_for_a_constant() -> None:
    returns = np.array([0.0, 1.0, 2.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.full(3, 5.0), returns) == 0.0
    assert explained_variance(-returns, returns) == pytest.approx(-3.0)
    assert explained_variance(returns, np.zeros(3)) == 0.0
