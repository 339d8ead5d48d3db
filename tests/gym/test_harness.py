"""Agents of others as environments: real processes against a real gateway, with an oracle in the place of a model."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loomrl.errors import ConfigError
from loomrl.gym.adapters.harness import Harness, nursery
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.gym.episode import Attempt, EpisodeLimits
from loomrl.gym.host.rounds import Rounds
from loomrl.gym.policy import OraclePolicy
from loomrl.serving.agents import AgentGateway
from loomrl.types import SEAT, End, Message, Reward

pytestmark = [pytest.mark.system, pytest.mark.skipif(sys.platform != "linux", reason="agents need Linux")]

ASK = """
import json, os, subprocess, sys, time, urllib.error, urllib.request

def ask(text, before=(), path="/chat/completions"):
    body = json.dumps({"model": "any", "messages": [*before, {"role": "user", "content": text}]}).encode()
    key = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + path, body, key)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

task = json.loads(os.environ["LOOM_TASK"])
"""
REFUSED = """
for fields in ({"path": "/chat"}, {"before": [{"role": "narrator", "content": "x"}]}):
    try:
        ask("x", **fields)
    except urllib.error.HTTPError:
        pass
"""
ROW = {"task": {"word": "sun"}, "answer": "SUN"}


def shouted(task, conversation):
    return conversation[-1].content.upper()


def shouted_in_a_seat(task, conversation):
    """Said in the seat of the agent's attempt, as an engine has to know."""
    assert SEAT.get() is not None
    return conversation[-1].content.upper()


def says_file(done):
    return float((done.folder / "result.txt").read_text() == str(done.row.answer))


def half(done):
    return Reward(0.5, {"correctness": 0.5}, 0.5)


def raises(done):
    raise RuntimeError("no opinion")


def three(done):
    return 3.0


def function_agent(task):
    scope = {}
    exec(ASK, scope)
    return scope["ask"](task["word"])


def harness(agent, tasks=None, **settings):
    family = {"items": [ROW], "oracle": f"{__name__}:shouted", **(tasks or {})}
    return Harness({"agent": agent, "tasks": {"words": family}, **settings})


def script(folder, text):
    file = folder / "agent.py"
    file.write_text(ASK + text)
    return {"python": str(file)}


async def play(environment, *, seconds=20.0):
    sessions = AgentGateway().serving(OraclePolicy)(environment, random.Random(0))
    attempt = Attempt(id="a", task=environment.task("words", 1, 0), group="a")
    return await environment.player(sessions, attempt, limits=EpisodeLimits(10.0, seconds))


def write_agent(file):
    """Wait until something is in the file."""
    until = time.monotonic() + 60
    while not file.exists() or not file.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)


def gone(file):
    """True if the processes that an agent wrote down have ended."""
    pids = [int(line) for line in file.read_text().split()]
    assert pids
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


async def test_an_agent_is_played_as_it_is_and_what_was_said_is_its_trajectory(tmp_path):
    trajectory = await play(harness(script(tmp_path, "print('thinking')\nprint(ask(task['word']))")))
    assert (trajectory.end, trajectory.reward.success) == (End.TERMINATED, 1.0)
    assert [(turn.observation, turn.action) for turn in trajectory.turns] == [((Message("user", "sun"),), "SUN")]
    assert trajectory.turns[-1].reward.total == 1.0
    assert trajectory.extra["agent"]["output"] == "thinking\nSUN\n"


async def test_a_wrong_answer_is_a_reward_of_0_and_no_failure(tmp_path):
    trajectory = await play(harness(script(tmp_path, "ask(task['word'])\nprint('moon')")))
    assert (trajectory.end, trajectory.reward.total, trajectory.failure) == (End.TERMINATED, 0.0, None)


