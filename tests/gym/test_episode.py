"""Episodes: what is recorded, and that every kind of trouble ends as a typed failure."""

import asyncio
import random
import time

import broken_envs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_envs import GuessEnvironment
from sample_policies import Says

from loomrl.gym.base import Step
from loomrl.gym.episode import Attempt, EpisodeLimits, run_episode
from loomrl.gym.policy import Action, ConstantPolicy, OraclePolicy, RandomPolicy, hack_policy
from loomrl.types import NO_VERSION, End, Message, Reward, Source, Tokens

SHORT = EpisodeLimits(turn_timeout_s=0.1, episode_timeout_s=5)


def attempt(environment=None, **labels):
    task = (environment or GuessEnvironment()).task("above", 3, 7)
    return Attempt(**{"id": "t1", "task": task, "group": "g1", **labels})


async def play(environment, policy=None, limits=SHORT, **labels):
    policy = policy or ConstantPolicy(environment, random.Random(0))
    return await run_episode(environment, policy, attempt(environment, **labels), limits=limits)


async def test_oracle_episode_records_turns_parts_success_and_labels():
    environment = GuessEnvironment()
    labels = {"group_size": 4, "source": Source.EVALUATION, "run": "r1", "snapshot": "s1", "extra": {"k": 1}}
    ticks = iter([10.0, 12.5])
    made = await run_episode(
        environment, OraclePolicy(environment, random.Random(0)), attempt(**labels), clock=lambda: next(ticks)
    )
    assert (made.end, made.failure, made.reward.success) == (End.TERMINATED, None, 1.0)
    assert made.reward.parts == {"correct": 1.0, "format": 0.1}
    assert made.reward.total == pytest.approx(1.1)
    assert (made.id, made.group, made.group_size, made.run, made.snapshot) == ("t1", "g1", 4, "r1", "s1")
    assert (made.source, made.extra, made.started_at, made.finished_at) == (Source.EVALUATION, {"k": 1}, 10.0, 12.5)
    assert made.turns[0].observation[0].role == "user"
    assert made.turns[0].action == str(environment.hidden)


@pytest.mark.parametrize(("correct", "kept"), [(0.5, {"correct": 0.5}), (None, {})])
async def test_the_second_check_of_an_episode_goes_on_record(correct, kept):
    class Checked(GuessEnvironment):
        def correct(self):
            return correct

    assert (await play(Checked())).extra == kept


async def test_a_second_check_outside_0_to_1_fails_the_attempt():
    class Checked(GuessEnvironment):
        def correct(self):
            return 2.0

    made = await play(Checked())
    assert made.end is End.FAILED
    assert "correct() returned float 2.0. Return a success from 0 to 1, or None." in made.failure.message


async def test_an_attempt_keeps_what_the_environment_said_at_its_end_as_far_as_it_is_json_and_short():
    class Explains(GuessEnvironment):
        async def step(self, action):
            said = {"verdict": "too low", "odd": object(), "nan": float("nan"), "long": "x" * 5000, "share": 0.5}
            return Step((), Reward(), True, False, said)

    class Endless(GuessEnvironment):
        async def step(self, action):
            return Step((), Reward(), False, False, {})

    assert (await play(Explains())).extra == {"info": {"verdict": "too low", "share": 0.5}}
    cut = await play(Endless({"max_steps": 2}))
    assert cut.extra["info"]["truncated_by"] == "max_steps=2"


class Pays(GuessEnvironment):
    """Pays what it is told, turn by turn."""

    reward_range = (-100.0, 100.0)

    def __init__(self, rewards):
        super().__init__()
        self.rewards = list(rewards)

    async def step(self, action):
        reward = self.rewards.pop(0)
        return Step((), reward, not self.rewards, False, {})


shares = st.dictionaries(st.sampled_from("abc"), st.floats(-1, 1), max_size=3)


@given(st.lists(st.tuples(shares, st.floats(0, 1)), min_size=1, max_size=8))
def test_the_episodes_reward_is_the_sum_of_its_turns_and_the_last_word_on_success(turns):
    rewards = [Reward(sum(parts.values()), parts, success) for parts, success in turns]
    made = asyncio.run(play(Pays(rewards), Says(*"x" * len(turns)), limits=EpisodeLimits()))
    assert made.failure is None
    assert made.reward.total == pytest.approx(sum(made.reward.parts.values()))
    for name in "abc":
        assert made.reward.parts.get(name, 0) == pytest.approx(sum(parts.get(name, 0) for parts, _ in turns))
    assert made.reward.success == turns[-1][1]


async def test_policy_hears_the_whole_conversation_in_order():
    policy = Says("-5", "99999")
    made = await play(GuessEnvironment({"max_steps": 2}), policy)
    first, second = policy.heard
    assert second == (*first, Message("assistant", "-5"), Message("user", "It is higher."))
    assert made.turns[1].observation == (Message("user", "It is higher."),)


async def test_episode_limit_truncates_and_never_terminates():
    made = await play(GuessEnvironment({"max_steps": 3}))
    assert (made.end, len(made.turns), made.failure) == (End.TRUNCATED, 3, None)


