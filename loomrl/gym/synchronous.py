"""The two ways between plain code and an event loop: a loop on its own thread, and environments with plain functions.

    class Guess(BaseEnvironment):
        def __init__(self, config): self.highest = config["highest"]
        def reset(self): ...; return "Guess a number."
        def step(self, action): ...; return "Too low.", 0.0, False, {}

An observation is a text, or messages. A step has four values, with `done`, or Gymnasium's five. A reward is a number or
a `Reward`. Of a number, success at the end is `info["success"]` if given, else whether the episode's total reaches the
`reward_threshold` of the registration, else the total within 0..1.
"""

import asyncio
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import lru_cache
from queue import SimpleQueue
from random import getrandbits
from typing import Any, TypeVar

from pydantic import ConfigDict

from loomrl.errors import EpisodeError
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.threshold import reaches
from loomrl.types import Message, Observation, Reward, Task

T = TypeVar("T")


class PrivateLoop:
    """Runs coroutines for a synchronous caller. Ends with `close`, or once it is garbage-collected."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(self._loop,), daemon=True, name="loomrl-loop")
        thread.start()
        self._end = weakref.finalize(self, _stop, self._loop, thread)

    @property
    def running(self) -> bool:
        """False once it is closed, explicitly or by the program's end."""
        return self._end.alive

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; it is cancelled when the caller is interrupted."""
        future = self.start(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin `work`; its result comes later."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the thread. May be called again."""
        self._end()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()


FIVE = "(observation, reward, terminated, truncated, info)"


class _Free(EnvironmentSettings):
    """Settings of a class that reads its mapping itself."""

    model_config = ConfigDict(extra="allow")


@lru_cache(maxsize=256)
def asynchronous(cls: type[BaseEnvironment], threshold: float | None = None) -> type[BaseEnvironment]:
    """The class itself, if its `reset` and `step` are coroutines; else one that runs them in a thread of its own."""
    plain = [name for name in ("reset", "step") if not inspect.iscoroutinefunction(getattr(cls, name))]
    if len(plain) < 2:  # with one, it is half asynchronous, which the checker names
        return cls
    takes_task = len(inspect.signature(cls.reset).parameters) > 1
    ranged = "reward_range" in {
        name for base in cls.__mro__[: cls.__mro__.index(BaseEnvironment)] for name in vars(base)
    }

    class Asynchronous(cls):  # type: ignore[misc, valid-type]
        reward_range = cls.reward_range if ranged else (float("-inf"), float("inf"))

        def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
            super().__init__(dict(settings or {}))
            if "settings" not in vars(self):
                self.settings = _Free.parse(settings or {}, origin=f"{cls.__name__} settings")
            self._off_loop: _EnvironmentThread | None = None
            self._earned = 0.0

        async def reset(self, task: Task | None = None) -> Observation:
            given = (task or self.sample_task(getrandbits(31)),) if takes_task else ()
            self._earned = 0.0
            return read_observation(await self._run(super().reset, *given), origin="reset()")

        async def step(self, action: str) -> Step:
            step = read_step(await self._run(super().step, action))
            self._earned += step.reward.total
            if step.reward.parts or not (step.terminated or step.truncated):
                return step
            return step._replace(reward=Reward(step.reward.total, {}, self._success(step.info)))

        async def close(self) -> None:
            closing = super().close
            if inspect.iscoroutinefunction(closing):
                await closing()
            else:
                await self._run(closing)
            if self._off_loop is not None:
                self._off_loop.end()
                self._off_loop = None

        async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
            if self._off_loop is None:
                self._off_loop = _EnvironmentThread()
            return await self._off_loop.call(function, *arguments)

        def _success(self, info: Mapping[str, Any]) -> float:
            if "success" in info:
                return float(info["success"])
            return (
                float(reaches(self._earned, threshold)) if threshold is not None else min(max(self._earned, 0.0), 1.0)
            )

    Asynchronous.__name__ = cls.__name__
    Asynchronous.__qualname__ = cls.__qualname__
    Asynchronous.__module__ = cls.__module__
    Asynchronous.__doc__ = cls.__doc__
    return Asynchronous


def read_observation(seen: object, *, origin: str) -> Observation:
    """Messages as they are; a text as the user's; of Gymnasium's `(observation, info)` the observation."""
    if isinstance(seen, tuple) and len(seen) == 2 and isinstance(seen[1], dict):
        seen = seen[0]
    if isinstance(seen, str) and not isinstance(seen, Message):
        return (Message("user", seen),)
    if isinstance(seen, Message):
        return (seen,)
    if isinstance(seen, list | tuple) and all(isinstance(message, Message) for message in seen):
        return tuple(seen)
    raise EpisodeError(f"{origin} returned {type(seen).__name__} {seen!r:.60}. Return a text, or messages.")


def read_step(given: object) -> Step:
    """A step of four or five values, whose reward may be a plain number."""
    if isinstance(given, tuple) and len(given) == 4:
        seen, reward, done, info = given
        truncated = bool(done) and bool(isinstance(info, dict) and info.get("TimeLimit.truncated"))
        given = (seen, reward, bool(done) and not truncated, truncated, info)
    if not isinstance(given, tuple) or len(given) != 5:
        raise EpisodeError(f"step() returned {type(given).__name__} {given!r:.60}. Return {FIVE}, or four with `done`.")
    seen, reward, terminated, truncated, info = given
    if not isinstance(reward, Reward):
        try:
            reward = Reward(float(reward))
        except (TypeError, ValueError):
            raise EpisodeError(f"step() returned reward={reward!r:.60}: a number or a Reward is needed.") from None
    if not isinstance(info, dict):
        raise EpisodeError(f"step() returned info={info!r:.60}: a dict is needed.")
    return Step(read_observation(seen, origin="step()"), reward, bool(terminated), bool(truncated), info)


class _EnvironmentThread:
    """One daemon thread for one environment: calls run in order; one that hangs does not delay the program's end."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_work, args=(self._calls,), daemon=True, name="loomrl-environment").start()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's result; its exceptions are raised here."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        def work() -> None:
            value = None
            error = None
            try:
                value = function(*arguments)
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - the boundary to the author's code
                error = raised if not isinstance(raised, StopIteration | SystemExit) else EpisodeError(repr(raised))
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, error)

        self._calls.put(work)
        return await answer

    def end(self) -> None:
        """No further call; the thread ends after the present one."""
        self._calls.put(None)


def _work(calls: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (call := calls.get()) is not None:
        call()
