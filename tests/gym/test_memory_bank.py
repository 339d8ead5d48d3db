"""Memories between episodes: what an attempt leaves, which one is kept, and what a group begins with."""

import json
from itertools import pairwise

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_envs import Remembering, open_remembering

from loomrl.config import RolloutConfig
from loomrl.envs.memory import MemoryBufferEnvironment
from loomrl.gym.curriculum import TaskDraw, TaskFamily
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.memory import MemoryBank, with_memory
from loomrl.gym.pool import LoomRLGym
from loomrl.types import End, Failure, Group, Reward, Task, Trajectory

FAMILY = "MemoryBuffer/persistent.update"


def group_of(task, group, *, size):
    attempts = [Attempt(id=f"{group}/{index}", task=task, group=group, group_size=size) for index in range(size)]
    return [Plan(attempt=attempt) for attempt in attempts]


def attempt(number, success, *, left=True, failed=False):
    return Trajectory(
        id=str(number),
        task=Task("Diary", "1.0.0", "plain", 1, 0),
        turns=(),
        end=End.FAILED if failed else End.TERMINATED,
        reward=Reward(success=success),
        group="g",
        failure=Failure("environment", "Hang", "") if failed else None,
        extra={"memory": {"left by": number}} if left else {},
    )


def kept(*attempts):
    bank = MemoryBank()
    bank.commit(Group("g", attempts))
    return bank.snapshot("Diary/plain")


def test_the_most_successful_attempt_is_committed_and_the_first_of_equals():
    assert kept(attempt(0, 0.5), attempt(1, 1.0), attempt(2, 1.0)) == {"left by": 1}


def test_failures_and_groups_without_success_leave_nothing():
    assert kept(attempt(0, 1.0, failed=True), attempt(1, 0.5)) == {"left by": 1}
    assert kept(attempt(0, 0.0), attempt(1, 1.0, left=False)) is None


@given(successes=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=6))
def test_a_group_without_success_changes_nothing_and_every_other_is_committed_once(successes):
    bank = MemoryBank()
    bank.commit(Group("g", (attempt("before", 1.0),)))
    assert bank.commit(Group("g", tuple(attempt(n, s) for n, s in enumerate(successes)))) == any(successes)
    left = successes.index(max(successes)) if any(successes) else "before"
    assert bank.snapshot("Diary/plain") == {"left by": left}


def test_a_task_without_a_snapshot_stays_as_it_is():
    task = Task("Diary", "1.0.0", "plain", 1, 0, {"template": "t"})
    assert with_memory(task, None) is task
    assert with_memory(task, {"x": 1}).parameters == {"template": "t", "memory": {"x": 1}}
    assert with_memory(task, {"x": 1}).key != task.key


def test_a_draw_with_a_memory_can_still_be_counted():
    assert len({TaskDraw(TaskFamily("a", "b"), 1, 2, {"x": 1}), TaskDraw(TaskFamily("a", "b"), 1, 2, {"x": 1})}) == 1


@pytest.mark.parametrize(
    ("memory", "word"),
    [("text", "memory"), ({"x": {1, 2}}, "JSON"), ({"x": "y" * 70_000}, "bytes"), ({"x": "\ud800"}, "JSON")],
)
async def test_what_cannot_be_stored_fails_the_attempt(memory, word):
    pool = LoomRLGym(make=lambda name, settings: Remembering(memory))
    (group,) = await pool.collect(group_of(Remembering().task("a", 1, 1), "g", size=1))
    assert group.trajectories[0].failure.kind == "EpisodeError"
    assert word in group.trajectories[0].failure.message
    assert "memory" not in group.trajectories[0].extra


async def groups_in_a_row(count, **rollout):
    """The oracle's groups, each of two attempts, each begun with what the one before has left."""
    bank, groups = MemoryBank(), []
    async with LoomRLGym(RolloutConfig(**rollout), make=open_remembering) as pool:
        for number in range(count):
            task = MemoryBufferEnvironment().task("persistent.update", 1 + number % 10, number)
            task = with_memory(task, bank.snapshot(FAMILY))
            (group,) = await pool.collect(group_of(task, f"g{number}", size=2))
            bank.commit(group)
            bank_again = MemoryBank()
            bank_again.load_state_dict(json.loads(json.dumps(bank.state_dict())))
            bank = bank_again
            groups.append(group)
    return groups


async def test_groups_go_on_where_the_one_before_has_ended():
    groups = await groups_in_a_row(12)
    for before, after in pairwise(groups):
        assert all(t.task.parameters["memory"] == before.trajectories[0].extra["memory"] for t in after.trajectories)
        assert all(t.reward.success == 1 for t in after.trajectories)
    days = [group.trajectories[0].extra["memory"]["day"] for group in groups]
    assert days == sorted(set(days))


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
async def test_it_is_the_same_in_an_actor():
    here, there = await groups_in_a_row(3), await groups_in_a_row(3, runners=1)
    assert [[(t.task, t.extra) for t in g.trajectories] for g in here] == [
        [(t.task, t.extra) for t in g.trajectories] for g in there
    ]


async def days_by_hand(env, count, *, solved=True):
    """The first day of each of these episodes, played by hand."""
    days = []
    for seed in range(count):
        (message,) = await env.reset(env.task("persistent.topic", 1, seed))
        days.append(int(message.content.partition("Day ")[2].partition(".")[0]))
        done = False
        while not done:
            _, _, done, _ = await env.step(env.oracle() if solved else "ANSWER: nothing\nNEXT:")
    return days


async def test_by_hand_an_object_remembers_and_another_does_not():
    gym = LoomRLGym()
    first, second = [await gym.create_environment("MemoryBuffer") for _ in range(2)]
    assert await days_by_hand(first, 4) == [3, 4, 5, 6]
    assert await days_by_hand(second, 1) == [3]


async def test_by_hand_failures_leave_nothing_and_a_task_with_a_memory_keeps_its_own():
    env = await LoomRLGym().create_environment("MemoryBuffer")
    assert await days_by_hand(env, 3, solved=False) == [3, 3, 3]
    await days_by_hand(env, 2)
    memory = {"day": 40, "notes": [["Ivo", "pet", "bee", 1]], "facts": {"Ivo": "bee"}}
    (message,) = await env.reset(with_memory(env.task("persistent.topic", 1, 0), memory))
    assert "Day 41." in message.content


def test_through_gymnasium_a_seed_begins_anew_and_without_one_the_memory_stays():
    env = gymnasium.make("loomrl/MemoryBuffer-v1").unwrapped
    options = {"family": "persistent.topic", "level": 1}

    def first_day(**how):
        seen, info = env.reset(options=options, **how)
        over = False
        while not over:
            _, _, terminated, truncated, _ = env.step(env._episodes._guarded.environment.oracle())
            over = terminated or truncated
        return int(seen.partition("Day ")[2].partition(".")[0]), info["task"]

    begun = first_day(seed=5)
    assert begun[0] == 3
    assert [first_day()[0], first_day()[0]] == [4, 5]
    assert first_day(seed=5) == begun
    env.close()
