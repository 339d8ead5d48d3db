"""Gymnasium environments as text, against the real package."""

import gymnasium
import numpy as np
import pytest
from adapter_support import play, saying
from gymnasium import spaces

from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.adapters import toy_text
from loomrl.gym.adapters.gymnasium import GymnasiumEnvironment
from loomrl.gym.adapters.world import VERB
from loomrl.gym.check.probe import CheckProbe
from loomrl.gym.check.promise import check_opponent
from loomrl.gym.policy import OraclePolicy, RandomPolicy
from loomrl.types import End

HERE = "test_adapter_gymnasium"


def one_world(**world):
    return GymnasiumEnvironment({"worlds": {"world": world}})


@pytest.mark.parametrize("family", GymnasiumEnvironment.families)
async def test_the_oracle_solves_every_level(family):
    environment = GymnasiumEnvironment()
    lengths = []
    for level in range(1, 11):
        trajectory = await play(environment, OraclePolicy, family, level, seed=level)
        assert (trajectory.end, trajectory.reward.success) == (End.TERMINATED, 1.0), level
        lengths.append(len(trajectory.turns))
    assert lengths[-1] > lengths[0]


async def test_a_lake_is_shown_with_the_place_where_one_stands():
    environment = GymnasiumEnvironment()
    (message,) = await environment.reset(environment.task("frozen_lake", 1, 2))
    assert "[S]" in message.content
    assert message.content.endswith("ACTION: left or down or right or up")
    assert len(message.content.split()) < 60


async def test_tasks_differ_by_seed_and_are_the_same_by_the_same_seed():
    environment = GymnasiumEnvironment()
    seen = [(await environment.reset(environment.task("taxi", 5, seed)))[0].content for seed in (1, 1, 2, 3, 4)]
    assert seen[0] == seen[1]
    assert len(set(seen)) > 2


async def test_time_runs_out_and_then_it_is_no_success():
    environment = GymnasiumEnvironment()
    await environment.reset(environment.task("cliff_walking", 10, 0))
    step = await environment.step(f"{VERB}: up")
    while not step.truncated:
        step = await environment.step(f"{VERB}: up")
    assert (step.terminated, step.reward.success) == (False, 0.0)


async def test_a_fall_from_the_cliff_cannot_be_made_good():
    environment = GymnasiumEnvironment()
    task = next(t for t in (environment.task("cliff_walking", 3, s) for s in range(99)) if beside_the_cliff(t))
    await environment.reset(task)
    fallen = await environment.step(f"{VERB}: down")
    assert fallen.info["reward"] == -100
    environment._env.unwrapped.s = 35
    step = await environment.step(f"{VERB}: down")
    assert (step.terminated, step.reward.success) == (True, 0.0)


def beside_the_cliff(task):
    env = toy_text.cliff_walking(task.level, task.seed)
    return 25 <= env.reset(seed=task.seed)[0] <= 34


async def test_what_cannot_be_read_moves_nothing_and_is_counted():
    environment = GymnasiumEnvironment()
    await environment.reset(environment.task("frozen_lake", 1, 2))
    steps = [await environment.step(text) for text in ("right", f"{VERB}: sideways", f"{VERB}: 0 1")]
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, False), (False, True)]
    assert "ACTION: left or down or right or up" in steps[0].observation[0].content
    assert environment._env.unwrapped.s == 0


async def test_numbers_are_shown_and_survival_is_success_where_a_return_is_asked_for():
    environment = one_world(id="CartPole-v1", return_at_least=5, kwargs={"max_episode_steps": 5})
    (message,) = await environment.reset(environment.task("world", 1, 0))
    assert "ACTION: a whole number from 0 to 1" in message.content
    numbers = message.content.split("\n")[2].strip("[]").split(", ")
    assert len([float(number) for number in numbers]) == 4
    trajectory = await play(environment, RandomPolicy, "world")
    assert (len(trajectory.turns), trajectory.end, trajectory.reward.success) == (5, End.TERMINATED, 1.0)


async def test_the_ids_own_threshold_counts_where_nothing_else_is_asked_for():
    environment = one_world(id="CartPole-v1")
    await environment.reset(environment.task("world", 1, 0))
    assert environment.required_return() == 475.0
    environment = one_world(id="Blackjack-v1")
    with pytest.raises(ConfigError, match="no reward_threshold"):
        await environment.reset(environment.task("world", 1, 0))


async def test_actions_of_many_numbers_are_lists():
    environment = one_world(id="MountainCarContinuous-v0")
    await environment.reset(environment.task("world", 1, 0))
    assert (await environment.step(f"{VERB}: [0.5]")).info["reward"] == pytest.approx(-0.025)
    refused = await environment.step(f"{VERB}: [1.5]")
    assert "1.5 is outside -1..1" in refused.observation[0].content