@pytest.mark.parametrize(
    ("text", "settings", "kind", "says"),
    [
        ("ask('x')\nraise ValueError('out of ideas')", {}, "Exit", "ValueError: out of ideas"),
        ("ask('x')\nos.kill(os.getpid(), 11)", {}, "Signal", "signal 11"),
        ("print('SUN')", {}, "Silent", "OPENAI_BASE_URL"),
        (
            f"{REFUSED}print('SUN')",
            {},
            "Refused",
            "all 2 calls of the agent were refused, the last with 400 messages.0.",
        ),
        ("ask('x', path='/chat')", {}, "Refused", "HTTP Error 404"),
        ("ask('x')\nwhile True: print('x' * 1000)", {"output_bytes": 10_000}, "Overflow", "output_bytes"),
        ("ask('x')\nsys.stderr.write('noise ' * 1_000_000 + 'the end')\nsys.exit(4)", {}, "Exit", "the end"),
    ],
)
async def test_a_failure_of_the_agent_has_its_last_words_and_no_more(tmp_path, text, settings, kind, says):
    trajectory = await play(harness(script(tmp_path, text), **settings))
    assert (trajectory.end, trajectory.failure.boundary, trajectory.failure.kind) == (End.FAILED, "agent", kind)
    assert says in trajectory.failure.message
    assert len(trajectory.failure.message) < 2000
    assert len(trajectory.extra["agent"]["output"]) <= 2000
    assert len(trajectory.turns) == (kind not in ("Silent", "Refused")), "what it said before is kept"


async def test_what_is_preloaded_has_the_agents_variables_and_a_time_limit(tmp_path):
    (tmp_path / "probe.py").write_text("import os, time\nSEEN = os.environ['SEEN']\ntime.sleep(float(SEEN))")
    agent = script(tmp_path, "import probe\nask(probe.SEEN)\nprint(task['word'].upper())")
    agent |= {"preload": ["probe"], "path": [str(tmp_path)]}
    trajectory = await play(harness({**agent, "env": {"SEEN": "0.01"}}))
    assert (trajectory.reward.success, trajectory.turns[0].action) == (1.0, "0.01")
    trajectory = await play(harness({**agent, "env": {"SEEN": "2"}, "preload_s": 0.2}))
    assert trajectory.failure.boundary == "environment"
    assert "has not imported probe within 0.2 s. Raise agent.preload_s" in trajectory.failure.message


async def test_a_hang_is_truncated_and_no_child_survives_not_even_one_of_another_session(tmp_path):
    pids = tmp_path / "pids"
    text = f"""
ask(task['word'])
child = subprocess.Popen(['sleep', '300'])
other = subprocess.Popen(['sleep', '300'], start_new_session=True)
double = subprocess.check_output(['sh', '-c', 'setsid sleep 300 >/dev/null & echo $!'])
open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} {{other.pid}} {{int(double)}}')
print('SUN', flush=True)
time.sleep(300)
"""
    start = time.monotonic()
    trajectory = await play(harness(script(tmp_path, text), budget={"seconds": 2.0}))
    assert time.monotonic() - start < 15
    assert (trajectory.end, trajectory.failure, trajectory.reward.total) == (End.TRUNCATED, None, 0.0)
    assert gone(pids)


async def test_an_agents_seconds_do_not_count_those_in_which_its_engine_works_for_others(tmp_path):
    seat = Rounds().seat()
    SEAT.set(seat)
    began = time.monotonic()
    late = script(tmp_path, "said = ask(task['word'])\ntime.sleep(4)\nprint(said)")
    asked = harness(late, {"oracle": f"{__name__}:shouted_in_a_seat"}, budget={"seconds": 2.5})
    with seat.queued(lambda: time.monotonic() - began):
        trajectory = await play(asked)
    assert (trajectory.end, trajectory.failure, trajectory.reward.total) == (End.TERMINATED, None, 1.0)
    assert trajectory.extra["agent"]["output"] == "SUN\n"


async def test_a_report_is_not_lost_where_time_is_added_after_an_agent_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(nursery, "ADD_S", 0.01)
    seat = Rounds().seat()
    SEAT.set(seat)
    began = time.monotonic()

    def busy_s():
        time.sleep(0.1)  # the loop is held up: the agent ends, and the next thing done is to add to its time
        return time.monotonic() - began

    late = script(tmp_path, "said = ask(task['word'])\ntime.sleep(0.5)\nprint(said)")
    asked = harness(late, {"oracle": f"{__name__}:shouted_in_a_seat"})
    with seat.queued(busy_s):
        assert (await play(asked)).failure is None


