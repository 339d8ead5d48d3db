"""The minecart, where the original's numbers end."""

import gymnasium
import numpy as np
import pytest

from loomrl.envs.minecart import ID, Minecart


def over_full() -> Minecart:
    env = Minecart()
    env.reset(seed=0)
    env.cart.pos = env.mines[0].pos.copy()
    env.cart.content = np.array([np.nextafter(env.capacity, 2), 0.0])
    env.mines[0].mine = lambda: [0.0, 0.0]
    return env


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_a_cart_that_is_fuller_than_full_keeps_its_content() -> None:
    shown, paid, *_ = over_full().step(0)
    np.testing.assert_allclose(shown[-2:], [1, 0])
    assert paid[-1] == pytest.approx(-0.22)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_what_is_mined_is_as_much_as_there_is_room_for() -> None:
    env = over_full()
    env.cart.content = np.array([1.4, 0.0])
    env.mines[0].mine = lambda: [0.3, 0.1]
    shown, *_ = env.step(0)
    np.testing.assert_allclose(shown[-2:] * env.capacity, [1.475, 0.025], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_it_ends_as_the_original_does() -> None:
    assert gymnasium.spec(ID).max_episode_steps == gymnasium.spec("minecart-v0").max_episode_steps


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_the_same_seed_mines_the_same() -> None:
    def mined(seed: int) -> list[float]:
        env = Minecart()
        env.reset(seed=seed)
        return [amount for mine in env.mines for _ in range(5) for amount in mine.mine()]

    assert mined(1) == mined(1)
    assert mined(1) != mined(2)
