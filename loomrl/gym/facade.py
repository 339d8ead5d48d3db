"""LoomRL environments as Gymnasium's: `gymnasium.make("loomrl/Math-v1")` and `make_vec`, text in and text out."""

import asyncio
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, create_shared_memory
from numpy.typing import NDArray

from loomrl.errors import ConfigError, unknown
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import make
from loomrl.gym.guard import GuardedEnvironment
from loomrl.gym.memory import MemoryBank
from loomrl.gym.synchronous import PrivateLoop
from loomrl.types import Observation, Task

OBSERVATION_LENGTH = 65_536
ACTION_LENGTH = 16_384
_BLOCKS = ((0x20, 0x7F), (0xA0, 0x530), (0x2000, 0x2600), (0x27C0, 0x2A00))
"""Latin, Greek, Cyrillic, punctuation, arrows, mathematics."""
CHARSET = "\n\t" + "".join(
    chr(code) for first, end in _BLOCKS for code in range(first, end) if unicodedata.category(chr(code))[0] not in "CM"
)

TextStep = tuple[str, float, bool, bool, dict[str, Any]]


class TextSpace(Text):
    """Text that must not go through Gymnasium's shared memory, where it would arrive as "000…"."""


@create_shared_memory.register(TextSpace)
def _refuse_shared_memory(space: TextSpace, n: int = 1, ctx: Any = None) -> None:
    raise CustomSpaceError(
        "Gymnasium's shared memory turns text into '000…'. "
        'Use gymnasium.make_vec(id, vectorization_mode="vector_entry_point"), or shared_memory=False.'
    )


def text_space(length: int) -> TextSpace:
    """Texts of up to `length` characters. As actions an environment accepts any text, including text outside it."""
    return TextSpace(length, min_length=0, charset=CHARSET)


class TextEpisodes:
    """One environment's episodes in Gymnasium's terms: seeds in, text out. A reset with a seed also clears all
    memories.
    """

    def __init__(self, environment: BaseEnvironment) -> None:
        self._memories = MemoryBank()
        self._guarded = GuardedEnvironment(environment, memories=self._memories)

    async def reset(
        self, seed: int | None, options: Mapping[str, Any] | None, rng: np.random.Generator
    ) -> tuple[str, dict[str, Any]]:
        """Begin the task of `seed`, or of one drawn from `rng`; options may name `task`, or `family` and `level`."""
        task = self._task(int(rng.integers(2**31)) if seed is None else seed, options or {})
        # A seed promises the same episode, so nothing may be left from earlier ones.
        if seed is not None:
            self._memories.load_state_dict({})
        task = self._memories.attach(task)
        observation = await self._guarded.reset(task)
        return as_text(observation), {"task": task.key}

    async def step(self, action: str) -> TextStep:
        """Act once."""
        if not isinstance(action, str):
            raise TypeError(f"action={action!r:.60} is {type(action).__name__}; LoomRL environments take text (str).")
        step = await self._guarded.step(str(action))
        info = {**step.info, "success": step.reward.success, "reward_parts": dict(step.reward.parts)}
        return as_text(step.observation), step.reward.total, step.terminated, step.truncated, info

    async def close(self) -> None:
        """Release the environment's resources."""
        await self._guarded.close()

    def _task(self, seed: int, options: Mapping[str, Any]) -> Task:
        for name in options:
            if name not in ("task", "family", "level"):
                raise ConfigError("reset option " + unknown("name", name, ("task", "family", "level")))
        if "task" in options:
            task: Task = options["task"]
            return task
        environment = self._guarded.environment
        drawn = environment.sample_task(seed)
        if not options:
            return drawn
        return environment.task(options.get("family", drawn.family), options.get("level", drawn.level), seed)


