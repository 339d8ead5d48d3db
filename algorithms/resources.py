"""Whether Ray has what a configuration asks for: what it has not, it would wait for without a word."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group

from loomrl.config import Placement
from loomrl.errors import ClusterError, ConfigError

_log = logging.getLogger(__name__)

Amounts = Mapping[str, float]
Part = tuple[str, int, dict[str, float]]
"""What asks, how many processes that is, and what each of them gets."""
PROBE_S = 2.0
"""How long an update waits for a runner that died, to see if it is back; its node may be gone for good."""
NODE_GROUP = "ray.io/node-group"
"""Label of nodes that an autoscaler started, or KubeRay: there may be more of them than there are now."""


class Placed(Algorithm):  # type: ignore[misc]
    """An Algorithm that Tune does not wait for where no cluster like this one can ever have it."""

    @classmethod
    def default_resource_request(cls, config: Any) -> Any:
        """RLlib's, once it is possible."""
        asked = cls.get_default_config().update_from_dict(config)
        asked.validate()
        if ray.is_initialized():
            ensure_possible(asked)
        return super().default_resource_request(config)


def place(config: Any, placement: Placement, *, runners: str, learners: str) -> None:
    """Tell RLlib where runners and learners belong, and not to wait long for a node that is gone.

    `runners` and `learners` are the paths of the settings that count them, by which errors name them.
    """
    runner, learner = placement.runner, placement.learner
    config.placement, config.called = placement, {"num_env_runners": runners, "num_learners": learners}
    config.env_runner_health_probe_timeout_s = PROBE_S
    if runner.cpus is not None:
        config.num_cpus_per_env_runner = runner.cpus
    config.num_gpus_per_env_runner = runner.gpus
    config.custom_resources_per_env_runner = dict(runner.resources)
    if learner.cpus is not None:
        config.num_cpus_per_learner = learner.cpus
    config.custom_resources_per_learner = dict(learner.resources)


