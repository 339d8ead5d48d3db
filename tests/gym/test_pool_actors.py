"""The pool in Ray actors: a death costs the open episodes a second start and nothing else."""

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
import sample_policies
from sample_envs import open_sample

from loomrl.config import CustomPolicy, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError
from loomrl.gym.catalogue import register_environment
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.pool import LoomRLGym
from loomrl.types import End, Task

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster")]


def plan(name, *, environment="Guess", policy=None):
    task = Task(environment, "1.2.0", "above", 1, 1)
    return Plan(attempt=Attempt(id=name, task=task, group="g", group_size=1), policy=policy or ScriptedPolicy())


def gym(**rollout):
    return LoomRLGym(RolloutConfig(**{"runners": 1, "concurrency": 16, **rollout}), make=open_sample)


async def play_plans(pool, plans):
    async with pool:
        return {trajectory.id: trajectory async for trajectory in pool.run(plans)}


def rests(seconds):
    return CustomPolicy(entry_point="sample_policies:Pid", settings={"rest_s": seconds})


async def test_episodes_are_spread_over_the_actors_and_labelled_as_planned():
    names = [f"t{index}" for index in range(60)]
    made = await play_plans(gym(runners=2, concurrency=8), [plan(name, policy=rests(0.02)) for name in names])
    assert sorted(made) == sorted(names)
    pids = {t.turns[0].action for t in made.values()}
    assert len(pids) == 2
    assert str(os.getpid()) not in pids


async def test_a_killed_actor_costs_its_open_episodes_a_second_start_only():
    pool = gym(concurrency=8)
    seen = {}
    async with pool:
        async for made in pool.run(plan(f"t{index}", policy=rests(0.05)) for index in range(24)):
            if not seen:
                os.kill(int(made.turns[0].action), signal.SIGKILL)
            assert made.id not in seen
            seen[made.id] = made
    assert len(seen) == 24
    assert {made.end for made in seen.values()} == {End.TERMINATED}
    assert len({turn.action for made in seen.values() for turn in made.turns}) == 2


@pytest.mark.slow
async def test_many_kills_lose_no_episode_and_finish_none_twice():
    finished, pids = [], set()
    async with gym(runners=2, concurrency=8) as pool:
        async for made in pool.run(plan(f"t{index}", policy=rests(0.05)) for index in range(400)):
            finished.append(made.id)
            assert made.end is End.TERMINATED
            pid = int(made.turns[0].action)
            if len(finished) % 50 == 0 and pid not in pids:
                pids.add(pid)
                os.kill(pid, signal.SIGKILL)
    assert sorted(finished) == sorted(f"t{index}" for index in range(400))
    assert len(pids) >= 3


async def test_a_hang_that_holds_the_gil_is_blamed_on_its_episode_alone():
    plans = [plan(f"t{index}", policy=rests(0.3)) for index in range(8)]
    hanging = CustomPolicy(entry_point="sample_policies:Brackets")
    plans.insert(4, plan("culprit", environment="BacktracksForEver", policy=hanging))
    made = await play_plans(gym(turn_timeout_s=1.0), plans)
    culprit = made.pop("culprit")
    assert (culprit.end, culprit.failure.boundary, culprit.failure.kind) == (End.FAILED, "environment", "Hang")
    assert "in mistake" in culprit.failure.message
    assert {t.end for t in made.values()} == {End.TERMINATED}
    assert len(made) == 8


async def test_an_episode_that_keeps_killing_its_actor_fails_and_its_siblings_do_not():
    deadly = CustomPolicy(entry_point="sample_policies:Kills")
    plans = [plan("deadly", policy=deadly), *(plan(f"t{index}", policy=rests(0.1)) for index in range(6))]
    made = await play_plans(gym(), plans)
    deadly = made.pop("deadly")
    assert (deadly.end, deadly.failure.kind) == (End.FAILED, "ActorDied")
    assert "4 actors died" in deadly.failure.message
    assert {t.end for t in made.values()} == {End.TERMINATED}


async def test_actors_know_what_was_registered_in_this_process():
    register_environment(name="Guess", entry_point="sample_envs:GuessEnvironment", version="1.2.0")
    made = await play_plans(LoomRLGym(RolloutConfig(runners=1)), [plan("t")])
    assert made["t"].reward.success == 1


async def test_actors_open_policies_with_what_they_were_given():
    pool = LoomRLGym(RolloutConfig(runners=1), make=open_sample, open_policy=sample_policies.open_pid)
    made = await play_plans(pool, [plan("t")])
    assert made["t"].turns[0].action not in ("", str(os.getpid()))


async def test_a_mistake_in_the_configuration_is_raised_from_the_actor_too():
    with pytest.raises(ConfigError, match="no_such_module"):
        await play_plans(gym(), [plan("t", policy=CustomPolicy(entry_point="no_such_module:f"))])


async def test_actors_leave_no_files_behind():
    def left():
        return set(Path(tempfile.gettempdir()).glob("loomrl-actor-*"))

    before = left()
    pool = gym()
    async with pool:
        assert [t async for t in pool.run([plan("t", policy=rests(0))])]
        made = left() - before
        assert made
    assert not left() & made


async def test_more_actors_than_there_are_cores_for_are_refused_before_any_starts():
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=r"rollout.runners=1000: Ray has CPUs for 8, 2 to each. Ask for fewer"):
        await play_plans(gym(runners=1000), [plan("t")])
    assert time.monotonic() - begun < 5