async def test_tokens_are_kept_as_given_and_their_versions_recorded():
    spans = [
        Tokens.of([1, 2, 3], [False, True, True], [0, -1, -2], [NO_VERSION, 4, 5]),
        Tokens.of([9, 8], [False, True], [0, -1], [NO_VERSION, 6]),
    ]
    made = await play(GuessEnvironment({"max_steps": 2}), Says(Action("1", spans[0]), Action("2", spans[1])))
    assert [turn.tokens for turn in made.turns] == spans
    assert made.turns[0].tokens is spans[0]
    assert (made.first_version, made.last_version) == (4, 6)


async def test_version_label_stands_in_for_policies_without_tokens():
    made = await play(GuessEnvironment(), version=3)
    assert (made.first_version, made.last_version) == (3, 3)


@pytest.mark.parametrize(
    ("kind", "cause", "says"),
    [
        (broken_envs.Raises, "ZeroDivisionError", "the author's bug"),
        (broken_envs.Exits, "SystemExit", "3"),
        (broken_envs.CancelsItself, "CancelledError", ""),
        (broken_envs.Awaits, "TimeoutError", "step() took longer than rollout.turn_timeout_s=0.1"),
        (broken_envs.OldGymStep, "EpisodeError", "old Gym API"),
        (broken_envs.RewardOutOfRange, "EpisodeError", "reward_range"),
        (broken_envs.ResetIsNotAsync, "TypeError", "await"),
    ],
)
async def test_a_broken_environment_ends_as_a_typed_failure(kind, cause, says):
    made = await play(kind())
    assert made.end is End.FAILED
    assert made.failure.boundary == "environment"
    assert made.failure.kind == cause
    assert says in made.failure.message
    assert made.reward.parts == {}


async def test_the_action_that_broke_the_environment_is_kept():
    made = await play(broken_envs.Raises(), Says("boom"))
    assert [turn.action for turn in made.turns] == ["boom"]


class Sleeper:
    async def act(self, conversation):
        await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("policy", "kind", "says"),
    [
        (Sleeper(), "TimeoutError", "act() took longer"),
        (Says(), "IndexError", "pop"),
        (Says(None), "PolicyError", "Return Action(text)"),
        (Says("\ud800"), "PolicyError", "surrogates"),
    ],
)
async def test_trouble_of_the_policy_is_blamed_on_the_policy(policy, kind, says):
    made = await play(GuessEnvironment(), policy)
    assert (made.end, made.failure.boundary, made.failure.kind) == (End.FAILED, "policy", kind)
    assert says in made.failure.message


async def test_episode_timeout_names_who_was_waited_for():
    made = await play(GuessEnvironment(), Sleeper(), limits=EpisodeLimits(60, 0.1))
    assert (made.failure.boundary, made.failure.kind) == ("policy", "TimeoutError")
    assert "episode_timeout_s=0.1" in made.failure.message


async def test_an_episode_that_refuses_to_be_interrupted_is_abandoned(monkeypatch):
    monkeypatch.setattr("loomrl.gym.episode.GRACE_S", 0.1)
    began = time.monotonic()
    made = await play(broken_envs.AwaitsStubbornly(), limits=EpisodeLimits(60, 0.1))
    assert made.end is End.FAILED
    assert time.monotonic() - began < 2


class Closing(GuessEnvironment):
    closed = 0

    async def close(self):
        self.closed += 1


@pytest.mark.parametrize("policy", [None, Says(), Sleeper()])
async def test_environment_is_closed_exactly_once_however_it_ends(policy):
    environment = Closing()
    await play(environment, policy)
    assert environment.closed == 1


async def test_cancelling_an_episode_closes_its_environment():
    environment = Closing()
    running = asyncio.create_task(play(environment, Sleeper(), limits=EpisodeLimits()))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0)
    assert environment.closed == 1


async def test_trouble_in_close_is_logged_and_spoils_nothing(caplog):
    made = await play(broken_envs.NeverCloses())
    assert made.end is End.TERMINATED
    assert "close failed" in caplog.text


@pytest.mark.parametrize("policy", [RandomPolicy, ConstantPolicy, hack_policy(1)])
async def test_unskilled_policies_play_to_the_end_and_lose(policy):
    environment = GuessEnvironment()
    made = await play(environment, policy(environment, random.Random(5)))
    assert (made.end, made.reward.success, len(made.turns)) == (End.TERMINATED, 0.0, 5)


class Waits(GuessEnvironment):
    """Has no room at first, or never."""

    closed = False

    def __init__(self, trouble=None):
        super().__init__()
        self.trouble = trouble

    async def enter(self, task):
        await asyncio.sleep(2.5)
        if self.trouble:
            raise self.trouble

    async def close(self):
        self.closed = True


async def test_waiting_to_begin_is_on_no_clock_of_the_episode():
    made = await play(Waits(), limits=EpisodeLimits(turn_timeout_s=2.0, episode_timeout_s=2.0))
    assert (made.end, made.failure) == (End.TERMINATED, None)
    assert made.finished_at - made.started_at < 2.4


async def test_what_never_begins_is_a_failure_of_the_environment_and_closed():
    environment = Waits(RuntimeError("no licence left"))
    made = await play(environment)
    assert (made.end, made.failure.boundary, made.failure.kind) == (End.FAILED, "environment", "RuntimeError")
    assert environment.closed


async def test_giving_up_while_waiting_closes_the_environment():
    environment = Waits()
    playing = asyncio.create_task(play(environment))
    await asyncio.sleep(0.05)
    playing.cancel()
    await asyncio.wait({playing})
    assert environment.closed
