"""The process in which checks run: the environment as its argument, a job a line in, JSON lines out."""

import asyncio
import importlib
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loomrl.gym.base import BaseEnvironment
from loomrl.gym.check import hostile, promise
from loomrl.gym.check.probe import CheckProbe, EnvironmentCheck
from loomrl.gym.synchronous import asynchronous

JOBS: Mapping[str, Callable[[CheckProbe], Awaitable[EnvironmentCheck]]] = {
    "contract": promise.check_contract,
    "settings": promise.check_settings,
    "tasks": promise.check_tasks,
    "determinism": promise.check_determinism,
    "fingerprint": promise.fingerprint,
    "oracle": promise.check_oracle,
    "rewards": promise.check_rewards,
    "sandbox": hostile.check_sandbox,
}


def main() -> None:
    """Do the jobs. The environment's own output goes to standard error, and it has no input."""
    output = os.fdopen(os.dup(1), "w", buffering=1)
    jobs = os.fdopen(os.dup(0))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    request = json.loads(sys.argv[1])

    def tell(place: str) -> None:
        output.write(json.dumps({"at": place}) + "\n")

    kind = _find(request["entry_point"])
    probe = CheckProbe(kind, request["settings"], tell, request["step_limit_s"], request["share"])
    is_warm = False
    for job in (line.rstrip("\n") for line in jobs):
        if job.startswith("hostile") and not is_warm:
            asyncio.run(_warm_up(probe))
            is_warm = True
        tell(job)
        output.write(json.dumps(asdict(asyncio.run(_do(job, probe)))) + "\n")


async def _warm_up(probe: CheckProbe) -> None:
    """Reset once, so that imports and loading are not timed with the first text. Errors are left for the jobs to
    report.
    """
    with suppress(Exception, SystemExit):
        environment = probe.open()
        try:
            await environment.reset(next(probe.tasks(levels=(5,), seeds=(0,))))
        finally:
            await environment.close()


async def _do(job: str, probe: CheckProbe) -> EnvironmentCheck:
    """The job's check; an exception outside an episode fails it."""
    try:
        return await _find_out(job, probe)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's code
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}, in {place.name}"
        return EnvironmentCheck(job, False, f"{type(error).__name__}: {error} ({where})")


async def _find_out(job: str, probe: CheckProbe) -> EnvironmentCheck:
    if job in JOBS:
        return await JOBS[job](probe)
    kind, _, name = job.partition(" ")
    if kind == "attack":
        from loomrl.gym.attack.hunt import hunt

        found = await hunt(probe.kind, probe.settings, json.loads(name), probe.tell)
        return EnvironmentCheck("attack", True, json.dumps(found))
    if kind == "replay":
        from loomrl.gym.attack.hunt import replay

        return await replay(probe, json.loads(name))
    if kind == "hostile":
        return await hostile.check_text(probe, name)
    return await promise.check_opponent(probe, job)


def _find(entry_point: str) -> type[BaseEnvironment]:
    module, _, path = entry_point.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return asynchronous(found)


if __name__ == "__main__":
    main()
