"""One attempt at a task, from plan to trajectory. Every error in it becomes data, never an exception.

asyncio can interrupt only code that awaits. An environment that never returns to the event loop is interrupted by the
alarm on the main thread, and elsewhere, as in the pool's actors, by a watchdog that kills the process. Time lost to
another episode's hang does not count. The policy is never interrupted: it may serve other episodes at the same time.
"""

import asyncio
import json
import logging
import random
import time
import types
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from loomrl.config import PolicyChoice, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError, ContextFull, EpisodeError, LoomError, PolicyError, RegistryError, failure_from
from loomrl.gym.base import CORRECT, INFO, BaseEnvironment
from loomrl.gym.guard import GuardedEnvironment, is_storable
from loomrl.gym.host.alarm import Deadline, Hang, HangWatch, alarm_ready, interruptible
from loomrl.gym.host.rounds import Rounds, Seat
from loomrl.gym.memory import MEMORY
from loomrl.gym.opponent import SLIPS, rival_of
from loomrl.gym.policy import Action, OpenPolicy, Policy, PolicyFactory, open_policy
from loomrl.gym.preference import add_preference, preference_of
from loomrl.pickled import quickly
from loomrl.types import NO_VERSION, SEAT, End, Failure, Message, Reward, Source, Task, Trajectory, Turn

T = TypeVar("T")
_log = logging.getLogger(__name__)

Clock = Callable[[], float]
Call = Coroutine[Any, Any, T] | Generator[Any, Any, T]
"""An awaitable whose first step can be taken by hand."""

GRACE_S = 1.0
"""Clean-up time of an interrupted episode before it is abandoned."""
MOST_INFO = 4096
"""Bytes of the last step's `info` that are stored."""
LONGEST_WAIT_S = 86_400.0
"""Time limit for a turn to begin. Environments in which attempts wait have a shorter limit of their own."""


@quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt to make: the task, and the labels its trajectory will carry."""

    id: str
    task: Task
    group: str
    group_size: int = 1
    version: int = NO_VERSION
    """The version of the acting policy, for policies whose tokens do not record it."""
    source: Source = Source.ROLLOUT
    run: str = ""
    snapshot: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Time limits for one call of environment or policy, and for a whole episode.

    Time in which an engine works for other attempts does not count.
    """

    turn_timeout_s: float = 60.0
    episode_timeout_s: float = 600.0


class _EpisodeBroken(Exception):
    """Ends an episode as FAILED."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True)
class _Record:
    """The episode so far; it outlives an episode that must be abandoned."""

    turns: list[Turn] = field(default_factory=list)
    waiting_for: type[LoomError] = EpisodeError
    left: dict[str, Any] = field(default_factory=dict)
    """Additions to the trajectory's `extra`: the memory for later attempts, illegal moves of an opponent."""


async def run_episode(
    environment: BaseEnvironment,
    policy: Policy,
    attempt: Attempt,
    *,
    limits: EpisodeLimits = EpisodeLimits(),
    clock: Clock = time.time,
    seat: Seat | None = None,
) -> Trajectory:
    """Play one episode and close the environment. Failures are in the trajectory; only cancellation is raised.

    `seat` is its place among attempts that ask for answers together; time that it is held there does not count.
    """
    record = _Record()
    seat = seat or Rounds().seat()
    with alarm_ready():
        refused = await _enter(environment, attempt.task, limits.turn_timeout_s, seat)
        started_at = clock()
        if refused is not None:
            return make_trajectory(attempt, (), refused, started_at, started_at)
        SEAT.set(seat)
        playing = asyncio.create_task(_play(environment, policy, attempt.task, limits.turn_timeout_s, record, seat))
        overdue = await _wait(playing, limits.episode_timeout_s, seat)
    if overdue:
        message = f"the episode took longer than rollout.episode_timeout_s={limits.episode_timeout_s:g}"
        outcome: End | Failure = Failure(record.waiting_for.boundary, "TimeoutError", message)
    else:
        outcome = playing.result()
    if record.left and not overdue:
        attempt = replace(attempt, extra={**attempt.extra, **record.left})
    return make_trajectory(attempt, tuple(record.turns), outcome, started_at, clock())


