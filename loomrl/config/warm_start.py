"""Settings of the warm start of language policies."""

from collections.abc import Mapping

from pydantic import Field

from loomrl.config.basic import Positive, PositiveInt, Share
from loomrl.schema import Config

Formats = tuple[str, ...]


class WarmStart(Config):
    """Supervised steps on imperfect demonstrations of the environments' oracles, before reinforcement learning."""

    steps: int = Field(0, ge=0)
    """Number of steps; 0 leaves the warm start out."""
    batch_size: PositiveInt = 128
    """Demonstrations per step."""
    learning_rate: Positive = 1e-3
    """Learning rate of these steps."""
    formats: Formats | Mapping[str, Formats] = ("{work}\n<answer>{answer}</answer>",)
    """Formats of a demonstration's end, in equal shares; `{work}` and `{answer}` are the oracle's. Actions that are no
    answer between tags have those with `{action}`, or `{command}`, its last line; they stay as they are where there is
    none. Or formats for families by pattern (`Math/calculus.*`), the first that fits.
    """
    wrong: Share | Mapping[str, Share] = 0.0
    """Share of wrong answers, and of random other actions, which end the demonstration. Or one for each objective of
    `weave`, of which a demonstration has the mean by its preference.
    """
    again: Share = 0.0
    """Share in which a wrong answer comes first, where the environment lets the policy answer again."""
    tasks: PositiveInt | None = None
    """Demonstrations are of this many tasks, again and again. None: of a new task each, which is slow for agents, and
    where an environment starts a sandbox or a server.
    """
