"""The alarm: whatever an environment does on the main thread, its episode ends in time, and siblings do not notice."""

import asyncio
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sample_envs import GuessEnvironment

from loomrl.config import RolloutConfig
from loomrl.gym.episode import Attempt, EpisodeLimits, Plan, run_episode
from loomrl.gym.host.alarm import Deadline, Hang, HangWatch, interruptible
from loomrl.gym.host.watch import Autopsy, examine
from loomrl.gym.policy import OraclePolicy
from loomrl.gym.pool import LoomRLGym
from loomrl.types import End, Task

TURN_S = 0.2


def for_ever():
    while True:
        pass


class HangsInStep(GuessEnvironment):
    async def step(self, action):
        for_ever()


class HangsInReset(GuessEnvironment):
    async def reset(self, task=None):
        for_ever()


class HangsAfterAnAwait(GuessEnvironment):
    async def step(self, action):
        await asyncio.sleep(0.01)
        for_ever()


class CatchesExceptions(GuessEnvironment):
    async def step(self, action):
        while True:
            try:
                for_ever()
            except Exception:  # noqa: BLE001 - the mistake
                continue


class RetriesWhateverHappens(GuessEnvironment):
    async def step(self, action):
        for _ in range(2):
            try:
                for_ever()
            except BaseException:  # noqa: BLE001 - the mistake
                continue
        for_ever()


class ReturnsAsIfNothingHadHappened(GuessEnvironment):
    async def step(self, action):
        try:
            for_ever()
        except BaseException:  # noqa: BLE001 - the mistake
            return await super().step(action)


class Sleeps(GuessEnvironment):
    async def step(self, action):
        time.sleep(3600)  # noqa: ASYNC251 - the mistake


class Backtracks(GuessEnvironment):
    async def step(self, action):
        re.match(r"(\(+)+$", "(" * 60 + "!")


class HangsInClose(GuessEnvironment):
    async def close(self):
        for_ever()


class HangsWhenMade(GuessEnvironment):
    def __init__(self, settings=None):
        for_ever()


class Rests(GuessEnvironment):
    """Takes most of its turn, without keeping anybody from anything."""

    async def step(self, action):
        await asyncio.sleep(TURN_S * 0.4)
        await asyncio.sleep(TURN_S * 0.4)
        return await super().step(action)


HANGING = [
    (HangsInStep, "for_ever"),
    (HangsInReset, "for_ever"),
    (HangsAfterAnAwait, "for_ever"),
    (CatchesExceptions, "for_ever"),
    (RetriesWhateverHappens, "for_ever"),
    (ReturnsAsIfNothingHadHappened, "for_ever"),
    (Sleeps, "in step"),
    (Backtracks, "in match"),
    (HangsWhenMade, "for_ever"),
]


def plan(kind, index=0):
    task = Task(kind.__name__, "1.2.0", "above", 1, index)
    return Plan(attempt=Attempt(id=f"{kind.__name__}-{index}", task=task, group="g"))


def open_here(name, settings):
    return globals()[name.partition("@")[0]](settings)


async def play_plans(*plans, **rollout):
    pool = LoomRLGym(RolloutConfig(turn_timeout_s=TURN_S, **rollout), make=open_here)
    return {t.id: t async for t in pool.run(plans)}


@pytest.fixture(autouse=True)
def no_leftovers():
    """Every test leaves the timer running for whoever had it, and the handler that was there."""
    handler, (left, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    assert left > 10, "pytest-timeout is on: its alarm has to survive ours"
    began = time.monotonic()
    yield
    assert signal.getsignal(signal.SIGALRM) == handler
    now_left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert now_left == pytest.approx(left - (time.monotonic() - began), abs=0.1)
    assert interval == 0


@pytest.mark.parametrize(("kind", "where"), HANGING)
async def test_a_hang_ends_as_a_failure_that_says_where(kind, where):
    began = time.monotonic()
    (made,) = (await play_plans(plan(kind))).values()
    assert (made.end, made.failure.boundary, made.failure.kind) == (End.FAILED, "environment", "Hang")
    assert f"turn_timeout_s={TURN_S:g}" in made.failure.message
    assert where in made.failure.message
    assert time.monotonic() - began < TURN_S + 1


@pytest.mark.parametrize("kind", [HangsInStep, HangsInReset, Sleeps])
async def test_siblings_do_not_pay_for_a_hang(kind):
    made = await play_plans(*(plan(Rests, i) for i in range(8)), plan(kind), *(plan(Rests, i) for i in range(8, 16)))
    assert made.pop(f"{kind.__name__}-0").failure.kind == "Hang"
    assert [t.failure for t in made.values()] == [None] * 16


async def test_a_hang_in_close_spoils_nothing(caplog):
    (made,) = (await play_plans(plan(HangsInClose))).values()
    assert made.end is End.TERMINATED
    assert "Hang" in caplog.text


async def test_what_an_episode_lost_by_hangs_of_others_is_not_taken_from_its_own_time():
    made = await play_plans(plan(Rests), *(plan(HangsInStep, i) for i in range(3)), episode_timeout_s=2 * TURN_S)
    assert made["Rests-0"].failure is None


class Thinks:
    """A policy that keeps the main thread longer than a turn may take, as an engine does on behalf of many."""

    def __init__(self, environment):
        self.oracle = OraclePolicy(environment, random.Random(0))

    async def act(self, conversation):
        await asyncio.sleep(0)
        time.sleep(2 * TURN_S)  # noqa: ASYNC251 - an engine's step
        return await self.oracle.act(conversation)


async def test_the_policy_is_not_interrupted():
    environment = GuessEnvironment()
    attempt = Attempt(id="t", task=environment.task("above", 1, 1), group="g")
    made = await run_episode(environment, Thinks(environment), attempt, limits=EpisodeLimits(turn_timeout_s=TURN_S))
    assert made.failure is None


def test_away_from_the_main_thread_nothing_is_interrupted():
    async def slow():
        time.sleep(0.1)  # noqa: ASYNC251 - longer than the limit
        return "done"

    def elsewhere():
        with HangWatch(0.01):
            result.append(asyncio.run(_await(interruptible(slow(), 0.01))))

    result = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert result == ["done"]


async def _await(work):
    return await work


def hang_within(limit_s):
    with pytest.raises(Hang), HangWatch(limit_s):
        for_ever()


def test_a_watch_inside_another_cannot_outlast_it():
    began = time.monotonic()
    with pytest.raises(Hang), HangWatch(0.1):  # noqa: PT012
        hang_within(60)
        for_ever()
    assert time.monotonic() - began < 1


def test_a_watch_goes_on_after_one_inside_it():
    began = time.monotonic()
    with pytest.raises(Hang) as hang, HangWatch(0.3):  # noqa: PT012
        hang_within(0.05)
        hang_within(0.05)
        time.sleep(60)
    assert "test_a_watch_goes_on" in str(hang.value)
    assert 0.25 < time.monotonic() - began < 0.6


@pytest.fixture
def others():
    """Somebody else who uses SIGALRM: when it rang for them."""
    rang = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rang.append(time.monotonic()))
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    began = time.monotonic()
    yield rang
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left - (time.monotonic() - began))


