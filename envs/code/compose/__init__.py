"""Problems composed of small parts: an unlimited number, longer and more complex at higher levels."""

from random import Random

from loomrl.envs.code.compose.expression import formula, two_ways
from loomrl.envs.code.compose.pipeline import pipeline
from loomrl.envs.code.problem import CodeProblem

NAME = "f"
"""The name of every composed function."""


def compose(level: int, rng: Random) -> CodeProblem:
    """A problem of this level: one formula, a choice between two, then lists that pass through more and more steps."""
    if level == 1:
        return formula(NAME, rng)
    if level == 2:
        return two_ways(NAME, rng)
    return pipeline(NAME, level, rng)


__all__ = ["NAME", "compose"]
