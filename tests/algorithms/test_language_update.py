"""From attempts to what is learnt and what is told of them: samples, advantages, metrics, phases, errors."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.language.advantage import estimate
from loomrl.algorithms.language.lesson import lesson_of
from loomrl.algorithms.language.measure import measure
from loomrl.algorithms.language.sample import ENGINE, REWARD, SHIFT, samples_of
from loomrl.algorithms.learners import memory_errors_translated
from loomrl.algorithms.timing import Phases
from loomrl.config import GRPO, PPO, RLOO, Reinforce
from loomrl.errors import LearnerError
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.types import Group
from tests.algorithms.attempts import HANG, attempt, turn

GROUP = Group(
    "g",
    (
        attempt("a", [turn(3, 2, 0.5), turn(2, 1, 1.0)]),
        attempt("b", [turn(3, 4)]),
        attempt("c", [turn(3, 1)], failure=HANG),
    ),
)


def test_reward_of_a_turn_stands_on_its_last_action_and_failures_teach_nothing() -> None:
    samples, names = samples_of([GROUP])
    assert names == ["g", "g"]
    np.testing.assert_array_equal(samples[0].columns[REWARD], [0, 0, 0, 0, 0.5, 0, 0, 1.0])
    np.testing.assert_array_equal(samples[0].mask_T, [0, 0, 0, 1, 1, 0, 0, 1])
    assert not samples[1].columns[REWARD].any()
    assert (samples[0].columns[ENGINE][samples[0].mask_T] == -0.5).all()


def test_shift_of_a_token_is_a_column_and_zero_where_nothing_was_shifted() -> None:
    plain, shifted = turn(3, 2), turn(3, 2)
    assert shifted.tokens is not None
    shifts_T = np.array([0, 0, 0, np.inf, 0.5], np.float32)
    told = replace(shifted, tokens=replace(shifted.tokens, shifts_T=shifts_T))
    (sample,), _ = samples_of([Group("g", (attempt("a", [plain, told]),))])
    np.testing.assert_array_equal(sample.columns[SHIFT], [0, 0, 0, 0, 0, 0, 0, 0, np.inf, 0.5])


def test_clip_bounds_what_an_attempt_earns_in_all() -> None:
    samples, _ = samples_of([GROUP], clip=(-1.0, 1.0))
    assert samples[0].columns[REWARD].sum() == pytest.approx(1.0)


def test_attempts_that_were_cut_off_are_compared_with_and_not_learnt_from() -> None:
    whole, cut = {4, 2}, {4}  # last ids of the turns of `a`, and of its first one alone
    samples, names = samples_of([GROUP], stop=whole)
    assert names == ["g", "g"]
    assert [sample.size.targets for sample in samples] == [3, 0]
    np.testing.assert_allclose(estimated(GRPO(scale=False), stop=whole)[0], 0.75)
    assert [sample.size.targets for sample in samples_of([GROUP], stop=cut)[0]] == [0, 0]
    assert lesson_of(GRPO(), [GROUP], version=0, stop=cut).dropped == 1


def estimated(algorithm: Any, **terms: Any) -> list[np.ndarray]:
    """The advantages of the action tokens of every sample of the group; other tokens have none."""
    samples, names = samples_of([GROUP], **terms)
    masks = [sample.mask_T for sample in samples]
    values = [0.5 * mask_T.astype(np.float32) for mask_T in masks]
    made = estimate(algorithm, [sample.columns[REWARD] for sample in samples], masks, groups=names, values=values)
    assert all(not one_T[~mask_T].any() for one_T, mask_T in zip(made.advantages, masks, strict=True))
    return [one_T[mask_T] for one_T, mask_T in zip(made.advantages, masks, strict=True)]


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (GRPO(scale=False), [0.75, -0.75]),
        (RLOO(), [1.5, -1.5]),
        (Reinforce(normalize_advantages=False), [1.5, 0.0]),
        (PPO(normalize_advantages=False, gae_lambda=1.0), [1.0, -0.5]),
    ],
)
def test_every_algorithm_weighs_the_first_action_as_it_says(algorithm: Any, expected: list[float]) -> None:
    np.testing.assert_allclose([one_K[0] for one_K in estimated(algorithm)], expected, atol=1e-6)


def test_normalised_advantages_have_mean_zero_and_deviation_one_over_all_actions() -> None:
    flat = np.concatenate(estimated(Reinforce()))
    assert (flat.mean(), flat.std()) == (pytest.approx(0, abs=1e-6), pytest.approx(1, rel=1e-3))


def test_failures_are_counted_and_are_no_reward() -> None:
    found = measure([GROUP], [HANG], family_of=lambda task: task.family)
    assert found[Metric.SUCCESS] == 0.5
    assert found[Metric.REWARD_TOTAL] == 0.75
    assert (found[Metric.FAILURES], found[Metric.FAILURES.of("environment")]) == (1, 1)
    assert (found[Metric.LENGTH_ACTION], found[Metric.LENGTH_PROMPT]) == (3.5, 4)
    assert found[Metric.SUCCESS.of("plain")] == 0.5
    assert found[Metric.GROUPS_WITHOUT_SIGNAL] == 0


def test_phases_sum_to_the_update_and_an_inner_one_is_not_counted_twice() -> None:
    begun = time.perf_counter()
    clock = Phases()
    with clock(Metric.TIME_HUB):
        with clock(Metric.TIME_ROLLOUT):
            time.sleep(0.03)
        time.sleep(0.01)
    time.sleep(0.01)
    seconds = clock.seconds()
    whole = time.perf_counter() - begun
    assert seconds[Metric.TIME_ROLLOUT] >= 0.03 > seconds[Metric.TIME_HUB] >= 0.01
    assert sum(seconds[phase] for phase in PHASES) == pytest.approx(whole, abs=2e-3)


def test_running_out_of_memory_names_the_setting_to_lower() -> None:
    with (
        pytest.raises(LearnerError, match=r"micro_batch_tokens=16384[\s\S]*Halve it"),
        memory_errors_translated(16_384),
    ):
        torch.empty(2**50)
    with pytest.raises(RuntimeError, match="something else"), memory_errors_translated(16_384):
        raise RuntimeError("something else")


# -- credit by turn -------------------------------------------------------------------------------------------------


def paid(*earned: float) -> tuple[np.ndarray, np.ndarray]:
    """Rewards and mask of an attempt whose turns, of two tokens after one of the environment's, earned this."""
    reward_T = np.ravel([[0.0, 0.0, reward] for reward in earned])
    return reward_T, np.array([False, True, True] * len(earned))