def test_the_alarm_of_others_rings_inside_a_watch(others):
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.1)
    began = time.monotonic()
    with pytest.raises(Hang), HangWatch(0.3):
        for_ever()
    assert 0.3 <= time.monotonic() - began < 0.9
    assert others[0] - began < 0.25
    before = len(others)
    assert before >= 2
    time.sleep(0.2)
    assert len(others) > before


def test_an_alarm_of_others_that_came_due_meanwhile_is_not_lost(others):
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    with HangWatch(5):
        time.sleep(0.03)
    assert others == []
    time.sleep(0.6)
    assert len(others) == 1


def test_others_may_interrupt_what_is_watched(others):
    def give_up(*_):
        others.append(time.monotonic())
        raise TimeoutError("of the test")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(TimeoutError, match="of the test"), HangWatch(1):
        for_ever()
    time.sleep(0.05)
    assert len(others) == 1


def test_others_are_not_kept_waiting_by_code_that_swallows_everything(others):
    def deaf():
        while not others:
            try:
                time.sleep(60)
            except BaseException:  # noqa: BLE001 - the mistake
                continue

    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Hang), HangWatch(0.01):
        deaf()
    assert len(others) == 1


async def test_errors_and_cancellation_pass_through_unchanged():
    async def raises():
        await asyncio.sleep(0)
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        await interruptible(raises(), 1)
    cleaned = []

    async def cleans_up():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    task = asyncio.create_task(_await(interruptible(cleans_up(), 1)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


async def test_a_deadline_is_kept_where_nobody_hangs():
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with Deadline(0.05):
            await asyncio.sleep(60)
    assert time.monotonic() - began < 0.5


SCRIPT = """
import asyncio, re, sys, time
from pathlib import Path
from loomrl.gym.host.watch import Watchdog

async def slow_start_then(act):
    await asyncio.wait_for(asyncio.sleep(0.05), 5)
    act()
    await asyncio.sleep(0.3)

def backtrack():
    re.match(r"(a+)+$", "a" * 60 + "!")

async def culprit():
    async def child():
        await asyncio.sleep(0.1)
        {blame}
    await asyncio.gather(child())

async def main():
    watchdog = Watchdog(Path(sys.argv[1]), limit_s=0.4)
    siblings = [watchdog.run(f"innocent {{n}}", slow_start_then(lambda: time.sleep(0.15))) for n in range(6)]
    await asyncio.gather(watchdog.run("culprit", culprit()), *siblings)
    await asyncio.sleep(1)
    watchdog.close()

asyncio.run(main())
"""


def run(folder, blame):
    script = SCRIPT.format(blame=blame)
    return subprocess.run([sys.executable, "-c", script, str(folder)], timeout=30, capture_output=True, text=True)


@pytest.mark.system
@pytest.mark.parametrize("blame", ["backtrack()", "time.sleep(60)"])
def test_the_task_that_kept_the_loop_is_named_although_others_started_later(tmp_path, blame):
    folder = tmp_path / "actor"
    folder.mkdir()
    died = run(folder, blame)
    assert died.returncode == 1, died.stderr
    autopsy = examine(folder)
    assert autopsy.running == "culprit"
    assert "in child" in autopsy.trace or "in backtrack" in autopsy.trace
    assert not folder.exists()


@pytest.mark.system
def test_many_short_stretches_in_a_row_are_no_hang(tmp_path):
    done = run(tmp_path, "await asyncio.sleep(0.01)")
    assert done.returncode == 0, done.stderr
    assert examine(tmp_path) == Autopsy("", "")


@pytest.mark.system
def test_a_node_that_is_gone_blames_nobody():
    assert examine(Path("/nowhere/at/all")) == Autopsy()
