"""Many episodes at a time for Gymnasium: `gymnasium.make_vec("loomrl/Math-v1", num_envs=8)`.

A separate vector entry point, because Gymnasium's shared memory loses text and its synchronous vector steps one
environment after the other; here they run concurrently on one event loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from loomrl.gym.catalogue import make
from loomrl.gym.facade import TextEpisodes, TextStep, action_space, observation_space
from loomrl.gym.host.loop import PrivateLoop

Texts = tuple[str, ...]


class TextVectorEnvironment(gymnasium.vector.VectorEnv[Texts, Texts, NDArray[Any]]):
    """`num_envs` episodes of one environment. The step after an end ignores its action and begins the next episode."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(self, num_envs: int, environment: str, **settings: Any) -> None:
        self._loop = PrivateLoop()
        self._episodes: list[TextEpisodes] = []
        self.num_envs = num_envs
        self.single_observation_space = observation_space()
        self.single_action_space = action_space()
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
