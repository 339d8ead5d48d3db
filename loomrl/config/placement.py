"""Which process runs on which kind of node, said once: by resources that only nodes of that kind have."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from loomrl.config.basic import NonNegative, Positive, Seconds
from loomrl.schema import Config

PER_CORE = 2
"""Processes of a run for a core at most, where nobody says how much of it each takes: they seldom work all at once."""
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


class Place(Config):
    """What each process takes of its node. `resources` are names that the cluster's nodes have: `{rollout: 1}`."""

    cpus: NonNegative | None = None
    """None is one; none for a learner that has a GPU."""
    resources: Annotated[dict[str, Positive], AfterValidator(_custom)] = Field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """As Ray's `.options(…)` of an actor takes them."""
        cpus = {} if self.cpus is None else {"num_cpus": self.cpus}
        return cpus | ({"resources": dict(self.resources)} if self.resources else {})


class GpuPlace(Place):
    """A place that may have GPUs; those of learners and engines are in settings of their own."""

    gpus: NonNegative = 0.0

    def options(self) -> dict[str, Any]:
        """As Ray's `.options(…)` of an actor takes them."""
        return super().options() | ({"num_gpus": self.gpus} if self.gpus else {})


class Placement(Config):
    """The kinds of node of a run. Empty places go wherever there is room; where LoomRL starts Ray itself, all fit."""

    driver: Place = Place()
    """Who leads the run, once it is submitted as a job; an empty place is the head node."""
    runner: GpuPlace = GpuPlace()
    """Each remote runner: of attempts, or of environments."""
    learner: Place = Place()
    """Each remote learner."""
    engine: Place = Place()
    """Each engine that is an actor of its own."""
    wait_s: Seconds = 900.0
    """How long nodes that an autoscaler starts, or that others are using, may take to be there."""

    @property
    def names(self) -> frozenset[str]:
        """Of all custom resources."""
        return frozenset(name for place in (self.driver, self.runner, self.learner, self.engine)
                         for name in place.resources)  # fmt: skip


def refuse_empty(name: str, place: Place, count_name: str, count: int) -> None:
    """A ValueError where nobody would be in this place: no process is counted."""
    if count == 0 and place != type(place)():
        raise ValueError(
            f"{name} has no effect with {count_name}=0, where it is no process of its own: raise it, or drop the place"
        )
