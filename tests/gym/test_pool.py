"""The pool: environments by hand, plans by the thousand, and rounds in which attempts ask together."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from sample_envs import GuessEnvironment, open_sample

from loomrl.config import CustomPolicy, LanguagePolicy, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError
from loomrl.gym.base import Step
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.host.alarm import Deadline
from loomrl.gym.policy import SCRIPTED, Action
from loomrl.gym.pool import LoomRLGym
from loomrl.types import End, Message, Reward, Task


class Answer:
    """A custom policy: one setting, one method."""

    opened = 0

    def __init__(self, text):
        Answer.opened += 1
        self.text = text

    async def act(self, conversation):
        return Action(self.text)


def make_plans(count, *, environment="Guess", group_size=4, policy=None, **settings):
    for index in range(count):
        group = f"g{index // group_size}"
        task = Task(environment, "1.2.0", "above", 1, index // group_size)
        attempt = Attempt(id=f"{group}-{index}", task=task, group=group, group_size=group_size, version=5)
        yield Plan(attempt=attempt, policy=policy or ScriptedPolicy(), settings=settings)


def gym(**rollout):
    return LoomRLGym(RolloutConfig(**rollout), make=open_sample)


async def test_an_environment_is_played_by_hand_in_four_values():
    env = await gym().create_environment("Guess", {"difficulty": "intermediate", "max_steps": 2})
    obs = await env.reset(env.task("below", 2, 1))
    assert "below 0, 1000 away" in obs[0].content
    obs, reward, done, info = await env.step("5")
    assert (reward, done, info["terminated"], info["truncated"]) == (0.0, False, False, False)
    obs, reward, done, info = await env.step("5")
    assert done
    assert (info["terminated"], info["truncated"], info["truncated_by"]) == (False, True, "max_steps=2")
    await env.close()


async def test_every_plan_is_played_once_with_its_labels():
    made = [trajectory async for trajectory in gym(concurrency=3).run(make_plans(20))]
    assert sorted(t.id for t in made) == sorted(plan.attempt.id for plan in make_plans(20))
    assert {(t.end, t.group_size, t.first_version) for t in made} == {(End.TERMINATED, 4, 5)}
    assert all(t.reward.success == 1 for t in made)


async def test_collect_returns_whole_groups_in_the_order_planned():
    groups = await gym(concurrency=5).collect(make_plans(12))
    assert [(group.id, len(group.trajectories)) for group in groups] == [("g0", 4), ("g1", 4), ("g2", 4)]
    assert [t.id for t in groups[1].trajectories] == ["g1-4", "g1-5", "g1-6", "g1-7"]


async def test_plans_are_drawn_only_when_there_is_room():
    drawn = []

    def plans():
        for plan in make_plans(100):
            drawn.append(plan)
            yield plan

    running = gym(concurrency=4).run(plans())
    await anext(running)
    await asyncio.sleep(0.05)
    assert len(drawn) <= 2 * 4 + 2
    await running.aclose()


async def test_environment_failures_are_data_and_siblings_live_on():
    plans = [*make_plans(3, environment="Raises"), *make_plans(3)]
    made = [trajectory async for trajectory in gym().run(plans)]
    assert sorted(t.end for t in made) == [End.FAILED] * 3 + [End.TERMINATED] * 3


async def test_a_mistake_in_the_configuration_is_raised_at_once():
    with pytest.raises(ConfigError, match="hintz"):
        [t async for t in gym().run(make_plans(8, hintz=1))]
    with pytest.raises(ConfigError, match="no_such_module"):
        [t async for t in gym().run(make_plans(8, policy=CustomPolicy(entry_point="no_such_module:f")))]


async def test_an_error_among_the_plans_reaches_the_reader():
    def plans():
        yield from make_plans(2)
        raise LookupError("the curriculum broke")

    with pytest.raises(LookupError, match="curriculum"):
        [t async for t in gym().run(plans())]


async def test_a_custom_policy_is_made_once_and_acts():
    Answer.opened = 0
    policy = CustomPolicy(entry_point="test_pool:Answer", settings={"text": "77"})
    made = [t async for t in gym(concurrency=2).run(make_plans(6, policy=policy))]
    assert {turn.action for t in made for turn in t.turns} == {"77"}
    import test_pool

    assert test_pool.Answer.opened == 1


async def test_policies_are_opened_by_whatever_was_given_and_one_with_weights_only_once():
    opened = []

    def open_any(choice):
        opened.append(choice.kind)
        return lambda environment, rng: Answer("77")

    choices = [LanguagePolicy(path="weights"), CustomPolicy(entry_point="no_such_module:f"), ScriptedPolicy()]
    pool = LoomRLGym(RolloutConfig(concurrency=2), make=open_sample, open_policy=open_any)
    plans = [plan for choice in choices for plan in make_plans(3, policy=choice)]
    made = [t async for t in pool.run(plans)]
    assert {turn.action for t in made for turn in t.turns} == {"77"}
    assert opened == ["language", "custom", "oracle", "oracle", "oracle"]


@pytest.mark.parametrize(
    ("entry_point", "settings", "says"),
    [
        ("test_pool:Answer", {"txt": "1"}, "txt"),
        ("test_pool:Missing", {}, "Missing"),
        ("test_pool:make_plans", {"count": 1}, "async def act"),
    ],
)
async def test_a_custom_policy_that_cannot_be_made_says_why(entry_point, settings, says):
    policy = CustomPolicy(entry_point=entry_point, settings=settings)
    with pytest.raises(ConfigError, match=says):
        [t async for t in gym().run(make_plans(1, policy=policy))]


async def test_the_same_plan_gives_the_same_trajectory():
    policy = ScriptedPolicy(kind="random")
    first, second = [await gym().collect(make_plans(4, policy=policy)) for _ in range(2)]
    assert [t.turns for t in first[0].trajectories] == [t.turns for t in second[0].trajectories]
    assert first[0].trajectories[0].turns != first[0].trajectories[1].turns


async def test_an_environment_is_closed_when_its_policy_cannot_be_made(monkeypatch):
    closed = []

    class Closing(GuessEnvironment):
        async def close(self):
            closed.append(self)
            raise OSError("close failed")

    def unmakeable(environment, rng):
        raise ZeroDivisionError

    monkeypatch.setitem(SCRIPTED, "random", unmakeable)
    pool = LoomRLGym(make=lambda name, settings: Closing(settings))
    (made,) = [t async for t in pool.run(make_plans(1, policy=ScriptedPolicy(kind="random")))]
    assert (made.failure.boundary, made.failure.kind, len(closed)) == ("policy", "ZeroDivisionError", 1)


class Meeting:
    """Lets no episode go on before `size` of them are open at the same time."""

    def __init__(self, size):
        self.barrier = asyncio.Barrier(size)

    def __call__(self, name, settings):
        environment = open_sample(name, settings)
        environment.step = self.step
        return environment

    async def step(self, action):
        await self.barrier.wait()
        return Step((Message("user", "ok"),), Reward(1.0, {"met": 1.0}, 1.0), True, False, {})


async def test_two_thousand_episodes_are_open_at_once_in_little_memory():
    count = 2000
    before = _rss_mib()
    began = time.perf_counter()
    pool = LoomRLGym(RolloutConfig(concurrency=count), make=Meeting(count))
    made = [t.reward.success async for t in pool.run(make_plans(count))]
    assert made == [1.0] * count
    assert time.perf_counter() - began < 30
    assert _rss_mib() - before < 100


def _rss_mib():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


clock = random.SystemRandom()


class Engine:
    """A policy that answers what was asked since its last step, one step after the other, as engines do."""

    def __init__(self):
        self.batches = []
        self._asked = []
        self._stepping = None

    async def act(self, conversation):
        answer = asyncio.get_running_loop().create_future()
        self._asked.append((conversation[0].content + f" {len(conversation)}", answer))
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._step())
        return await answer

    async def _step(self):
        while self._asked:
            asked, self._asked = self._asked, []
            self.batches.append([what for what, _ in asked])
            for _, answer in asked:
                answer.set_result(Action("x"))
            for _ in range(8):
                await asyncio.sleep(0)


class Pausing(GuessEnvironment):
    """Three turns; those of odd tasks wait, each for another time, and one in five cannot begin."""

    pause_s = 0.01

    async def reset(self, task=None):
        self.seed, self.turns = task.seed, 0
        await self.pause()
        if self.seed % 5 == 4:
            raise RuntimeError("no mood for this")
        return (Message("user", f"{self.seed:02}"),)

    async def step(self, action):
        self.turns += 1
        await self.pause()
        return Step((Message("user", "?"),), Reward(), self.turns == 3, False, {})

    async def close(self):
        await self.pause()

    async def pause(self):
        if self.seed % 2:
            await asyncio.sleep(clock.random() * self.pause_s)


class OneAtATime(Pausing):
    """Only two attempts are open at once: others wait before they begin."""

    places = asyncio.Semaphore(2)

    async def enter(self, task):
        await self.places.acquire()

    async def close(self):
        await super().close()
        self.places.release()


def plans(count):
    for seed in range(count):
        task = Task("Guess", "1.2.0", "above", 1, seed)
        policy = CustomPolicy(entry_point="nowhere:Engine")
        yield Plan(attempt=Attempt(id=f"{seed:02}", task=task, group=f"{seed}"), policy=policy)


async def play_rounds(environment, *, concurrency, count=20, in_rounds=True):
    engine = Engine()
    gym = LoomRLGym(
        RolloutConfig(concurrency=concurrency),
        make=lambda id, settings: environment(),
        open_policy=lambda choice: lambda environment, rng: engine,
        in_rounds=in_rounds,
    )
    groups = await gym.collect(plans(count))
    return engine.batches, [group.trajectories[0].end for group in groups]


@pytest.mark.parametrize("concurrency", [3, 7, 64])
async def test_batches_are_the_same_however_long_each_call_takes(concurrency):
    first, *others = [await play_rounds(Pausing, concurrency=concurrency) for _ in range(4)]
    assert all(other == first for other in others)
    assert sum(map(len, first[0])) == 3 * 16
    apart = [await play_rounds(Pausing, concurrency=concurrency, in_rounds=False) for _ in range(4)]
    assert any(batches != apart[0][0] for batches, _ in apart), "they would be the same anyway"


async def test_nobody_waits_for_an_attempt_that_waits_for_the_others_to_end():
    OneAtATime.places = asyncio.Semaphore(2)
    batches, ends = await asyncio.wait_for(play_rounds(OneAtATime, concurrency=8), 60)
    assert len(ends) == 20
    assert sum(map(len, batches)) == 3 * 16


async def test_environments_that_wait_for_nothing_go_on_alone():
    class Even(Pausing):
        pause_s = 0.0

        async def pause(self):
            return

    together, apart = [await play_rounds(Even, concurrency=7, in_rounds=in_rounds) for in_rounds in (True, False)]
    assert together == apart


async def test_time_that_an_attempt_is_held_does_not_count():
    begun = time.monotonic()
    async with Deadline(5.0, lambda: 100 * (time.monotonic() - begun)):
        await asyncio.sleep(0.1)
    begun = time.monotonic() - 5
    async with Deadline(0.05, lambda: time.monotonic() - begun):  # held throughout
        await asyncio.sleep(0.3)
    with pytest.raises(TimeoutError):
        async with Deadline(0.001, lambda: 5.0):
            await asyncio.sleep(60)
