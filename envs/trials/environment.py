"""Several trials at one task in one episode (RL²; Duan et al., 2016; Wang et al., 2016)."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from loomrl.control.environment import TRIAL_RETURNS
from loomrl.envs.trials.distribution import Part, Tasks
from loomrl.errors import ConfigError, unknown

Seen = NDArray[np.float32]
Redraw = Literal["episode", "trial"]


class Trials(gymnasium.Env[Seen, Any]):
    """`trials` episodes of `environment`, a Gymnasium id, one after the other, as one episode. Its task, which is the
    settings that `vary`, is drawn at the beginning and stays, so that a policy with a memory can use in later trials
    what it found out in earlier ones.

    An observation is the environment's, flattened, then the action before (one of several, or numbers from -1 to 1),
    the reward before, and 1 where a trial begins. Both are zero at the episode's beginning. With `recall=False` they
    are left out.

    `redraw="trial"` is a control: another task in every trial, so that nothing can be learnt about it.
    """

    def __init__(  # noqa: PLR0913 - settings of an experiment
        self,
        environment: str,
        vary: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
        trials: int = 5,
        part: Part = "all",
        redraw: Redraw = "episode",
        recall: bool = True,
    ) -> None:
        if trials < 1:
            raise ConfigError(f"trials={trials}: an episode has at least one.")
        if redraw not in get_args(Redraw):
            raise ConfigError("redraw: " + unknown("time", redraw, get_args(Redraw)))
        self._id = environment
        self._settings = dict(settings or {})
        self._redraw = redraw
        self._count = trials
        self._recall = recall
        self._tasks = Tasks(vary, part)
        if both := sorted({*vary} & {*self._settings}):
            raise ConfigError(f"vary and settings both name {', '.join(both)}: leave it out of one of them.")
        self._inner = self._made(self._tasks.draw(np.random.default_rng(0)))
        self._shown = self._inner.observation_space
        self.action_space = self._inner.action_space
        flat = [_flat(self._shown, "observations")]
        if recall:
            flat += [_scaled(self.action_space), spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0.0, 1.0, (1,))]
        low, high = (np.concatenate([getattr(box, end) for box in flat], dtype=np.float32) for end in ("low", "high"))
        self.observation_space = spaces.Box(low, high)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin the first trial at a new task, which `info` tells."""
        super().reset(seed=seed)
        self._returns = np.zeros(self._count)
        self._trial = 0
        self._before = np.zeros(self._size_before, np.float32)
        task = self._draw()
        seen, _ = self._inner.reset(seed=self._seed())
        return self._told(seen, begins=True), {"task": task}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Act in the present trial. Where it ends the next one begins at once; where the last one ends `info` has the
        returns of all.
        """
        seen, reward, terminated, truncated, _ = self._inner.step(action)
        self._returns[self._trial] += reward
        self._before = np.append(_number(self.action_space, action), np.float32(reward))
        ends = bool(terminated or truncated)
        self._trial += ends
        if self._trial == self._count:
            return self._told(seen, begins=False), float(reward), True, False, {TRIAL_RETURNS: self._returns.copy()}
        if ends:
            seed = None
            if self._redraw == "trial":
                self._draw()
                seed = self._seed()
            seen, _ = self._inner.reset(seed=seed)
        return self._told(seen, begins=ends), float(reward), False, False, {}

    def close(self) -> None:
        """Close the environment of the trials."""
        self._inner.close()

    @property
    def _size_before(self) -> int:
        return spaces.flatdim(self.action_space) + 1

    def _seed(self) -> int:
        return int(self.np_random.integers(2**31))

    def _draw(self) -> dict[str, Any]:
        """Another task, and an environment that has it."""
        task = self._tasks.draw(self.np_random)
        self._inner.close()
        self._inner = self._made(task)
        spaces_now = self._inner.observation_space, self._inner.action_space
        if spaces_now != (self._shown, self.action_space):
            raise ConfigError(
                f"vary: with {task} environment {self._id!r} has the spaces {spaces_now}, with other tasks "
                f"{(self._shown, self.action_space)}. Leave out what changes its spaces."
            )
        return task

    def _made(self, task: Mapping[str, Any]) -> Any:
        return gymnasium.make(self._id, disable_env_checker=True, **self._settings, **task)

    def _told(self, seen: Any, *, begins: bool) -> Seen:
        shown = np.asarray(spaces.flatten(self._shown, seen), np.float32)
        return np.concatenate([shown, self._before, [np.float32(begins)]], dtype=np.float32) if self._recall else shown


def _flat(space: spaces.Space[Any], what: str) -> spaces.Box:
    flat = spaces.flatten_space(space)
    if not isinstance(flat, spaces.Box):
        raise ConfigError(f"{what} of {space} are not a fixed number of numbers, which trials need.")
    return flat


def _scaled(space: spaces.Space[Any]) -> spaces.Box:
    """The flattened actions; bounded real-valued ones are scaled."""
    flat = _flat(space, "actions")
    if isinstance(space, spaces.Box):
        end = np.where(np.isfinite(flat.low) & np.isfinite(flat.high), 1.0, np.inf).astype(np.float32)
        return spaces.Box(-end, end)
    return flat


def _number(space: spaces.Space[Any], action: Any) -> Seen:
    flat = np.asarray(spaces.flatten(space, action), np.float32)
    if not isinstance(space, spaces.Box):
        return flat
    low, high = space.low.ravel(), space.high.ravel()
    is_bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        return np.where(is_bounded, 2 * (np.clip(flat, low, high) - low) / (high - low) - 1, flat).astype(np.float32)
