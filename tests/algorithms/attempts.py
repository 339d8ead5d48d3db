"""Attempts at tasks as the hub hands them out, without a model that made them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from loomrl.types import End, Failure, Reward, Task, Tokens, Trajectory, Turn

HANG = Failure("environment", "Hang", "stuck")


def turn(prompt: int, action: int, reward: float = 0.0, version: int = 0) -> Turn:
    """A turn of so many tokens that are given and sampled."""
    mask = np.repeat([False, True], [prompt, action])
    logprobs = np.where(mask, -0.5, 0.0).astype(np.float32)
    versions = np.where(mask, version, -1).astype(np.int32)
    tokens = Tokens(np.arange(prompt + action, dtype=np.int32), mask, logprobs, versions)
    return Turn((), "x", reward=Reward(reward, {"a": reward}, float(reward > 0)), tokens=tokens)


def attempt(id: str, turns: Sequence[Turn] = (), *, failure: Failure | None = None, **fields: Any) -> Trajectory:
    """An attempt that earned what its turns did, or failed."""
    total = 0.0 if failure else sum(each.reward.total for each in turns)
    given: dict[str, Any] = {
        "task": Task("Ascii", "1.0.0", "plain", 2, 0),
        "reward": Reward() if failure else Reward(total, {"a": total}, float(total > 0)),
        "group": "g",
    }
    end = End.FAILED if failure else End.TERMINATED
    return Trajectory(id=id, turns=tuple(turns), end=end, failure=failure, **(given | fields))
