"""Episodes of environments, played by hand, and problems of Math by family, level and seed."""

import asyncio
import time
from random import Random

from loomrl.envs.math.family import FAMILIES
from loomrl.store import open_store
from loomrl.store.judgements import answer, waiting


async def to_the_end(environment):
    """The last step of what the oracle does."""
    while True:
        step = await environment.step(environment.oracle())
        if step.terminated or step.truncated:
            return step


def make_problem(family, level, seed):
    """The Math problem of these three: the same in every process."""
    return FAMILIES[family](level, Random(f"{family}:{level}:{seed}"))


def opener(cls, family, level=1, seed=0):
    """Opens an environment of this class at a task; without arguments at this one."""

    async def open_task(family=family, level=level, seed=seed, **settings):
        environment = cls(settings)
        await environment.reset(environment.task(family, level, seed))
        return environment

    return open_task


def people(url, timeout_s=20.0):
    """The setting of a judge that asks people by this database."""
    return {"judge": {"kind": "human", "store": url, "timeout_s": timeout_s}}


async def answer_queue(url, choice):
    """Answer the queue as a person who watches it."""
    with open_store(url) as db:
        async with asyncio.timeout(20):
            while not (found := waiting(db, now=time.time())):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        answer(db, found[0].id, choice, who="ann", comment="I saw.", at=time.time())
    return found[0]
