"""Whether Ray has what a configuration asks for: what it has not, it would wait for without a word."""

from collections import Counter
from typing import Any

import ray

from loomrl.errors import ConfigError

Part = tuple[str, int, dict[str, float]]
"""What asks, how many processes that is, and what each of them gets."""


def refuse_impossible(config: Any) -> None:
    """A ConfigError where the processes of this configuration do not fit into Ray's whole cluster."""
    parts = [part for part in _parts(config) if part[1] and any(part[2].values())]
    if not parts:
        return
    there, asked = ray.cluster_resources(), Counter[str]()
    for _, count, each in parts:
        asked.update({name: count * amount for name, amount in each.items()})
    for name, amount in asked.items():
        if amount > there.get(name, 0):
            who = " and ".join(f"{what} with {each[name]:g} each" for what, _, each in _of(name, parts))
            raise ConfigError(
                f"{who}: that is {amount:g} {name}, of which Ray has {there.get(name, 0):g} in all. Ask for less, or "
                f"start Ray with more ({_more(name, amount)}, or more machines)."
            )


def bundles(config: Any) -> list[dict[str, float]]:
    """What a trial of this configuration needs, process by process; the first is that of the algorithm itself."""
    config.validate()
    here: dict[str, float] = {"CPU": 1}
    if not config.num_learners and config.num_gpus_per_learner:
        here["GPU"] = config.num_gpus_per_learner
    apart = [part for part in _parts(config) if part[0].partition("=")[0] != "num_learners" or config.num_learners]
    return [here] + [{n: a for n, a in each.items() if a} for _, count, each in apart for _ in range(count)]


def _parts(config: Any) -> list[Part]:
    cpus = config.num_cpus_per_learner
    if cpus == "auto":
        cpus = 0 if config.num_gpus_per_learner else 1
    learner = {"CPU": cpus, "GPU": config.num_gpus_per_learner}
    runner = {"CPU": config.num_cpus_per_env_runner, "GPU": config.num_gpus_per_env_runner}
    learner, runner = learner | config.custom_resources_per_learner, runner | config.custom_resources_per_env_runner
    runners, learners, judges = config.num_env_runners, config.num_learners, config.evaluation_num_env_runners
    parts: list[Part] = [(f"num_env_runners={runners}", runners, runner)]
    if learners:
        parts.append((f"num_learners={learners}", learners, learner))
    else:  # whose CPU is that of this process
        parts.append(("num_learners=0 (one in this process)", 1, {"GPU": config.num_gpus_per_learner}))
    if config.evaluation_interval:
        parts.append((f"evaluation_num_env_runners={judges}", judges, runner))
    return parts


def _of(name: str, parts: list[Part]) -> list[Part]:
    return [part for part in parts if part[2].get(name)]


def _more(name: str, amount: float) -> str:
    match name:
        case "CPU":
            return f"ray.init(num_cpus={amount:g})"
        case "GPU":
            return f"ray.init(num_gpus={amount:g}), where there are as many"
    return f"ray.init(resources={{{name!r}: {amount:g}}})"