async def test_children_are_killed_when_an_agent_ends_by_itself(tmp_path):
    pids = tmp_path / "pids"
    text = f"""
child = subprocess.Popen(['sleep', '300'], start_new_session=True)
open({str(pids)!r}, 'w').write(str(child.pid))
print(ask(task['word']))
"""
    assert (await play(harness(script(tmp_path, text)))).reward.success == 1.0
    assert gone(pids)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("for _ in range(40): start()", "Crowd"),
        ("start()\nprint(os.getpid(), file=file, flush=True)\nos.kill(os.getppid(), 9)", "Lost"),
    ],
    ids=["too many processes", "kills its keeper"],
)
async def test_an_agent_that_misbehaves_has_failed_and_leaves_nothing(tmp_path, text, kind):
    pids = tmp_path / "pids"
    begin = f"""
ask(task['word'])
file = open({str(pids)!r}, 'w')
def start(): print(subprocess.Popen(['sleep', '300'], start_new_session=True).pid, file=file, flush=True)
"""
    trajectory = await play(harness(script(tmp_path, f"{begin}{text}\ntime.sleep(300)"), processes=12))
    assert (trajectory.failure.boundary, trajectory.failure.kind) == ("agent", kind)
    assert gone(pids)


@pytest.mark.parametrize(("budget", "calls"), [({"calls": 3}, 3), ({"tokens": 100}, 1)])
async def test_beyond_its_budget_an_agent_gets_429_and_is_truncated(tmp_path, budget, calls):
    text = """
try:
    while True: ask(task['word'])
except urllib.error.HTTPError as error:
    print(error.code, error.headers['x-should-retry'])
"""
    trajectory = await play(harness(script(tmp_path, text), budget={**budget, "seconds": 20.0}))
    assert (trajectory.end, trajectory.reward.total) == (End.TRUNCATED, 0.0)
    assert trajectory.extra["agent"]["output"] == "429 false\n"
    assert sum(map(len, trajectory.sequences)) >= calls
    assert trajectory.extra["agent"]["overrun"] == next(iter(budget))


async def test_parallel_conversations_are_threads_of_one_attempt(tmp_path):
    text = """
first = ask('one')
ask('another')
before = [{'role': 'user', 'content': 'one'}, {'role': 'assistant', 'content': first}]
ask('two', before)
print('SUN')
"""
    trajectory = await play(harness(script(tmp_path, text)))
    told = [[turn.observation[-1].content for turn in turns] for turns in trajectory.sequences]
    assert told == [["one", "two"], ["another"]]


async def test_a_function_and_a_command_are_agents_too():
    function = await play(harness({"python": f"{__name__}:function_agent", "path": [str(Path.cwd())]}))
    assert function.reward.success == 1.0, function.failure
    body = '{"model": "x", "messages": [{"role": "user", "content": "sun"}]}'
    ask = f"curl -sf $OPENAI_BASE_URL/chat/completions -H \"Authorization: Bearer $OPENAI_API_KEY\" -d '{body}'"
    command = await play(harness({"command": ["sh", "-c", f"{ask} | grep -o SUN"]}))
    assert command.reward.success == 1.0, command.failure


