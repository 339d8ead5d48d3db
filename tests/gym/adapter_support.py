"""Episodes of adapters, and where the packages are that cannot be installed beside ours."""

import os
from pathlib import Path
from random import Random

import pytest
from sample_policies import Says

from loomrl.gym.episode import Attempt, run_episode


async def play(environment, policy, family=None, level=1, seed=0):
    """An episode with the policy that `policy` opens; by default of the first family."""
    task = environment.task(family or environment.families[0], level, seed)
    return await run_episode(environment, policy(environment, Random(seed)), Attempt(id="t", task=task, group="t"))


def saying(*texts):
    """Opens a policy that says these texts, one after the other."""
    return lambda environment, rng: Says(*texts)


def python_of_adapters() -> str:
    """The interpreter that `make adapters` installs."""
    python = Path(__file__).parent.parent.parent / ".venv-adapters" / "bin" / "python"
    if not python.exists():
        pytest.fail("CI must run `make adapters`") if os.environ.get("CI") else pytest.skip("needs `make adapters`")
    return str(python)
