"""An environment held to its contract. Errors name the violation and the fix."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import getrandbits
from typing import Any

from loomrl import picture
from loomrl.errors import EpisodeError
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.gym.memory import MemoryBank, remembers
from loomrl.types import Message, Observation, Reward, Task

TOLERANCE = 1e-6
"""Tolerance for sums of floats."""
MOST_MEMORY = 64 * 1024
"""Bytes of memory that an attempt may leave: every later task and trajectory of its family carries them."""


class GuardedEnvironment:
    """Checks every answer of `environment` and truncates the episode after `settings.max_steps` actions.

    With `memories`, an episode begins with the memory left by the last successful one of its family.
    """

    def __init__(self, environment: BaseEnvironment, *, memories: MemoryBank | None = None) -> None:
        self.environment = environment
        self._memories = memories
        self._task: Task | None = None
        self._steps = 0
        self._total = 0.0
        self._running = False

    async def reset(self, task: Task | None = None) -> Observation:
        """Begin an attempt; None samples a task."""
        if self._memories is not None and remembers(self.environment):
            task = self._task = self._memories.attach(task or self.environment.sample_task(getrandbits(31)))
        observation = check_observation(await self.environment.reset(task), origin="reset()")
        self._steps = 0
        self._total = 0.0
        self._running = True
        return observation

    async def step(self, action: str) -> Step:
        """Act once. Anything but a correct Step in the right order is an EpisodeError."""
        self.check_running()
        step = check_step(await self.environment.step(action))
        self._steps += 1
        self._total += step.reward.total
        limit = self.environment.settings.max_steps
        if self._steps >= limit and not step.terminated and not step.truncated:
            step = step._replace(truncated=True, info={**step.info, "truncated_by": f"max_steps={limit}"})
        if step.terminated or step.truncated:
            self._running = False
            self._check_range()
            if self._memories is not None and self._task is not None and step.reward.success > 0:
                left = await self.memory()
                if left is not None:
                    self._memories.keep(self._task, left)
        return step

    def check_running(self) -> None:
        """An EpisodeError unless an episode has begun and is not over."""
        if not self._running:
            raise EpisodeError("step() before reset(), or after the episode ended. Call reset() first.")

    async def memory(self) -> dict[str, Any] | None:
        """A JSON copy of the memory that the attempt leaves, if any."""
        memory = self.environment.memory()
        return None if memory is None else check_memory(memory)

    async def correct(self) -> float | None:
        """The second check's success of the episode that has ended, if the environment has one."""
        found = self.environment.correct()
        if found is None:
            return None
        share = float(found)
        if not 0 <= share <= 1:
            raise EpisodeError(f"correct() returned {_show(found)}. Return a success from 0 to 1, or None.")
        return share

    async def close(self) -> None:
        """Release the environment's resources."""
        self._running = False
        await self.environment.close()

    def _check_range(self) -> None:
        low, high = self.environment.reward_range
        if not low - TOLERANCE <= self._total <= high + TOLERANCE:
            raise EpisodeError(
                f"the episode's rewards add up to {self._total:g}, outside reward_range={(low, high)}. "
                "Clip the reward, or declare the range it really has."
            )


async def begin(environment: BaseEnvironment, task: Task) -> Observation:
    """The first observation of a task that is not played as an attempt; an EpisodeError names the environment."""
    with _name_errors(environment):
        return check_observation(await environment.reset(task), origin="reset()")


async def act(environment: BaseEnvironment, action: str) -> Step:
    """A step of a task that is not played as an attempt; an EpisodeError names the environment."""
    with _name_errors(environment):
        return check_step(await environment.step(action))


@contextmanager
def _name_errors(environment: BaseEnvironment) -> Iterator[None]:
    try:
        yield
    except EpisodeError as error:
        raise EpisodeError(f"environment {environment.name or type(environment).__name__}: {error}") from error


