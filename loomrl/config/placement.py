"""Placement of a run's processes on kinds of nodes, by custom resources that only those nodes have."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from loomrl.config.basic import NonNegative, Positive, Seconds
from loomrl.schema import Config

PER_CORE = 2
"""Maximum processes of a run per core if their CPUs are not set: they seldom all work at once."""
_RAYS_OWN = {"CPU": "cpus", "GPU": "gpus", "memory": None, "object_store_memory": None}


def _custom(resources: dict[str, float]) -> dict[str, float]:
    for name in _RAYS_OWN.keys() & resources.keys():
        instead = _RAYS_OWN[name]
        remedy = f"say {instead} instead" if instead else "leave it out"
        raise ValueError(f"{name} is Ray's own, not one that a kind of node is told by: {remedy}")
    for name, amount in resources.items():
        if amount > 1 and amount != int(amount):
            raise ValueError(f"{name}={amount:g}: Ray takes whole numbers, or parts of one")
    return resources


class ProcessResources(Config):
    """Resources of each process on its node."""

    cpus: NonNegative | None = None
    """CPUs of each process; null means 1, or 0 for a learner with a GPU."""
    resources: Annotated[dict[str, Positive], AfterValidator(_custom)] = Field(default_factory=dict)
    """Custom resources that each process takes from its node, such as `{rollout: 1}`."""

    def options(self) -> dict[str, Any]:
        """Arguments for `.options(…)` of a Ray actor."""
        cpus = {} if self.cpus is None else {"num_cpus": self.cpus}
        return cpus | ({"resources": dict(self.resources)} if self.resources else {})


class GpuResources(ProcessResources):
    """Resources of processes that may have GPUs; learners and engines have their own settings for GPUs."""

    gpus: NonNegative = 0.0
    """GPUs of each process."""

    def options(self) -> dict[str, Any]:
        """Arguments for `.options(…)` of a Ray actor."""
        return super().options() | ({"num_gpus": self.gpus} if self.gpus else {})


class Placement(Config):
    """Nodes for each kind of process. Without resources, processes use any node with room."""

    driver: ProcessResources = ProcessResources()
    """The driver of a submitted job; without resources it runs on the head node."""
    runner: GpuResources = GpuResources()
    """Each remote runner."""
    learner: ProcessResources = ProcessResources()
    """Each remote learner."""
    engine: ProcessResources = ProcessResources()
    """Each engine that has its own actor."""
    colocated: bool = False
    """Learner and engines use one memory by turns: engines give their caches back while the learner steps. Not tried on
    a GPU yet."""
    wait_s: Seconds = 900.0
    """Time limit for nodes to become available, from an autoscaler or from other users."""

    @property
    def names(self) -> frozenset[str]:
        """Names of all custom resources."""
        return frozenset(name for place in (self.driver, self.runner, self.learner, self.engine)
                         for name in place.resources)  # fmt: skip


def refuse_empty(name: str, place: ProcessResources, count_name: str, count: int) -> None:
    """A ValueError for a place with settings but without processes."""
    if count == 0 and place != type(place)():
        raise ValueError(
            f"{name} has no effect with {count_name}=0, where it is no process of its own: raise it, or drop the place"
        )
