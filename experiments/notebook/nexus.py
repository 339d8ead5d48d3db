"""Training on several processes or machines, from a script: which environments, where it runs, and what came of it."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import ray

from loomrl.config import EnvironmentConfig
from loomrl.errors import ConfigError
from loomrl.experiments.notebook.integrated import GymPPOIntegration, TrainingSummary, config_of
from loomrl.gym.manual import ManualEnvironment


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distributed training, and where it ran."""

    summary: TrainingSummary
    places: Mapping[str, tuple[str, ...]]
    """Kind of process, such as `learner` → the node of each."""

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.summary.run

    def __str__(self) -> str:
        where = "; ".join(f"{name} on {', '.join(nodes)}" for name, nodes in self.places.items())
        return f"run {self.run}: {where}"


class NexusWorker:
    """Two learners that exchange compressed gradients, and two runners that get the weights, wherever Ray has room.

    On a cluster set RAY_ADDRESS; without, the processes are on this machine. Weights travel sealed and verified
    (docs/weights.md), to vLLM engines on other nodes as compressed deltas.
    """

    def __init__(self, *, compression: Literal["none", "fp16", "bf16", "powersgd"] = "fp16") -> None:
        self._compression = compression
        self._environments: list[EnvironmentConfig] = []

    def register_gym_environments(self, environments: Iterable[ManualEnvironment]) -> list[str]:
        """Train in these, such as `gym.environments`; their names."""
        self._environments = list({config.id: config for config in map(config_of, environments)}.values())
        if not self._environments:
            raise ConfigError("no environment: create one first, by gym.create_environment.")
        return [config.id for config in self._environments]

    def distribute_rl_training(
        self, integration: GymPPOIntegration, *, max_iterations: int | None = None
    ) -> Distribution:
        """Train in the environments registered here, or in the integration's own; the caller waits."""
        ppo = integration.ppo.model_copy(update={"distributed": True, "compression": self._compression})
        here = GymPPOIntegration(integration.gym, ppo)
        if self._environments:
            here = here.on(self._environments)
        updates = max_iterations or ppo.updates(None, named="max_iterations")
        places: dict[str, tuple[str, ...]] = {}
        with ThreadPoolExecutor(1) as thread:  # training has an event loop of its own, and a notebook has one here
            training = thread.submit(here.run, updates, listener=lambda done, metrics: places.update(_places()))
            summary = training.result()
        integration.summary = summary
        return Distribution(summary, places)


_NAMED = {"LanguageRunner": "runner", "_WrappedExecutable": "learner"}
"""By the last part of an actor's class name; others keep theirs."""


def _places() -> dict[str, tuple[str, ...]]:
    """Kind of process → names of the nodes where those that live are."""
    names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    found: dict[str, list[str]] = {}
    actors: Mapping[str, Mapping[str, Any]] = ray._private.state.actors()
    for actor in actors.values():
        if actor["State"] == "ALIVE":
            kind = actor["ActorClassName"].rpartition(".")[2]
            found.setdefault(_NAMED.get(kind, kind), []).append(names[actor["Address"]["NodeID"]])
    return {name: tuple(sorted(nodes)) for name, nodes in sorted(found.items())}
