"""Episodes of environments, played by hand, and problems of Math by family, level and seed."""

from random import Random

from loomrl.envs.math.family import FAMILIES
from loomrl.envs.math.problem import MathProblem


async def to_the_end(environment):
    """The last step of what the oracle does."""
    while True:
        step = await environment.step(environment.oracle())
        if step.terminated or step.truncated:
            return step


def make_problem(family: str, level: int, seed: int) -> MathProblem:
    """The Math problem of these three: the same in every process."""
    return FAMILIES[family](level, Random(f"{family}:{level}:{seed}"))


def opener(cls, family: str, level: int = 1, seed: int = 0):
    """Opens an environment of this class at a task; without arguments at this one."""

    async def open_task(family=family, level=level, seed=seed, **settings):
        environment = cls(settings)
        await environment.reset(environment.task(family, level, seed))
        return environment

    return open_task
