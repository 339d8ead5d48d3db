"""Episodes of adapters, and where the packages are that cannot be installed beside ours."""

from random import Random

from sample_policies import Says

from loomrl.gym.episode import Attempt, run_episode
from tests.needs import ADAPTERS, need


async def play(environment, policy, family=None, level=1, seed=0):
    """An episode with the policy that `policy` opens; by default of the first family."""
    task = environment.task(family or environment.families[0], level, seed)
    return await run_episode(environment, policy(environment, Random(seed)), Attempt(id="t", task=task, group="t"))


def saying(*texts):
    """Opens a policy that says these texts, one after the other."""
    return lambda environment, rng: Says(*texts)


def python_of_adapters():
    """The interpreter that `make adapters` installs."""
    need("OpenEnv and verifiers")
    return str(ADAPTERS)