async def test_a_level_may_change_the_keywords():
    environment = one_world(
        id="FrozenLake-v1", kwargs={"is_slippery": False}, levels={3: {"map_name": "8x8"}}, must_terminate=True
    )
    sizes = []
    for level in (1, 2, 3, 10):
        (message,) = await environment.reset(environment.task("world", level, 0))
        sizes.append(message.content.count("H"))
    assert sizes[0] == sizes[1] < sizes[2] == sizes[3]


async def test_pictures_are_refused_by_their_size():
    environment = one_world(open=f"{HERE}:camera", must_terminate=True)
    with pytest.raises(ConfigError, match="an observation has 300 numbers, more than max_numbers=256"):
        await environment.reset(environment.task("world", 1, 0))


async def test_a_reward_that_is_no_number_fails_the_episode():
    environment = one_world(open=f"{HERE}:nonsense", must_terminate=True)
    await environment.reset(environment.task("world", 1, 0))
    with pytest.raises(EpisodeError, match="the world's reward is nan"):
        await environment.step(f"{VERB}: 0")


@pytest.mark.parametrize(
    ("world", "said"),
    [
        ({}, "either id or open"),
        ({"id": "CartPole-v1", "open": "a:b"}, "either id or open"),
        ({"id": "CartPole-v1", "actions": ["Left", "right"]}, "names in small letters"),
        ({"id": "CartPole-v1", "levels": {11: {}}}, "levels go from 1 to 10"),
    ],
)
def test_a_world_that_makes_no_sense_is_refused(world, said):
    with pytest.raises(ConfigError, match=said):
        one_world(**world)


def test_families_and_guessing_are_those_of_the_settings():
    environment = one_world(id="CartPole-v1", guess_floor=0.5)
    assert (environment.families, environment.guess_floor) == (("world",), {"world": 0.5})
    assert GymnasiumEnvironment().families == ("frozen_lake", "cliff_walking", "taxi")


async def test_the_checker_asks_for_the_families_of_the_settings():
    settings = {"worlds": {"still": {"open": f"{HERE}:camera", "must_terminate": True}}, "max_numbers": 300}
    probe = CheckProbe(GymnasiumEnvironment, settings, lambda place: None, 0.5, 1.0)
    check = await check_opponent(probe, "random")
    assert (check.passed, check.figures["worst_family"]) == (False, 1.0)
    assert "still: mean success 1.00" in check.detail


class Still(gymnasium.Env):
    """Shows `size` numbers and pays `pay`."""

    def __init__(self, size, pay):
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self.action_space = spaces.Discrete(2)
        self._size, self._pay = size, pay

    def reset(self, *, seed=None, options=None):
        return np.zeros(self._size, np.uint8), {}

    def step(self, action):
        return np.zeros(self._size, np.uint8), self._pay, True, False, {}


def camera(level, seed):
    return Still(300, 0.0)


def nonsense(level, seed):
    return Still(1, float("nan"))


class Tenths(gymnasium.Env):
    """Pays the same for each of so many steps; with action 0 one of them is missed."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, reward, steps):
        self.reward, self.steps = reward, steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.steps
        return 0, {}

    def step(self, action):
        self.left -= 1
        missed = action == 0 and not self.left
        return 0, 0.0 * self.reward if missed else self.reward, not self.left, False, {}


def ten_tenths(level, seed):
    return Tenths(0.1, 10)


def ten_short_tenths(level, seed):
    return Tenths(np.float32(0.7), 10)


def thirds_of_less(level, seed):
    return Tenths(-1 / 3, 3)


@pytest.mark.parametrize(("open", "needed"), [("ten_tenths", 1), ("ten_short_tenths", 7), ("thirds_of_less", -1)])
async def test_the_sum_that_is_needed_is_reached_whatever_rounding_makes_of_it(open, needed):
    environment = one_world(open=f"{HERE}:{open}", return_at_least=needed)
    trajectory = await play(environment, saying(*[f"{VERB}: 1"] * 10))
    assert trajectory.reward.success == 1.0
    above = one_world(open=f"{HERE}:{open}", return_at_least=needed + 1e-6)
    assert (await play(above, saying(*[f"{VERB}: 1"] * 10))).reward.success == 0.0


async def test_a_step_that_was_not_paid_is_missed():
    environment = one_world(open=f"{HERE}:ten_tenths", return_at_least=1)
    assert (await play(environment, saying(*[f"{VERB}: 1"] * 9, f"{VERB}: 0"))).reward.success == 0.0