async def _enter(environment: BaseEnvironment, task: Task, turn_timeout_s: float, seat: Seat) -> Failure | None:
    """Wait until the attempt can begin; returns the failure if it cannot. Only code that blocks the event loop is
    interrupted.
    """
    entered = False
    try:
        entering = interruptible(environment.enter(task), turn_timeout_s)
        await _cross(EpisodeError, "enter()", entering, LONGEST_WAIT_S, seat.step_aside)
        entered = True
    except _EpisodeBroken as broken:
        return broken.failure
    finally:
        seat.back()
        if not entered:
            await close_environment(environment, turn_timeout_s, seat)
    return None


async def _wait(playing: asyncio.Task[End | Failure], timeout_s: float, seat: Seat) -> bool:
    """True if the deadline passed first; the task is then cancelled, with some time to clean up."""
    try:
        async with Deadline(timeout_s, seat.seconds_held):
            await asyncio.wait({playing})
    except TimeoutError:
        playing.cancel()
        await asyncio.wait({playing}, timeout=GRACE_S)
        return True
    finally:
        playing.cancel()
    return False


def hang(where: str, turn_timeout_s: float) -> Failure:
    """The failure of an environment that was stuck at `where`."""
    message = f"hung longer than rollout.turn_timeout_s={turn_timeout_s:g} in {where}"
    return Failure(EpisodeError.boundary, "Hang", message)


def failure_trajectory(attempt: Attempt, failure: Failure, *, clock: Clock = time.time) -> Trajectory:
    """The trajectory of an attempt that never reached its first turn, or whose turns were lost."""
    now = clock()
    return make_trajectory(attempt, (), failure, now, now)


async def _play(
    environment: BaseEnvironment, policy: Policy, task: Task, turn_timeout_s: float, record: _Record, seat: Seat
) -> End | Failure:
    guarded = GuardedEnvironment(environment)
    ask = partial(_cross, PolicyError, timeout_s=turn_timeout_s, held_s=seat.seconds_held)
    call = partial(_cross, EpisodeError, timeout_s=turn_timeout_s, suspended=seat.waits, held_s=seat.seconds_held)
    try:
        reset = interruptible(guarded.reset(task), turn_timeout_s)
        observation = await call("reset()", reset)
        observation = add_preference(observation, preference_of(task))
        conversation = observation
        while True:
            record.waiting_for = PolicyError
            await seat.turn()
            action = await ask("act()", _act(policy, conversation))
            record.waiting_for = EpisodeError
            record.turns.append(Turn(observation, action.text, tokens=action.tokens))
            stepping = interruptible(guarded.step(action.text), turn_timeout_s)
            step = await call("step()", stepping)
            record.turns[-1] = replace(record.turns[-1], reward=step.reward)
            if step.terminated or step.truncated:
                leaving = interruptible(guarded.memory(), turn_timeout_s)
                memory = await call("memory()", leaving)
                record.left = {MEMORY: memory} if memory is not None else {}
                checking = interruptible(guarded.correct(), turn_timeout_s)
                correct = await call("correct()", checking)
                record.left |= {CORRECT: correct} if correct is not None else {}
                record.left |= {SLIPS: step.info[SLIPS]} if SLIPS in step.info else {}
                info = _storable({name: value for name, value in step.info.items() if name != SLIPS})
                record.left |= {INFO: info} if info else {}
                return End.TERMINATED if step.terminated else End.TRUNCATED
            observation = step.observation
            conversation += (Message("assistant", action.text), *observation)
    except _EpisodeBroken as broken:
        full = broken.__cause__
        if record.turns and isinstance(full, ContextFull) and record.waiting_for is PolicyError:
            # Masked out as a failure, long conversations would cost a policy nothing: it would learn to write them.
            record.left = {INFO: {"truncated_by": str(full)}}
            return End.TRUNCATED
        return broken.failure
    finally:
        await close_environment(environment, turn_timeout_s, seat)


def _storable(info: Mapping[str, Any]) -> dict[str, Any]:
    """The items of an `info` that are JSON, in order, up to a size."""
    kept: dict[str, Any] = {}
    room = MOST_INFO
    for name, value in info.items():
        try:
            text = json.dumps({name: value}, allow_nan=False, ensure_ascii=False)
            size = len(text.encode())
        except (TypeError, ValueError, RecursionError):
            continue
        if size <= room:
            kept |= json.loads(text)
            room -= size
    return kept


