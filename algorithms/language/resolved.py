"""An experiment of a token policy, resolved: the algorithm's own settings, and the place of the first weights."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from loomrl.algorithms.language.origin import origin_of
from loomrl.canonical import content_hash
from loomrl.config import DPO, GRPO, KTO, PPO, RAFT, RLOO, Experiment, Reinforce

Algorithms = PPO | GRPO | RLOO | Reinforce | DPO | KTO | RAFT


@dataclass(frozen=True)
class Resolved:
    """An experiment and its algorithm, which may be one of the user's own."""

    experiment: Experiment
    algorithm: Algorithms

    @property
    def origin(self) -> Path:
        """The folder of the first weights, on this machine."""
        return origin_of(self.algorithm.model, artifact_url=self.experiment.artifact_url, built=self.built_name)

    @cached_property
    def built_name(self) -> str:
        """Under which artifact a model without a path is stored: it follows from all that goes into it."""
        experiment, algorithm = self.experiment, self.algorithm
        if experiment.data is not None:
            return f"models/{content_hash(['parent', experiment.data.parent])[:16]}"
        parts = [algorithm.model, algorithm.warm_start, experiment.curriculum, *experiment.environments]
        return f"models/{content_hash([experiment.seed, *(part.model_dump(mode='json') for part in parts)])[:16]}"