def compared(algorithm: GRPO | RLOO, *attempts: tuple[np.ndarray, np.ndarray]) -> list[list[float]]:
    """The advantage of every turn, by attempt; all tokens of a turn have the same."""
    rewards, masks = zip(*attempts, strict=True)
    made = estimate(algorithm, rewards, masks, groups=["g"] * len(masks)).advantages
    for advantage_T, mask_T in zip(made, masks, strict=True):
        assert not advantage_T[~mask_T].any()
        np.testing.assert_array_equal(advantage_T[1::3], advantage_T[2::3])
    return [one[2::3].tolist() for one in made]


def test_a_turn_is_compared_by_what_was_earned_from_it_on() -> None:
    attempts = paid(1.0, 0.0, 0.5), paid(0.0, 1.0, 0.5), paid(0.5)
    by_turn = compared(RLOO(credit="turn"), *attempts)
    assert by_turn[0] == pytest.approx([1.5 - (1.5 + 0.5) / 2, 0.5 - (1.5 + 0.0) / 2, 0.5 - (0.5 + 0.0) / 2])
    assert by_turn[1] == pytest.approx([1.5 - (1.5 + 0.5) / 2, 1.5 - (0.5 + 0.0) / 2, 0.5 - (0.5 + 0.0) / 2])
    assert by_turn[2] == pytest.approx([0.5 - 1.5])
    of_all = compared(RLOO(), *attempts)
    assert of_all[0] == of_all[1] == pytest.approx([0.5] * 3)  # it is unknown which of their turns were good
    scaled = compared(GRPO(credit="turn"), *attempts)
    for at in range(3):
        to_come_G = np.array([[1.5, 0.5, 0.5], [1.5, 1.5, 0.5], [0.5, 0.0, 0.0]])[:, at]
        expected = (to_come_G - to_come_G.mean()) / to_come_G.std()
        assert [one[at] for one in scaled[:2]] == pytest.approx(expected[:2])


@pytest.mark.parametrize("algorithm", [GRPO, RLOO])
def test_one_turn_has_the_credit_of_its_attempt(algorithm: type[GRPO | RLOO]) -> None:
    attempts = [paid(earned) for earned in (0.0, 1.0, 0.25)]
    assert compared(algorithm(credit="turn"), *attempts) == compared(algorithm(), *attempts)


def test_an_attempt_that_is_only_compared_with_counts_by_its_total() -> None:
    whole = paid(1.0, 0.0)
    skipped = (np.array([0, 0, 1.0]), np.zeros(3, bool))
    assert compared(RLOO(credit="turn"), whole, skipped)[0] == pytest.approx([0.0, 0.0])


def test_groups_that_differ_in_a_turn_only_have_signal_by_turn() -> None:
    early = attempt("a", [turn(3, 2, 1.0), turn(2, 1)])
    late = attempt("b", [turn(3, 2), turn(2, 1, 1.0)])
    for credit, kept in (("attempt", 0), ("turn", 2)):
        lesson = lesson_of(GRPO(dynamic_sampling=True, credit=credit), [Group("g", (early, late))], version=0)
        assert len(lesson.samples) == kept
        assert lesson.dropped == (not kept)