async def _act(policy: Policy, conversation: tuple[Message, ...]) -> Action:
    action: object = await policy.act(conversation)
    if not isinstance(action, Action) or not isinstance(action.text, str):
        raise PolicyError(f"act() returned {type(action).__name__} {action!r:.60}. Return Action(text).")
    if not is_storable(action.text):
        raise PolicyError("act() returned text with lone surrogates. Decode tokens with errors='replace'.")
    return action


async def _cross(
    boundary: type[LoomError],
    what: str,
    call: Call[T],
    timeout_s: float,
    suspended: Callable[[], None] = lambda: None,
    held_s: Callable[[], float] = lambda: 0.0,
) -> T:
    """The boundary: any exception or delay of `call` becomes the failure that ends the episode.

    Most calls wait for nothing and finish before they would need a timer; `suspended` is called whenever one waits.
    """
    timer = None
    try:
        # Stepped by hand: most calls finish without waiting, and a timer for each would cost more than the call.
        awaited = call.send(None)
        async with Deadline(timeout_s, held_s) as timer:
            return await _resume(call, awaited, suspended)
    except StopIteration as end:
        result: T = end.value
        return result
    except Hang as error:
        raise _EpisodeBroken(hang(str(error), timeout_s)) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise _EpisodeBroken(failure_from(error, boundary=boundary.boundary)) from error
    except (Exception, SystemExit) as error:  # the boundary
        if timer is not None and timer.expired():
            message = f"{what} took longer than rollout.turn_timeout_s={timeout_s:g}"
            message += ", without its engine's work for others" if boundary is PolicyError else ""
            raise _EpisodeBroken(Failure(boundary.boundary, "TimeoutError", message)) from error
        raise _EpisodeBroken(failure_from(error, boundary=boundary.boundary)) from error


@types.coroutine
def _resume(call: Call[T], awaited: Any, suspended: Callable[[], None]) -> Generator[Any, Any, T]:
    """The result of a call that has started and waits for `awaited`."""
    while True:
        suspended()
        try:
            resume = call.send
            value = yield awaited
        except BaseException as error:  # noqa: BLE001 - it is meant for `call`
            resume = call.throw
            value = error
        try:
            awaited = resume(value)
        except StopIteration as end:
            result: T = end.value
            return result


async def close_environment(environment: BaseEnvironment, timeout_s: float, seat: Seat | None = None) -> None:
    """Close the environment; an error here cannot affect the finished episode, so it is only logged."""
    seat = seat or Rounds().seat()
    closing = interruptible(GuardedEnvironment(environment).close(), timeout_s)
    try:
        await _cross(EpisodeError, "close()", closing, timeout_s, seat.waits)
    except _EpisodeBroken as broken:
        _log.warning("close() of %s: %s: %s", type(environment).__name__, broken.failure.kind, broken.failure.message)


def make_trajectory(
    attempt: Attempt,
    turns: tuple[Turn, ...],
    outcome: End | Failure,
    started_at: float,
    finished_at: float,
    *,
    threads: tuple[tuple[Turn, ...], ...] = (),
) -> Trajectory:
    """The trajectory of an attempt, with its labels. Its reward is the sum of its turns, or none after a failure."""
    failure = outcome if isinstance(outcome, Failure) else None
    versions = _versions(attempt, [turn for thread in (turns, *threads) for turn in thread])
    return Trajectory(
        id=attempt.id,
        task=attempt.task,
        turns=turns,
        threads=threads,
        end=outcome if isinstance(outcome, End) else End.FAILED,
        reward=Reward() if failure else _sum(turns),
        group=attempt.group,
        group_size=attempt.group_size,
        first_version=min(versions),
        last_version=max(versions),
        source=attempt.source,
        snapshot=attempt.snapshot,
        run=attempt.run,
        failure=failure,
        started_at=started_at,
        finished_at=finished_at,
        extra=attempt.extra,
    )


def _sum(turns: tuple[Turn, ...]) -> Reward:
    """Totals and parts added up; success is that of the last turn."""
    parts: dict[str, float] = {}
    for turn in turns:
        for name, value in turn.reward.parts.items():
            parts[name] = parts.get(name, 0.0) + value
    return Reward(sum(turn.reward.total for turn in turns), parts, turns[-1].reward.success)


