"""Tools of a real MCP server, in a process of its own, between a prompt and a reward function."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loomrl.envs.tool.mcp import McpTools
from loomrl.errors import ConfigError
from loomrl.experiments.cli import app
from loomrl.gym.episode import Attempt, run_episode
from loomrl.gym.policy import Action
from loomrl.types import End

SERVER = str(Path(__file__).parent / "mcp_server.py")
ROWS = [{"prompt": f"Put {n} and {n + 1} on the shelf, and say the sum.", "sum": 2 * n + 1} for n in range(40)]


def is_right(completions, sum, calls, messages, **_):
    """Half for the sum, half for having asked for it."""
    (asked,), (said,) = calls, messages
    assert said[-1] == {"role": "assistant", "content": completions[0]}
    return 0.5 * (completions[0] == str(sum[0])) + 0.5 * ("total" in [call["name"] for call in asked])


def tools(**settings):
    given = {"rows": ROWS, "reward": f"{__name__}:is_right", **settings}
    return McpTools(given if "url" in given else {"command": [sys.executable, SERVER], **given})


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


async def play(environment, *actions):
    steps = [await environment.step(action) for action in actions]
    await environment.close()
    return steps


async def test_calls_are_answered_each_by_a_server_of_its_own_and_the_reply_without_one_is_rewarded():
    environment, other = tools(), tools()
    system, user = await environment.reset(environment.task("prompts", 1, 1))
    await other.reset(other.task("prompts", 1, 1))
    assert system.role == "system"
    assert '"name": "put"' in system.content
    n = int(user.content.split()[1])
    steps = await play(environment, call("put", number=n) + call("put", number=n + 1), call("total"), str(2 * n + 1))
    assert [message.content for message in steps[0].observation] == ["1 on the shelf", "2 on the shelf"]
    assert [message.content for message in steps[1].observation] == [str(2 * n + 1)]
    assert [step.terminated for step in steps] == [False, False, True]
    assert steps[-1].reward.total == steps[-1].reward.success == 1.0
    (step,) = await play(other, call("total"))
    assert step.observation[0].content == "0"


async def test_what_the_policy_does_wrong_it_is_told_until_it_is_out_of_steps(monkeypatch):
    monkeypatch.setenv("SECRET", "ours")
    environment = tools(variables={"GIVEN": ", and what was given"}, longest=60, max_steps=7)
    await environment.reset(environment.task("prompts", 1, 1))
    wrong = (call("nope"), "<tool_call>{</tool_call>", call("fail"), call("put", number="many"), call("total") * 9)
    *steps, last = await play(environment, *wrong, call("secret"), call("total"))
    told = [step.observation[0].content for step in steps]
    assert told[0].startswith("Error: no tool is named 'nope'. Tools: put, total")
    assert told[1].startswith("Error: no JSON")
    assert all(text.startswith("Error: ") for text in told[2:5])
    assert "no such shelf" in told[2]
    assert "at most 8 calls" in told[4]
    assert told[5] == "nothing, and what was given"
    assert not any(step.terminated or step.truncated for step in steps)
    assert (last.truncated, last.reward.total) == (True, 0.0)


@pytest.mark.parametrize(
    ("settings", "action", "says"),
    [
        ({}, call("die"), "call of die"),
        ({"call_timeout_s": 6}, call("hang"), r"call of hang took longer than 6 s"),
        ({"command": ["no-such-program"]}, "", "no-such-program: start"),
        ({"command": [sys.executable, "-c", "pass"], "call_timeout_s": 10}, "", "start"),
        ({"url": "http://127.0.0.1:9/mcp"}, "", "127.0.0.1:9/mcp: start"),
    ],
    ids=["dies", "hangs", "is not there", "is none", "nobody listens"],
)
async def test_a_server_that_fails_fails_the_attempt(settings, action, says):
    class Says:
        async def act(self, conversation):
            return Action(action)

    environment = tools(**settings)
    play = await run_episode(environment, Says(), Attempt(id="a", task=environment.task("prompts", 1, 1), group="g"))
    assert play.end is End.FAILED
    assert says.replace("\\", "") in play.failure.message


async def test_some_tools_are_offered_and_those_that_are_not_there_refused():
    environment = tools(tools=["total"])
    system, _ = await environment.reset(environment.task("prompts", 1, 1))
    assert '"put"' not in system.content
    (step,) = await play(environment, call("put", number=1))
    assert step.observation[0].content == "Error: no tool is named 'put'. Tools: total."
    wrong = tools(tools=["totl"])
    with pytest.raises(ConfigError, match=r"tools=\['totl'\] are none of the server's; known: put, total"):
        await wrong.reset(wrong.task("prompts", 1, 1))


@pytest.fixture
def url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()


async def test_a_server_over_http(url):
    environment = tools(url=url)
    await environment.reset(environment.task("prompts", 1, 1))
    step, last = await play(environment, call("put", number=3), "nothing")
    assert step.observation[0].content == "1 on the shelf"
    assert last.reward.total == 0.0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"command": [], "rows": ROWS}, "set command"),
        ({"command": ["a"], "url": "http://a"}, "not both"),
        ({"url": "http://a", "command": [], "variables": {"A": "b"}}, "variables have no effect"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        McpTools({"rows": ROWS, "reward": f"{__name__}:is_right", **settings})


@pytest.mark.system
def test_it_is_evaluated_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "answer": str(row["sum"])} for row in ROWS[:6]]
    settings = {"command": [sys.executable, SERVER], "rows": rows, "answer": "answer", "reward": f"{__name__}:is_right"}
    given = [f"environments={json.dumps([{'id': 'McpTools', 'settings': settings}])}", "evaluation.episodes=2"]
    done = CliRunner().invoke(app, ["evaluate", *given, "--policy", "oracle", "--json"], catch_exceptions=False)
    judged = json.loads(done.stdout.splitlines()[-1])["policies"]["oracle"]["overall"]
    assert judged["failures"] == 0
    assert judged["reward"] == 0.5, "its answer is right, and it asks no tool"
