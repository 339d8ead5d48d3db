"""Checks that Ray has the resources of a configuration: Ray would wait forever for resources that no node has."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.env import env_runner_group
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group
from typing_extensions import override

from loomrl.config import Placement
from loomrl.errors import ClusterError, ConfigError
from loomrl.own_ray import cluster_address, ensure_ray, ray_on_demand

_log = logging.getLogger(__name__)

Amounts = Mapping[str, float]
Part = tuple[str, int, dict[str, float]]
"""The requester, its number of processes, and the resources of each."""
PROBE_S = 2.0
"""Time for which an update waits for a dead runner to return; its node may be gone for good."""
NODE_GROUP = "ray.io/node-group"
"""Label of nodes started by an autoscaler or KubeRay, which may start more."""


class Placed(Algorithm):
    """An Algorithm for which Tune does not wait if no cluster like this one can ever place it."""

    @classmethod
    @override
    def default_resource_request(cls, config: Any) -> Any:
        """RLlib's resource request, after checking that it is possible."""
        asked = cls.get_default_config().update_from_dict(config)
        asked.validate()
        if ray.is_initialized():
            ensure_possible(asked)
        return super().default_resource_request(config)


def place(config: Any, placement: Placement, *, runners: str, learners: str) -> None:
    """Set RLlib's placement of runners and learners, and a short wait for lost nodes.

    `runners` and `learners` are the paths of the settings that count them, for error messages.
    """
    runner = placement.runner
    learner = placement.learner
    config.placement = placement
    config.called = {"num_env_runners": runners, "num_learners": learners}
    config.env_runner_health_probe_timeout_s = PROBE_S
    if runner.cpus is not None:
        config.num_cpus_per_env_runner = runner.cpus
    config.num_gpus_per_env_runner = runner.gpus
    config.custom_resources_per_env_runner = dict(runner.resources)
    if learner.cpus is not None:
        config.num_cpus_per_learner = learner.cpus
    config.custom_resources_per_learner = dict(learner.resources)


def needed_cpus(config: Any) -> int:
    """CPUs of all remote processes of a validated configuration, rounded up."""
    return -int(-sum(count * each.get("CPU", 0) for _, count, each in parts_of(config)) // 1)


def ensure_room(config: Any) -> None:
    """Return once Ray has room for every other process of this configuration, which has its `placement`; without any,
    Ray is not started.

    A ConfigError, at once, if the cluster can never have it; a ClusterError if it could, but has no room in time.
    """
    if needs_ray(config):
        ensure_ray()
    ray_on_demand()
    env_runner_group.ray = _RayIfRunning()
    if not ray.is_initialized() or get_current_placement_group() is not None:  # of Tune, which has reserved it all
        return
    ensure_possible(config)
    parts = _asking(config)
    if not _fits(parts, _free()):
        _wait(parts, config.placement.wait_s)


def needs_ray(config: Any) -> bool:
    """True if a validated configuration has more than this process, or parts of RLlib's or the user's that may; or if
    there is a cluster to be part of.
    """
    return bool(_asking(config) or getattr(config, "fallback_reasons", ()) or cluster_address())


class _RayIfRunning:
    """Ray, as RLlib's group of runners sees it: it stores everything for remote runners, even where there are none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def put(self, value: Any) -> Any:
        """A reference; without Ray, the value itself."""
        return ray.put(value) if ray.is_initialized() else value


def ensure_possible(config: Any) -> None:
    """A ConfigError if the cluster can never have the resources of this validated configuration."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if not any(NODE_GROUP in node["Labels"] for node in nodes):
        _refuse_impossible(_asking(config), [node["Resources"] for node in nodes])


def _asking(config: Any) -> list[Part]:
    return [part for part in parts_of(config) if part[1] and any(part[2].values())]


def _refuse_impossible(parts: Sequence[Part], nodes: Sequence[Amounts]) -> None:
    there = Counter[str]()
    asked = Counter[str]()
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
                f"{what} with {_list_amounts(each)} each: {problem}. Nodes have "
                f"{'; '.join(sorted({_list_amounts(node) for node in nodes}))}. Ask for less, or for what one node has."
            )


