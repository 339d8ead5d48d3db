"""Worlds of which a part is hidden, and the minecart."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import VectorEnv

from loomrl.envs.minecart import ID, Minecart
from loomrl.envs.partial import BLIND, KEYS, MAZE, BlindCartPole, KeyDoors, TMaze


def test_the_blind_pole_is_the_pole_without_velocities():
    blind = gymnasium.make(BLIND)
    full = gymnasium.make("CartPole-v1")
    assert (blind.spec.max_episode_steps, blind.spec.reward_threshold) == (500, 475.0)
    shown = blind.reset(seed=3)[0]
    whole = full.reset(seed=3)[0]
    over = False
    while not over:
        np.testing.assert_array_equal(shown, whole[[0, 2]])
        assert blind.observation_space.contains(shown)
        shown, paid, over, *_ = blind.step(1)
        whole, expected, ends, *_ = full.step(1)
        assert (paid, over) == (expected, ends)


def test_many_of_them_at_once_are_gymnasiums_own():
    blind, full = (gymnasium.make_vec(id, 3, vectorization_mode="vector_entry_point") for id in (BLIND, "CartPole-v1"))
    assert isinstance(blind, VectorEnv)
    assert blind.single_observation_space == BlindCartPole().observation_space
    shown = blind.reset(seed=3)[0]
    whole = full.reset(seed=3)[0]
    for _ in range(30):
        np.testing.assert_array_equal(shown, whole[:, [0, 2]])
        assert blind.observation_space.contains(shown)
        actions = np.array([0, 1, 1])
        shown = blind.step(actions)[0]
        whole = full.step(actions)[0]


@pytest.mark.filterwarnings("ignore:.*alternative")
@pytest.mark.parametrize("id", [BLIND, MAZE, KEYS])
def test_they_are_as_gymnasium_wants_them(id):
    check_env(gymnasium.make(id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("turn", [1, 2])
def test_the_sign_is_seen_at_the_beginning_only_and_decides(turn):
    maze = TMaze(length=4)
    found = set()
    for seed in range(8):
        first, _ = maze.reset(seed=seed)
        sign = int(first.argmax())
        later = [int(maze.step(0)[0].argmax()) for _ in range(4)]
        assert later == [2, 2, 2, 3]
        _, paid, terminated, truncated, info = maze.step(turn)
        assert (paid, terminated, truncated) == (float(turn == 1 + sign), True, False)
        assert info == {"is_success": paid}
        found.add(sign)
    assert found == {0, 1}


def test_walls_cost_and_time_runs_out():
    maze = TMaze(length=2)
    first, _ = maze.reset(seed=0)
    shown, paid, *_ = maze.step(1)
    assert (shown == first).all()
    assert paid == pytest.approx(-0.1)
    maze.step(0)
    maze.step(0)
    steps = 3
    over = False
    while not over:
        shown, paid, terminated, over, info = maze.step(0)
        steps += 1
        assert (int(shown.argmax()), paid, terminated) == (3, pytest.approx(-0.1), False)
    assert (steps, info) == (28, {"is_success": 0.0})


def test_a_corridor_without_length_is_refused():
    with pytest.raises(ValueError, match="length=0"):
        TMaze(length=0)


def test_keys_open_the_doors_that_they_were_shown_for():
    made = gymnasium.make(KEYS, keys=4, doors=2).unwrapped
    told, _ = made.reset(seed=1)
    right = []
    for _ in range(2):
        assert told["action_mask"].tolist() == [1, 0, 0, 0, 0]
        right.append(int(told["observation"][:4].argmax()))
        told, *_ = made.step(0)
    assert told["action_mask"].tolist() == [0, 1, 1, 1, 1]
    told, paid, *_ = made.step(1 + right[0])
    assert paid == 0.5
    assert told["action_mask"][1 + right[0]] == 0
    wrong = next(key for key in range(4) if key not in right)
    told, paid, over, _, info = made.step(1 + wrong)
    assert (paid, over, info["is_success"]) == (0.0, True, 0.5)
    assert not told["action_mask"].any()
    with pytest.raises(ValueError, match="doors=5"):
        KeyDoors(keys=4, doors=5)


@pytest.mark.parametrize("is_masked", [True, False])
def test_what_is_not_allowed_costs_a_step_and_opens_nothing(is_masked):
    made = KeyDoors(keys=4, doors=1, is_masked=is_masked)
    made.reset(seed=1)
    told, paid, *_ = made.step(1)
    assert paid == -0.05
    made.step(0)
    told, paid, *_ = made.step(0)
    assert paid == -0.05
    assert isinstance(told, dict) == is_masked
    for _ in range(4):
        *_, over, late, info = made.step(0)
        assert (over, late, info) == (False, False, {})
    *_, over, late, info = made.step(0)
    assert (over, late, info) == (False, True, {"is_success": 0.0})


def over_full():
    env = Minecart()
    env.reset(seed=0)
    env.cart.pos = env.mines[0].pos.copy()
    env.cart.content = np.array([np.nextafter(env.capacity, 2), 0.0])
    env.mines[0].mine = lambda: [0.0, 0.0]
    return env


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_a_cart_that_is_fuller_than_full_keeps_its_content():
    shown, paid, *_ = over_full().step(0)
    np.testing.assert_allclose(shown[-2:], [1, 0])
    assert paid[-1] == pytest.approx(-0.22)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_what_is_mined_is_as_much_as_there_is_room_for():
    env = over_full()
    env.cart.content = np.array([1.4, 0.0])
    env.mines[0].mine = lambda: [0.3, 0.1]
    shown, *_ = env.step(0)
    np.testing.assert_allclose(shown[-2:] * env.capacity, [1.475, 0.025], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_it_ends_as_the_original_does():
    assert gymnasium.spec(ID).max_episode_steps == gymnasium.spec("minecart-v0").max_episode_steps


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_the_same_seed_mines_the_same():
    def mine(seed):
        env = Minecart()
        env.reset(seed=seed)
        return [amount for mine in env.mines for _ in range(5) for amount in mine.mine()]

    assert mine(1) == mine(1)
    assert mine(1) != mine(2)
