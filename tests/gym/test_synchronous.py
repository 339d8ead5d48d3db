"""Environments of plain functions: what they return is read, where they run, and what success is."""

import asyncio
import threading
import time

import pytest

from loomrl.gym import BaseEnvironment, LoomRLGym, Message, Reward, register_environment
from loomrl.gym.catalogue import make
from loomrl.gym.check.run import check_environment
from loomrl.gym.facade import TextEnvironment
from tests.gym.forked_checks import forked_checks  # noqa: F401


class Counting(BaseEnvironment):
    """Counts; `answer` says in which form."""

    version = "1.0.0"

    def __init__(self, config):
        self.highest = config.get("highest", 3)
        self.form = config.get("form", "four")

    def reset(self):
        self.said, self.thread = 0, threading.current_thread()
        return f"Count to {self.highest}."

    def step(self, action):
        self.said += action == str(self.said + 1)
        done = self.said == self.highest
        match self.form:
            case "four":
                return str(self.said), 1, done, {}
            case "five":
                return (Message("user", "x"),), Reward(1.0, {"right": 1.0}, float(done)), done, False, {}
            case "told":
                return "x", 0.0, done, {"success": 0.25}
            case "limit":
                return "x", 0.0, True, {"TimeLimit.truncated": True}
            case "hang":
                time.sleep(0.3)
                return "x", 0.0, True, {}
            case "broken":
                raise ZeroDivisionError("division by zero")
        return 3


class Seeded(BaseEnvironment):
    """Takes a task, as asynchronous ones do."""

    version = "1.0.0"

    def reset(self, task=None):
        return f"level {task.level}", {}

    def step(self, action):
        return "x", 1.0, True, False, {}


class Half(BaseEnvironment):
    version = "1.0.0"

    def reset(self):
        return ""

    async def step(self, action): ...


@pytest.fixture(autouse=True)
def known():
    for cls, threshold in ((Counting, 3.0), (Seeded, None), (Half, None)):
        register_environment(
            name=f"Sync{cls.__name__}",
            entry_point=f"{__name__}:{cls.__name__}",
            version="1.0.0",
            max_episode_steps=5,
            reward_threshold=threshold,
        )


async def play(form, *actions):
    env = await LoomRLGym().create_environment("SyncCounting", {"form": form, "highest": len(actions)})
    await env.reset()
    for action in actions:
        _, reward, done, info = await env.step(action)
    await env.close()
    return reward, done, info


@pytest.mark.parametrize(
    ("form", "actions", "success"),
    [("four", "123", 1.0), ("four", "12", 0.0), ("five", "1", 1.0), ("told", "123", 0.25), ("limit", "1", 0.0)],
)
async def test_steps_of_four_and_five_values_are_read_and_success_follows(form, actions, success):
    _, done, info = await play(form, *actions)
    assert (done, info["success"]) == (True, success)
    assert info["truncated"] == (form == "limit")


async def test_without_a_threshold_a_plain_reward_is_success_within_bounds():
    env = await LoomRLGym().create_environment("SyncSeeded")
    assert str(await env.reset(env.task("default", 7, 1))) == "level 7"
    assert (await env.step("x"))[3]["success"] == 1.0


async def test_functions_run_off_the_event_loop_and_always_in_the_same_thread():
    environment = make("SyncCounting", {"form": "hang"})
    await environment.reset()
    ticks, stepping = 0, asyncio.create_task(environment.step("1"))
    while not stepping.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 5
    assert environment.thread is not threading.current_thread()
    await environment.close()


async def test_what_fails_is_a_failure_and_no_reward():
    for form, said in (("broken", "ZeroDivisionError"), ("?", "int 3")):
        reward, done, info = await play(form, "1")
        assert done
        assert reward != reward
        assert said in f"{info['failure']['kind']} {info['failure']['message']}"


async def test_own_settings_reach_the_class_and_those_of_every_environment_hold():
    env = await LoomRLGym().create_environment("SyncCounting", {"highest": 100, "difficulty": "expert"})
    assert (env.settings.max_steps, env.settings.difficulty) == (5, "expert")
    assert env.settings.model_dump()["highest"] == 100
    await env.reset()
    ends = [(await env.step("no"))[2] for _ in range(5)]
    assert ends == [False] * 4 + [True]


@pytest.mark.usefixtures("forked_checks")
@pytest.mark.parametrize(
    ("name", "says"), [("SyncHalf", "reset must be `async def reset`"), ("SyncCounting", "has no oracle")]
)
def test_the_checker_tries_it_like_any_other(name, says):
    report = check_environment(name)
    assert says in str(report), report


def test_through_gymnasium_it_has_five_values():
    env = TextEnvironment("SyncCounting")
    env.reset(seed=1)
    assert env.step("1")[1:4] == (1.0, False, False)
    env.close()
