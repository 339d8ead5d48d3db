"""A bound on the steps of an episode in evaluations: a policy that does not end one would be judged for ever.

Axes: `_N` environments.
"""

from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from loomrl.control.shared import SharedVector
from loomrl.errors import EpisodeError

MOST_STEPS = 10_000
"""Steps after which an episode is cut in environments that register no limit of their own."""


class StepLimit:
    """Cuts episodes that go on for longer than `steps`; None takes the default, and spares environments with a limit of
    their own.
    """

    def __init__(self, environments: VectorEnv[Any, Any, Any], steps: int | None = None) -> None:
        self._environments = environments
        default = None if _limits_itself(environments) else MOST_STEPS
        self.steps = default if steps is None else steps
        """None: the environments' own limit holds."""

    def overdue(self, steps_N: NDArray[np.int64], over_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The environments whose episodes are as long as allowed and have not ended by themselves."""
        if self.steps is None:
            return np.zeros_like(over_N)
        overdue_N: NDArray[np.bool_] = ~over_N & (steps_N >= self.steps)
        return overdue_N

    def told(self, count: int) -> str:
        """A warning about `count` episodes that were cut."""
        return (
            f"{count} episodes of an evaluation were cut after {self.steps} steps, and count as truncated. "
            "gymnasium.wrappers.TimeLimit sets another limit."
        )

    def restart(self, overdue_N: NDArray[np.bool_]) -> Any:
        """Begin new episodes in these environments; returns all observations."""
        inner = self._environments.unwrapped
        if not isinstance(inner, SyncVectorEnv | AsyncVectorEnv | SharedVector):
            raise EpisodeError(
                f"an episode has not ended after {self.steps} steps, and {type(inner).__name__} cannot begin a single "
                "environment anew. Give the environment a time limit (max_episode_steps), or take it one by one "
                "(environment.vectorization=sync)."
            )
        observations, _ = self._environments.reset(options={"reset_mask": overdue_N})
        return observations


def _limits_itself(environments: VectorEnv[Any, Any, Any]) -> bool:
    """True if the environments were registered with a time limit."""
    specs = [environments.spec]
    if isinstance(environments.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        specs += environments.unwrapped.get_attr("spec")
    return any(spec is not None and spec.max_episode_steps is not None for spec in specs)