def _wait(parts: Sequence[Part], wait_s: float) -> None:
    """Reserve room for all processes, which tells an autoscaler what to start; then release it for them."""
    asked = "; ".join(f"{what} with {_list_amounts(each)} each" for what, _, each in parts)
    _log.warning("waiting up to %.0f s until there is room for %s", wait_s, asked)
    asked_for = [{name: amount for name, amount in each.items() if amount} for _, count, each in parts
               for _ in range(count)]  # fmt: skip
    group = placement_group(asked_for)
    try:
        if not group.wait(max(wait_s, 0.1)):
            raise ClusterError(
                f"{asked}: after placement.wait_s={wait_s:g} s there is still no room; free are "
                f"{'; '.join(sorted(map(_list_amounts, _free())))}. Others use the cluster, or its autoscaler cannot "
                "start such nodes: `ray status` says which. Ask for less, or wait longer."
            )
    finally:
        remove_placement_group(group)


def _free() -> list[dict[str, float]]:
    return list(ray._private.state.available_resources_per_node().values())


def _fits(parts: Iterable[Part], nodes: Iterable[Amounts]) -> bool:
    """True if every process fits on a node, the largest first."""
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
    """Number of processes with these amounts that fit on an empty node."""
    return int(min((node.get(name, 0) + 1e-9) // amount for name, amount in amounts.items() if amount))


def bundles(config: Any) -> list[dict[str, float]]:
    """The resources of a trial with this configuration, process by process; the first is the algorithm's own."""
    config.validate()
    here: dict[str, float] = {"CPU": 1}
    if not config.num_learners and config.num_gpus_per_learner:
        here["GPU"] = config.num_gpus_per_learner
    return [here] + [{n: a for n, a in each.items() if a} for _, count, each in _apart(config) for _ in range(count)]


def parts_of(config: Any) -> list[Part]:
    """The processes of a validated RLlib configuration; of the driver's, only what it needs beyond the default."""
    parts = _apart(config)
    if not config.num_learners and config.num_gpus_per_learner:
        here = f"{_setting_name(config, 'num_learners')}=0 (one in this process)"
        parts.insert(1, (here, 1, {"GPU": config.num_gpus_per_learner}))
    return parts


def _apart(config: Any) -> list[Part]:
    """The remote processes, including those counted 0."""
    cpus = config.num_cpus_per_learner
    if cpus == "auto":
        cpus = 0 if config.num_gpus_per_learner else 1
    learner = {"CPU": cpus, "GPU": config.num_gpus_per_learner} | config.custom_resources_per_learner
    runner = {"CPU": config.num_cpus_per_env_runner, "GPU": config.num_gpus_per_env_runner}
    runner |= config.custom_resources_per_env_runner
    counts = {"num_env_runners": runner, "num_learners": learner}
    if config.evaluation_interval:
        counts["evaluation_num_env_runners"] = runner
    parts = [(f"{_setting_name(config, name)}={getattr(config, name)}", getattr(config, name), each)
             for name, each in counts.items()]  # fmt: skip
    return [*parts, *getattr(config, "engines", ())]  # which only token policies have


def _setting_name(config: Any, name: str) -> str:
    """The name by which the user knows a setting of RLlib."""
    return str(getattr(config, "called", {}).get(name, name))


def _list_amounts(amounts: Amounts) -> str:
    hidden = ("node:", "memory", "object_store_memory", "accelerator_type:")
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount and not name.startswith(hidden))


def _more(name: str, amount: float) -> str:
    match name:
        case "CPU":
            return f"ray.init(num_cpus={amount:g})"
        case "GPU":
            return f"ray.init(num_gpus={amount:g}), where there are as many"
    return f"ray.init(resources={{{name!r}: {amount:g}}})"