def check_observation(observation: object, *, origin: str) -> Observation:
    """`observation`, if it is a tuple of messages that can be stored."""
    remedy = 'Return a tuple of messages, such as (Message("user", text),).'
    if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
        raise EpisodeError(f"{origin} returned (observation, info), as Gymnasium does. {remedy}")
    if not isinstance(observation, tuple) or isinstance(observation, Message):
        raise EpisodeError(f"{origin} returned {_show(observation)}. {remedy}")
    for message in observation:
        if not isinstance(message, Message) or not all(isinstance(text, str) for text in message[:2]):
            raise EpisodeError(f"{origin} returned a tuple that holds {_show(message)}. {remedy}")
        _check_images(message.images, origin)
        if not is_storable(message.content):
            raise EpisodeError(f"{origin} returned text with lone surrogates, which UTF-8 cannot hold. Quote it first.")
    return observation


def check_memory(memory: object) -> dict[str, Any]:
    """`memory` after a JSON round trip, if it is an object that can be stored."""
    remedy = "Return a mapping of plain JSON values, or None."
    if not isinstance(memory, Mapping):
        raise EpisodeError(f"memory() returned {_show(memory)}. {remedy}")
    try:
        text = json.dumps(dict(memory), allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise EpisodeError(f"memory() returned something that is not JSON: {error}. {remedy}") from error
    if size > MOST_MEMORY:
        raise EpisodeError(f"memory() returned {size} bytes, more than {MOST_MEMORY}. Bound what is remembered.")
    plain: dict[str, Any] = json.loads(text)
    return plain


def _check_images(images: object, origin: str) -> None:
    if not isinstance(images, tuple):
        raise EpisodeError(f"{origin} returned images={_show(images)}; a tuple of PNG files as bytes is needed.")
    if len(images) > picture.MOST:
        raise EpisodeError(f"{origin} returned {len(images)} images in one message; {picture.MOST} are allowed.")
    for image in images:
        if wrong := picture.fault(image):
            raise EpisodeError(f"{origin} returned an image that cannot be used: {wrong}. Give a PNG file's bytes.")


def check_step(step: object) -> Step:
    """`step` with its numbers as floats, if it is the five-tuple of the contract."""
    remedy = "Return Step(observation, reward, terminated, truncated, info)."
    if not isinstance(step, Step):
        if isinstance(step, tuple) and len(step) == 4:
            raise EpisodeError(
                "step() returned four values: the old Gym API with its bool `done`. "
                f"`terminated` is the task's own end, `truncated` a limit from outside. {remedy}"
            )
        if isinstance(step, tuple) and len(step) == 5:
            raise EpisodeError(
                f"step() returned a plain tuple of five values, as Gymnasium's environments do. {remedy} Step is in "
                "loomrl.gym.base. Only where `reset` and `step` are both plain functions are tuples read."
            )
        raise EpisodeError(f"step() returned {_show(step)}. {remedy}")
    check_observation(step.observation, origin="step()")
    for name, value in (("terminated", step.terminated), ("truncated", step.truncated)):
        if not isinstance(value, bool):
            raise EpisodeError(f"step() returned {name}={_show(value)}; True or False is needed.")
    if step.terminated and step.truncated:
        raise EpisodeError("step() returned terminated and truncated both. An episode has one end: choose.")
    if not isinstance(step.info, dict):
        raise EpisodeError(f"step() returned info={_show(step.info)}; a dict is needed.")
    return step._replace(reward=check_reward(step.reward))


def check_reward(reward: object) -> Reward:
    """`reward` with plain floats, if all of it is finite and success lies in 0..1."""
    if not isinstance(reward, Reward):
        raise EpisodeError(f"step() returned reward={_show(reward)}. Return Reward(total, parts, success).")
    if not isinstance(reward.parts, Mapping):
        raise EpisodeError(
            f"step() returned reward.parts={_show(reward.parts)}; a mapping of names to numbers is needed."
        )
    parts = {str(name): _finite(f"reward.parts[{name!r}]", value) for name, value in reward.parts.items()}
    success = _finite("reward.success", reward.success)
    if not 0 <= success <= 1:
        raise EpisodeError(f"step() returned reward.success={success:g}; success lies in 0..1.")
    return Reward(_finite("reward.total", reward.total), parts, success)


def is_storable(text: str) -> bool:
    """True if UTF-8 can encode `text`, which excludes lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise EpisodeError(f"step() returned {name}={_show(value)}; a finite number is needed.")
    return number


def _show(value: object) -> str:
    return f"{type(value).__name__} {value!r:.60}"
