"""Math: problems built backwards from exact answers, checked by a bounded grammar of our own."""

from loomrl.envs.math.environment import MathEnvironment

__all__ = ["MathEnvironment"]