def _versions(attempt: Attempt, turns: Sequence[Turn]) -> list[int]:
    sampled = [turn.tokens.versions_T[turn.tokens.mask_T] for turn in turns if turn.tokens is not None]
    return [int(v) for span in sampled if span.size for v in (span.min(), span.max())] or [attempt.version]


Make = Callable[[str, Mapping[str, Any]], BaseEnvironment]
"""Opens an environment by id (`name@version`) and settings."""


@quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An attempt to make, its policy, and the environment's settings. Picklable."""

    attempt: Attempt
    policy: PolicyChoice = field(default_factory=ScriptedPolicy)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: str = ""
    """Seed of the policy's randomness; by default the attempt's id."""


@dataclass(frozen=True, slots=True)
class _Seated:
    """An opponent that is asked in the seat of its attempt."""

    rival: Policy
    seat: Seat

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The next action, given the whole conversation."""
        await self.seat.turn()
        with self.seat.asking():
            return await self.rival.act(conversation)


class LocalHost:
    """Plays in this process, each episode in its own environment. A policy with weights is opened once.

    Of past versions in a second seat those that were met last stay open, as many as the league has members.
    """

    def __init__(self, make: Make, rollout: RolloutConfig, *, open_policy: OpenPolicy = open_policy) -> None:
        self._make = make
        self._open_policy = open_policy
        self._limits = EpisodeLimits(rollout.turn_timeout_s, rollout.episode_timeout_s)
        self._opened: dict[str, PolicyFactory] = {}
        self._rivals: OrderedDict[str, PolicyFactory] = OrderedDict()

    async def play(self, plan: Plan, seat: Seat | None = None) -> Trajectory:
        """Play one episode. Only configuration errors are raised."""
        seat = seat or Rounds().seat()
        seat.name = plan.attempt.id
        boundary = EpisodeError.boundary
        environment = None
        try:
            task = plan.attempt.task
            with HangWatch(self._limits.turn_timeout_s):
                environment = self._make(f"{task.environment}@{task.version}", plan.settings)
            boundary = PolicyError.boundary
            policy = self._factory(plan.policy)(environment, random.Random(plan.seed or plan.attempt.id))
            boundary = EpisodeError.boundary
            self._seat_rival(environment, plan, seat)
        except (ConfigError, RegistryError):
            raise
        except Hang as error:
            return failure_trajectory(plan.attempt, hang(str(error), self._limits.turn_timeout_s))
        except Exception as error:  # noqa: BLE001 - the boundary
            if environment is not None:
                await close_environment(environment, self._limits.turn_timeout_s, seat)
            return failure_trajectory(plan.attempt, failure_from(error, boundary=boundary))
        if environment.player is None:
            return await run_episode(environment, policy, plan.attempt, limits=self._limits, seat=seat)
        # Other attempts must not wait for it: nothing says when its program asks again.
        SEAT.set(seat)
        seat.step_aside()  # its program asks the policy whenever it likes, in no round
        try:
            return await environment.player(policy, plan.attempt, limits=self._limits)
        finally:
            seat.back()

    def _seat_rival(self, environment: BaseEnvironment, plan: Plan, seat: Seat) -> None:
        """Give the second seat to the policy that the task names, if it names one."""
        choice = rival_of(plan.attempt.task, plan.policy)
        if choice is None:
            return
        factory = self._factory(choice) if choice == plan.policy else self._rival(choice, environment)
        rival = factory(environment, random.Random(f"{plan.seed or plan.attempt.id}/opponent"))
        environment.seat(_Seated(rival, seat))

    def _rival(self, choice: PolicyChoice, environment: BaseEnvironment) -> PolicyFactory:
        """A past version. Trouble with it is no mistake in the configuration, but fails the attempt."""
        key = choice.model_dump_json()
        if key not in self._rivals:
            try:
                self._rivals[key] = self._open_policy(choice)
            except LoomError as error:
                raise EpisodeError(f"opponent: {error}") from error
        self._rivals.move_to_end(key)
        while environment.league is not None and len(self._rivals) > environment.league.members:
            self._rivals.popitem(last=False)
        return self._rivals[key]

    def _factory(self, choice: PolicyChoice) -> PolicyFactory:
        if isinstance(choice, ScriptedPolicy):
            return self._open_policy(choice)
        key = choice.model_dump_json()
        if key not in self._opened:
            self._opened[key] = self._open_policy(choice)
        return self._opened[key]
