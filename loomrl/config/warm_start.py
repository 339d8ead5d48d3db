"""Settings of the warm start of language policies."""

from collections.abc import Mapping

from pydantic import Field

from loomrl.config.basic import Positive, PositiveInt, Share
from loomrl.schema import Config

Formats = tuple[str, ...]


class WarmStart(Config):
    """Supervised steps on imperfect demonstrations by the environments' oracles, before reinforcement learning."""

    steps: int = Field(0, ge=0)
    """Number of supervised steps; 0 for none."""
    batch_size: PositiveInt = 128
    """Demonstrations per step."""
    learning_rate: Positive = 1e-3
    """Learning rate of these steps."""
    formats: Formats | Mapping[str, Formats] = ("{work}\n<answer>{answer}</answer>",)
    """Formats of a demonstration's end, in equal shares, with the oracle's `{work}` and `{answer}`. Actions without
    answer tags use the formats with `{action}`, or `{command}` (its last line), if there are any. Or a map from
    family patterns (`Math/calculus.*`) to formats; the first match counts."""
    wrong: Share | Mapping[str, Share] = 0.0
    """Fraction of demonstrations that end with a wrong answer or a random action. Or one per objective of `weave`,
    averaged by a demonstration's preference."""
    again: Share = 0.0
    """Fraction of demonstrations that begin with a wrong answer, where the environment allows another attempt."""
    tasks: PositiveInt | None = None
    """Number of tasks that demonstrations repeat; null takes a new task for each, which is slow for agents."""