def needed_cpus(config: Any) -> int:
    """Of all remote processes of a validated configuration, rounded up."""
    return -int(-sum(count * each.get("CPU", 0) for _, count, each in parts_of(config)) // 1)


def ensure_room(config: Any) -> None:
    """Return once there is room for every process of this configuration, which has its `placement`.

    A ConfigError, at once, where the cluster can never have it; a ClusterError where it could, but has not in time.
    """
    if get_current_placement_group() is not None:  # of Tune, which has reserved it all
        return
    ensure_possible(config)
    parts = _asking(config)
    if not _fits(parts, _free()):
        _wait(parts, config.placement.wait_s)


def ensure_possible(config: Any) -> None:
    """A ConfigError where the cluster can never have what this configuration, which is valid, asks for."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if not any(NODE_GROUP in node["Labels"] for node in nodes):
        _refuse_impossible(_asking(config), [node["Resources"] for node in nodes])


def _asking(config: Any) -> list[Part]:
    return [part for part in parts_of(config) if part[1] and any(part[2].values())]


def _refuse_impossible(parts: Sequence[Part], nodes: Sequence[Amounts]) -> None:
    there, asked = Counter[str](), Counter[str]()
    for node in nodes:
        there.update(node)
    for _, count, each in parts:
        asked.update({name: count * amount for name, amount in each.items()})
    for name, amount in asked.items():
        if amount > there[name]:
            who = " and ".join(f"{what} with {each[name]:g} each" for what, _, each in parts if each.get(name))
            raise ConfigError(
                f"{who}: that is {amount:g} {name}, of which Ray has {there[name]:g} in all. Ask for fewer, give each "
                f"less (placement), or start Ray with more ({_more(name, amount)}, or more machines)."
            )
    for what, count, each in parts:
        room = sum(_room(node, each) for node in nodes)
        if room < count:
            problem = f"nodes have room for {room} of these" if room else "no node has all of that at once"
            raise ConfigError(
                f"{what} with {_named(each)} each: {problem}. Nodes have "
                f"{'; '.join(sorted({_named(node) for node in nodes}))}. Ask for less, or for what one node has."
            )


def _wait(parts: Sequence[Part], wait_s: float) -> None:
    """Reserve room for everybody, which tells an autoscaler what to start; then leave it to them."""
    asked = "; ".join(f"{what} with {_named(each)} each" for what, _, each in parts)
    _log.warning("waiting up to %.0f s until there is room for %s", wait_s, asked)
    asked_for = [{name: amount for name, amount in each.items() if amount} for _, count, each in parts
               for _ in range(count)]  # fmt: skip
    group = placement_group(asked_for)
    try:
        if not group.wait(max(wait_s, 0.1)):
            raise ClusterError(
                f"{asked}: after placement.wait_s={wait_s:g} s there is still no room; free are "
                f"{'; '.join(sorted(map(_named, _free())))}. Others use the cluster, or its autoscaler cannot start "
                "such nodes: `ray status` says which. Ask for less, or wait longer."
            )
    finally:
        remove_placement_group(group)


def _free() -> list[dict[str, float]]:
    return list(ray._private.state.available_resources_per_node().values())


def _fits(parts: Iterable[Part], nodes: Iterable[Amounts]) -> bool:
    """Whether everybody finds a node, the greediest first."""
    left = [Counter(dict(node)) for node in nodes]
    each = [one for _, count, amounts in parts for one in [amounts] * count]
    for amounts in sorted(each, key=lambda one: (-len(one), -sum(one.values()))):
        node = next((node for node in left if _has(node, amounts)), None)
        if node is None:
            return False
        node.subtract(amounts)
    return True


def _has(node: Amounts, amounts: Amounts) -> bool:
    return all(node.get(name, 0) >= amount - 1e-9 for name, amount in amounts.items())


def _room(node: Amounts, amounts: Amounts) -> int:
    """How many processes of these amounts an empty node takes."""
    return int(min((node.get(name, 0) + 1e-9) // amount for name, amount in amounts.items() if amount))


def bundles(config: Any) -> list[dict[str, float]]:
    """What a trial of this configuration needs, process by process; the first is that of the algorithm itself."""
    config.validate()
    here: dict[str, float] = {"CPU": 1}
    if not config.num_learners and config.num_gpus_per_learner:
        here["GPU"] = config.num_gpus_per_learner
    return [here] + [{n: a for n, a in each.items() if a} for _, count, each in _apart(config) for _ in range(count)]


def parts_of(config: Any) -> list[Part]:
    """The processes of an RLlib configuration that has been validated; of this one, what is not there by itself."""
    parts = _apart(config)
    if not config.num_learners and config.num_gpus_per_learner:
        here = f"{_called(config, 'num_learners')}=0 (one in this process)"
        parts.insert(1, (here, 1, {"GPU": config.num_gpus_per_learner}))
    return parts


def _apart(config: Any) -> list[Part]:
    """The remote processes, those that are counted 0 as well."""
    cpus = config.num_cpus_per_learner
    if cpus == "auto":
        cpus = 0 if config.num_gpus_per_learner else 1
    learner = {"CPU": cpus, "GPU": config.num_gpus_per_learner} | config.custom_resources_per_learner
    runner = {"CPU": config.num_cpus_per_env_runner, "GPU": config.num_gpus_per_env_runner}
    runner |= config.custom_resources_per_env_runner
    counts = {"num_env_runners": runner, "num_learners": learner}
    if config.evaluation_interval:
        counts["evaluation_num_env_runners"] = runner
    parts = [(f"{_called(config, name)}={getattr(config, name)}", getattr(config, name), each)
             for name, each in counts.items()]  # fmt: skip
    return [*parts, *getattr(config, "engines", ())]  # which only token policies have


def _called(config: Any, name: str) -> str:
    """A setting of RLlib by the name under which whoever asked knows it."""
    return str(getattr(config, "called", {}).get(name, name))


def _named(amounts: Amounts) -> str:
    hidden = ("node:", "memory", "object_store_memory", "accelerator_type:")
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount and not name.startswith(hidden))


def _more(name: str, amount: float) -> str:
    match name:
        case "CPU":
            return f"ray.init(num_cpus={amount:g})"
        case "GPU":
            return f"ray.init(num_gpus={amount:g}), where there are as many"
    return f"ray.init(resources={{{name!r}: {amount:g}}})"


def ensure_ray() -> None:
    """Return with a Ray: the one that is there, or one that is started as RLlib starts it."""
    if not ray.is_initialized():
        ray.init()