class TextEnvironment(gymnasium.Env[str, str]):
    """The registered environment `environment` with `settings`, on an event loop of its own."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(self, environment: str, render_mode: str | None = None, **settings: Any) -> None:
        self.observation_space = text_space(OBSERVATION_LENGTH)
        self.action_space = text_space(ACTION_LENGTH)
        self.render_mode = render_mode
        self._episodes = TextEpisodes(make(environment, settings))
        self._loop = PrivateLoop()
        self._shown = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode. The same seed begins the same task."""
        super().reset(seed=seed)
        self._shown, info = self._loop.wait(self._episodes.reset(seed, options, self.np_random))
        return self._shown, info

    def step(self, action: str) -> TextStep:
        """Act once."""
        step = self._loop.wait(self._episodes.step(action))
        self._shown = step[0]
        return step

    def render(self) -> str | None:  # type: ignore[override]
        """The latest observation, for `render_mode="ansi"`."""
        return self._shown if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the environment and end its loop. May be called again."""
        if self._loop.running:
            self._loop.wait(self._episodes.close())
            self._loop.close()


def as_text(observation: Observation) -> str:
    """The messages as one text of the observation space: unknown characters are escaped, long text is cut."""
    text = "\n\n".join(message.text for message in observation)
    if not _KNOWN.issuperset(text):
        text = "".join(char if char in _KNOWN else f"\\u{{{ord(char):x}}}" for char in text)
    if len(text) <= OBSERVATION_LENGTH:
        return text
    mark = f"\n[... {len(text) - OBSERVATION_LENGTH} characters and more left out ...]\n"
    half = (OBSERVATION_LENGTH - len(mark)) // 2
    return text[:half] + mark + text[-half:]


_KNOWN = frozenset(CHARSET)


Texts = tuple[str, ...]


class TextVectorEnvironment(gymnasium.vector.VectorEnv[Texts, Texts, NDArray[Any]]):
    """`num_envs` episodes of one environment. The step after an end ignores its action and begins the next episode."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(self, num_envs: int, environment: str, **settings: Any) -> None:
        self._loop = PrivateLoop()
        self._episodes: list[TextEpisodes] = []
        self.num_envs = num_envs
        self.single_observation_space = text_space(OBSERVATION_LENGTH)
        self.single_action_space = text_space(ACTION_LENGTH)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes += [TextEpisodes(make(environment, settings)) for _ in range(num_envs)]
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]
        self._over = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Texts, dict[str, Any]]:
        """Begin all episodes; from one seed, environment i gets `seed + i`."""
        seeds = self._seeds(seed)
        for index, one in enumerate(seeds):
            if one is not None:
                self._rngs[index] = np.random.default_rng(one)
        self._over[:] = False
        begun = [self._episodes[i].reset(seeds[i], options, self._rngs[i]) for i in range(self.num_envs)]
        observations, infos = zip(*self._loop.wait(_all(begun)), strict=True)
        return observations, self._merge(infos)

    def step(self, actions: Sequence[str]) -> tuple[Texts, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Act in every episode; those that were over restart with reward 0."""
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise ValueError(
                f"actions={actions!r:.60}: a sequence of {self.num_envs} texts is needed, one per episode."
            )
        steps = self._loop.wait(_all([self._advance(index, action) for index, action in enumerate(actions)]))
        observations, rewards, terminations, truncations, infos = zip(*steps, strict=True)
        terminated = np.array(terminations, np.bool_)
        truncated = np.array(truncations, np.bool_)
        self._over = terminated | truncated
        return observations, np.array(rewards, np.float64), terminated, truncated, self._merge(infos)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments and end their loop."""
        if self._loop.running:
            self._loop.wait(_all([episodes.close() for episodes in self._episodes]))
            self._loop.close()

    async def _advance(self, index: int, action: str) -> TextStep:
        if not self._over[index]:
            return await self._episodes[index].step(action)
        observation, info = await self._episodes[index].reset(None, None, self._rngs[index])
        return observation, 0.0, False, False, info

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None or isinstance(seed, int):
            return [None if seed is None else seed + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"seed={seed!r}: {self.num_envs} seeds are needed, one per environment, or a single one.")
        return list(seed)

    def _merge(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for index, info in enumerate(infos):
            merged = self._add_info(merged, info, index)
        return merged


async def _all(work: list[Any]) -> list[Any]:
    return await asyncio.gather(*work)
