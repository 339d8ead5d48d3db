"""Memory: the latest steps whole, drawn evenly or by priority; n rewards as one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.algorithms.control.rollout import Rollout
from loomrl.algorithms.control.step_replay import NStep, Ring, SumTree
from loomrl.config.control import Prioritized, Replay
from loomrl.errors import ArtifactError, ConfigError

COLUMNS = {"seen": ((2,), np.float32), "rewards": ((), np.float32)}


def ring(capacity: int = 8, **settings: Any) -> Ring:
    return Ring(COLUMNS, Replay(capacity=capacity, **settings), seed=1)


def steps(numbers: range) -> dict[str, np.ndarray]:
    column = np.array(numbers, np.float32)
    return {"seen": np.stack([column, -column], 1), "rewards": column}


@pytest.mark.parametrize("memory_gb", [1.0, 1e-9], ids=["memory", "file"])
@given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=9))
def test_what_is_kept_is_the_latest_and_whole(memory_gb: float, sizes: list[int]) -> None:
    kept = ring(memory_gb=memory_gb)
    told = 0
    for size in sizes:
        kept.append(steps(range(told, told + size)))
        told += size
    assert len(kept) == min(told, 8)
    assert sorted(kept.columns["rewards"][: len(kept)]) == list(range(max(0, told - 8), told))
    drawn = kept.draw(32)
    np.testing.assert_array_equal(drawn.columns["seen"][:, 0], drawn.columns["rewards"])
    np.testing.assert_array_equal(drawn.columns["seen"][:, 1], -drawn.columns["rewards"])


@pytest.mark.parametrize("prioritized", [None, Prioritized()])
def test_a_restored_memory_draws_what_the_first_one_would_have(prioritized: Prioritized | None) -> None:
    one, other = ring(prioritized=prioritized), ring(prioritized=prioritized)
    one.append(steps(range(11)))
    one.update_priorities(one.draw(4), np.array([3.0, 1.0, 2.0, 5.0]))
    other.load_state_dict(one.state_dict())
    for _ in range(3):
        first, second = one.draw(5), other.draw(5)
        np.testing.assert_array_equal(first.places_B, second.places_B)
        np.testing.assert_array_equal(first.weights_B, second.weights_B)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"capacity": 10**13, "memory_gb": 1e9}, "GB of memory, .* lower replay.memory_gb"),
        ({"capacity": 10**14}, "GB in .* set TMPDIR to a larger disk"),
        (
            {"capacity": 10**11, "memory_gb": 1e-9, "prioritized": Prioritized()},
            "GB of memory, .* priorities need that much",
        ),
    ],
    ids=["memory", "disk", "priorities"],
)
def test_a_memory_for_which_there_is_no_room_is_refused(settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"replay.capacity={settings['capacity']} needs .*{words}"):
        ring(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"capacity": 9}, "capacity is 8 .* and 9 here"), ({"prioritized": Prioritized()}, "prioritized is False")],
)
def test_the_state_of_another_memory_is_refused(settings: Any, words: str) -> None:
    kept = ring()
    kept.append(steps(range(11)))
    with pytest.raises(ArtifactError, match=words):
        ring(**settings).load_state_dict(kept.state_dict())


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=40))
def test_steps_are_drawn_as_often_as_their_priority_says(errors: list[float]) -> None:
    tree = SumTree(len(errors), Prioritized(alpha=1.0, beta=1.0))
    count = len(errors)
    places = np.arange(count)
    tree.welcome(places)
    tree.update(places, np.array(errors))
    share = np.array(errors) / sum(errors)
    drawn, weights = tree.draw((np.arange(2000) % 7 + 0.5) / 7, count)
    often = np.bincount(drawn, minlength=count) / len(drawn)
    np.testing.assert_allclose(often, share, atol=2 / 2000 * 2)
    # With beta = 1 the weights undo the priorities.
    np.testing.assert_allclose(weights * share[drawn], (weights * share[drawn])[0], rtol=1e-3)


def played(
    rewards: list[float], ended: list[bool], terminated: list[bool], valid: list[bool], first: int, route: Any = (0, "")
) -> Rollout:
    count = len(rewards)
    column = np.arange(first, first + count + 1, dtype=np.float32)[:, None, None]
    return Rollout(
        seen=column,
        actions=np.arange(first, first + count)[:, None],
        inputs=np.zeros((count, 1, 1), np.float32),
        rewards=np.array(rewards, np.float32)[:, None],
        terminated=np.array(terminated)[:, None],
        ended=np.array(ended)[:, None],
        valid=np.array(valid)[:, None],
        discounted=None,
        episodes=(),
        route=route,
    )


@pytest.mark.parametrize("cut", [1, 3, 8])
@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, [(0, 1, 1, 0.5), (1, 2, 2, 0), (3, 4, 4, 0.5), (4, 8, 5, 0.5), (6, 16, 7, 0.5), (7, 32, 8, 0.5)]),
        (2, [(0, 2, 2, 0), (1, 2, 2, 0), (3, 8, 5, 0.25), (4, 8, 5, 0.5), (6, 32, 8, 0.25)]),
        (3, [(0, 2, 2, 0), (1, 2, 2, 0), (3, 8, 5, 0.25), (4, 8, 5, 0.5)]),
    ],
)
def test_n_rewards_are_summed_up_to_the_end_of_the_episode(n: int, expected: list[Any], cut: int) -> None:
    """Expected: the step, the sum, the observation that follows, and what its value counts."""
    flags = np.zeros((3, 8), bool)
    flags[0, [1, 4]] = flags[1, 1] = flags[2, [2, 5]] = True
    window = NStep(n, 0.5)
    got: list[Any] = []
    for start in range(0, 8, cut):
        here = slice(start, start + cut)
        ended, terminated, begins = (flag[here].tolist() for flag in flags)
        made = played(REWARDS[here], ended, terminated, [not each for each in begins], start)
        columns = window(made, made.rewards)
        got += zip(*(columns[name].ravel().tolist() for name in ("actions", "rewards", "after", "ahead")), strict=True)
    assert got == expected


def test_steps_of_one_runner_never_follow_those_of_another_or_of_its_former_life() -> None:
    window = NStep(2, 1.0)
    kept = []
    for first, route in ((0, (1, "a")), (10, (2, "b")), (2, (1, "a")), (20, (2, "c")), (4, (1, "a"))):
        made = played([1.0, 1.0], [False] * 2, [False] * 2, [True] * 2, first, route)
        columns = window(made, made.rewards)
        kept += zip(columns["actions"].tolist(), columns["after"].ravel().tolist(), strict=True)
    assert kept == [(0, 2), (10, 12), (1, 3), (2, 4), (20, 22), (3, 5), (4, 6)]


@pytest.mark.parametrize(("saved", "here"), [((0, 1), (0, 1)), ((0, 2), (0, 2)), ((0, 1), (0, 2)), ((0, 2), (1, 2))])
def test_steps_of_another_learners_environments_are_not_gone_on_with(
    saved: tuple[int, int], here: tuple[int, int]
) -> None:
    theirs = NStep(2, 1.0, share=saved)
    ours = NStep(2, 1.0, share=here)
    first, then = (played([1.0, 1.0], [False] * 2, [False] * 2, [True] * 2, at, (1, "a")) for at in (0, 2))
    theirs(first, first.rewards)
    ours.load_state_dict(theirs.state_dict())
    assert ours(then, then.rewards)["actions"].tolist() == ([1, 2] if saved == here else [2])


REWARDS = [1.0, 2.0, 0.0, 4.0, 8.0, 0.0, 16.0, 32.0]
"""Episodes of two steps: one that ends, one that is cut, one that goes on; a step of no action lies between."""
