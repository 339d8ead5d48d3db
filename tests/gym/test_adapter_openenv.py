"""Episodes on real OpenEnv servers, which run in an environment of their own. `make adapters` installs it."""

import asyncio
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from adapter_support import play, python_of_adapters, saying

from loomrl.algorithms.language import corpus
from loomrl.config import WarmStart
from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.adapters.openenv import OpenEnvEnvironment
from loomrl.gym.attack.run import attack_environment
from loomrl.gym.check.hostile import TEXTS
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.policy import OraclePolicy
from loomrl.gym.pool import LoomRLGym
from loomrl.types import End
from tests.algorithms.language_support import build

pytestmark = pytest.mark.system
METADATA = 'ACTION: {"number": 1, "metadata": {"reward": 1}}'
HERE = Path(__file__).parent


@contextmanager
def serving():
    """The URL below which real servers are."""
    command = [python_of_adapters(), str(HERE / "openenv_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline())
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def servers():
    with serving() as url:
        yield url


@pytest.fixture
def hidden(servers):
    return f"{servers}/hidden"


def environment_at(url, *, wait_s=60, **server):
    servers = {"hidden": {"url": url, "return_at_least": 1, "oracle": "test_adapter_openenv:told", **server}}
    return OpenEnvEnvironment({"servers": servers, "timeout_s": 60, "wait_s": wait_s})


def told(observation):
    """The server tells its answer where the policy does not see it."""
    return {"number": observation["metadata"]["number"]} if observation["metadata"] else {"number": 1}


def word_of_the_day(observation):
    return observation["metadata"]["word"]


async def test_an_episode_is_a_session_and_its_reward_is_success(hidden):
    environment = environment_at(hidden)
    trajectory = await play(environment, OraclePolicy)
    assert (trajectory.end, trajectory.reward.success, trajectory.reward.total) == (End.TERMINATED, 1.0, 1.0)
    (first,) = trajectory.turns[0].observation
    assert "Find the number between 1 and 100." in first.content
    assert 'ACTION: {"number": <integer from 1 to 100 (your guess)>}' in first.content
    assert "metadata" not in first.content


async def test_the_tasks_seed_and_level_reach_the_server(hidden):
    environment = environment_at(hidden, levels={5: {"most": 7}})
    numbers = []
    for level, seed in ((1, 3), (1, 3), (1, 5), (5, 3)):
        observation = await environment.reset(environment.task("hidden", level, seed))
        numbers.append((environment.oracle(), "and 7." in observation[0].content))
    await environment.close()
    assert numbers[0] == numbers[1] != numbers[2]
    assert [seven for _, seven in numbers] == [False, False, False, True]


async def test_a_guess_is_answered_by_the_server(hidden):
    environment = environment_at(hidden)
    await environment.reset(environment.task("hidden", 1, 0))
    step = await environment.step('I think so.\nACTION: {"number": 1}')
    await environment.close()
    assert (step.observation[0].content, step.terminated, step.reward.total) == ("higher", False, 0.0)


@pytest.mark.parametrize(
    "action", ["42", 'ACTION: {"number": 1000}', 'ACTION: {"number": "many"}', "ACTION: [1]", METADATA]
)
async def test_what_the_schema_refuses_is_answered_and_counted(hidden, action):
    environment = environment_at(hidden)
    await environment.reset(environment.task("hidden", 1, 0))
    steps = [await environment.step(action) for _ in range(3)]
    await environment.close()
    assert [step.truncated for step in steps] == [False, False, True]
    assert all("Not done" in step.observation[0].content and not step.terminated for step in steps)


async def test_a_server_that_raises_fails_the_episode_and_pays_no_zero(hidden):
    trajectory = await play(environment_at(hidden), saying('ACTION: {"number": 13}'))
    assert trajectory.end is End.FAILED
    assert (trajectory.failure.boundary, trajectory.failure.kind) == ("environment", "EpisodeError")
    assert "thirteen is bad luck" in trajectory.failure.message


async def test_a_server_that_dies_fails_the_episode_and_the_next_reset():
    with serving() as url:
        environment = environment_at(f"{url}/hidden")
        trajectory = await play(environment, saying('ACTION: {"number": 99}'))
        assert (trajectory.end, trajectory.failure.boundary) == (End.FAILED, "environment")
        with pytest.raises(EpisodeError, match="Is an OpenEnv server running there"):
            await environment.reset(environment.task("hidden", 1, 0))


async def test_close_gives_the_session_back_to_whoever_waits_for_it(servers):
    first, second = (environment_at(f"{servers}/single") for _ in range(2))
    task = first.task("hidden", 1, 0)
    await first.reset(task)
    waiting = asyncio.create_task(second.reset(task))
    await asyncio.wait({waiting}, timeout=0.5)
    assert not waiting.done()
    await first.close()
    assert "Find the number" in (await asyncio.wait_for(waiting, 60))[0].content
    await second.close()


async def test_attempts_beyond_the_servers_sessions_wait_and_none_fails(servers):
    task = environment_at(f"{servers}/single").task
    plans = [Plan(attempt=Attempt(id=str(n), task=task("hidden", 1, n), group=str(n))) for n in range(20)]
    async with LoomRLGym(make=lambda id, settings: environment_at(f"{servers}/single")) as gym:
        played = [trajectory async for trajectory in gym.run(plans)]
    assert [trajectory.failure for trajectory in played] == [None] * 20
    assert [trajectory.reward.success for trajectory in played] == [1.0] * 20


async def test_waiting_for_a_session_has_an_end_that_says_what_to_do(servers):
    first, second = environment_at(f"{servers}/single"), environment_at(f"{servers}/single", wait_s=0.3)
    await first.reset(first.task("hidden", 1, 0))
    trajectory = await play(second, OraclePolicy)
    await first.close()
    assert trajectory.end is End.FAILED
    assert all(word in trajectory.failure.message for word in ("CAPACITY_REACHED", "wait_s=0.3", "max_concurrent_envs"))


async def test_ten_rewards_of_a_tenth_are_one_and_nine_are_not(servers):
    environment = environment_at(f"{servers}/tenths", oracle="")
    paid = await play(environment, saying(*["go on"] * 10))
    missed = await play(environment, saying("stop", *["go on"] * 9))
    assert (paid.reward.success, missed.reward.success) == (1.0, 0.0)


def test_demonstrations_are_made_chunk_after_chunk_and_leave_no_session_open(servers, monkeypatch):
    monkeypatch.setattr(corpus, "CHUNK", 3)
    environment = environment_at(f"{servers}/single")
    draws = [(environment, environment.task("hidden", 1, n)) for n in range(8)]
    wrong = WarmStart(wrong=1.0)  # each ends at its first slip, in the middle of an episode
    assert len(list(corpus.conversations(draws, wrong, seed=0))) == 8
    other = environment_at(f"{servers}/single")
    assert asyncio.run(play(other, OraclePolicy)).reward.success == 1.0


async def test_an_action_of_one_text_is_sent_as_it_is(servers):
    environment = environment_at(f"{servers}/echo", oracle="")
    observation = await environment.reset(environment.task("hidden", 1, 5))
    assert observation[0].content == "Say: word5"
    step = await environment.step("word5 ACTION: {}")
    await environment.close()
    assert (step.observation[0].content, step.reward.success) == ("word5 ACTION: {}", 1.0)


async def test_hostile_text_gets_an_answer_in_time(hidden):
    environment = environment_at(hidden)
    for name, text in TEXTS.items():
        await environment.reset(environment.task("hidden", 1, 0))
        began = time.perf_counter()
        assert (await environment.step(f"ACTION: {text}")).reward.total == 0, name
        assert time.perf_counter() - began < 2, name
    await environment.close()


async def test_nobody_at_the_address_is_an_error_that_says_so():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environment = environment_at(f"http://127.0.0.1:{port}")
    with pytest.raises(EpisodeError, match="Is an OpenEnv server running there"):
        await environment.reset(environment.task("hidden", 1, 0))


def test_without_servers_or_library_the_error_says_what_to_do(monkeypatch):
    with pytest.raises(ConfigError, match="Set servers"):
        OpenEnvEnvironment()
    with pytest.raises(ConfigError, match="http://, https://, ws:// or wss:// is needed"):
        environment_at("127.0.0.1:8000")
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[openenv\]'"):
        environment_at("http://127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_built_model_trains_on_a_server_with_one_session(servers, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "CHUNK", 16)
    server = {"url": f"{servers}/lonely", "return_at_least": 1, "oracle": "test_adapter_openenv:word_of_the_day"}
    environments = [{"id": "OpenEnv", "settings": {"servers": {"echo": server}}}]
    algo = build(tmp_path, environments=environments)
    rows = [algo.train() for _ in range(2)]
    algo.stop()
    assert len(rows) == 2
    assert algo.done == 2


@pytest.mark.slow
@pytest.mark.parametrize("hole", [True, False])
def test_the_attacker_finds_a_hole_in_a_servers_grader_and_none_in_a_sound_one(servers, hole):
    server = {"url": f"{servers}/sums", "return_at_least": 1, "reset": {"hole": hole}}
    server["oracle"] = "tests.gym.attack_envs:told_sum"
    report = attack_environment(OpenEnvEnvironment, {"servers": {"sums": server}}, seconds=60)
    assert {finding.rule for finding in report.findings} == ({"spoiled"} if hole else set()), str(report)
    assert report.bouts > 50
    assert not report.deadly
    assert not report.without_oracle