async def test_an_agent_gets_its_files_and_its_own_environment_only(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    text = """
assert 'AWS_SECRET_ACCESS_KEY' not in os.environ and os.environ['EXTRA'] == '1'
assert json.load(open(os.environ['LOOM_TASK_FILE'])) == task and os.getcwd() == os.environ['HOME']
open('result.txt', 'w').write(ask(open('data/in.txt').read()))
"""
    row = {**ROW, "files": {"data/in.txt": "sun"}}
    agent = {**script(tmp_path, text), "env": {"EXTRA": "1"}}
    environment = harness(agent, {"items": [row], "scorer": f"{__name__}:says_file"})
    assert (await play(environment)).reward.success == 1.0


async def test_scorers_give_success_or_a_reward_and_their_own_errors_are_failures(tmp_path):
    agent = script(tmp_path, "ask('x')\nsys.exit(3)")
    by_status = await play(harness(agent, {"scorer": "exit"}))
    assert (by_status.end, by_status.reward.success) == (End.TERMINATED, 0.0)
    agent = script(tmp_path, "ask('x')")
    assert (await play(harness(agent, {"scorer": "exit"}))).reward.success == 1.0
    assert (await play(harness(agent, {"scorer": f"{__name__}:half"}))).reward.success == 0.5
    for name, said in (("raises", "RuntimeError: no opinion"), ("three", "3.0")):
        failure = (await play(harness(agent, {"scorer": f"{__name__}:{name}"}))).failure
        assert failure.boundary == "scorer"
        assert said in failure.message


async def test_a_second_scorer_pays_nothing_and_its_success_stays_with_the_attempt(tmp_path):
    text = "ask('x')\nopen('result.txt', 'w').write('moon')\nprint('SUN')"
    checked = await play(harness(script(tmp_path, text), {"check": f"{__name__}:says_file"}))
    assert (checked.reward.success, checked.extra["correct"]) == (1.0, 0.0)
    assert "correct" not in (await play(harness(script(tmp_path, text)))).extra
    failure = (await play(harness(script(tmp_path, text), {"check": f"{__name__}:three"}))).failure
    assert failure.boundary == "scorer"
    assert "three' returned 3.0: success from 0 to 1" in failure.message


async def test_a_cancelled_attempt_kills_its_agent(tmp_path):
    pids = tmp_path / "pids"
    text = f"open({str(pids)!r}, 'w').write(str(os.getpid()))\nask('x')\ntime.sleep(300)"
    playing = asyncio.create_task(play(harness(script(tmp_path, text))))
    await asyncio.to_thread(write_agent, pids)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert gone(pids)


def test_agents_end_with_the_process_that_plays_them(tmp_path):
    pids = tmp_path / "pids"
    text = f"subprocess.Popen(['sleep', '300'])\nopen({str(pids)!r}, 'w').write(str(os.getpid()))\ntime.sleep(300)"
    agent = script(tmp_path, text)
    program = f"""
import asyncio
from tests.gym.test_harness import harness, play
asyncio.run(play(harness({agent!r})))
"""
    host = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        write_agent(pids)
    finally:
        os.killpg(host.pid, signal.SIGKILL)
        host.wait()
    assert gone(pids)


def test_settings_are_refused_with_the_remedy(tmp_path):
    agent = script(tmp_path, "")
    for broken, said in (
        ({"agent": {}}, "one of the two"),
        ({"agent": {"python": "a.py", "command": ["b"]}}, "one of the two"),
        ({"agent": {"python": "nowhere/agent.py"}}, "there is no file"),
        ({"agent": {"python": "no.such.module"}}, "no.such.module"),
        ({"agent": {"command": ["no-such-program"]}}, "no such program"),
        ({"agent": agent, "sandbox": True}, "network"),
        ({"agent": agent, "tasks": {}}, "it has no families. Set tasks"),
        ({"agent": agent, "tasks": {"words": {"items": [ROW], "scorer": "anser"}}}, "Known: answer, tags, exit"),
        ({"agent": agent, "tasks": {"words": {"items": [ROW], "file": "x"}}}, "one source"),
        ({"agent": agent, "tasks": {"words": {"file": "nowhere.jsonl"}}}, "JSON lines"),
    ):
        with pytest.raises(ConfigError, match=said):
            Harness({"tasks": {"words": {"items": [ROW]}}, **broken})


def test_rows_for_evaluations_are_never_drawn_in_training(tmp_path):
    rows = [{"task": {"word": str(number)}} for number in range(20)]
    environment = harness(script(tmp_path, ""), {"items": rows})
    drawn = [{environment.row(environment.task("words", 1, seed)).task["word"] for seed in seeds}
             for seeds in (range(400), range(HELD_OUT_SEEDS.start, HELD_OUT_SEEDS.start + 400))]  # fmt: skip
    assert drawn[0].isdisjoint(drawn[1])
    assert (len(drawn[0]), len(drawn[1])) == (16, 4)
