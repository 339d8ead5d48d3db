"""REINFORCE over a mixture of scripted policies: the smallest learner that goes through the whole line.

A policy of one token (which arm to play) with a leave-one-out baseline inside each group. It teaches nobody arithmetic;
it shows, without weights or a GPU, that reward reaches the policy and that shuffled reward does not.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.config import BanditAlgorithm, MixturePolicy
from loomrl.errors import ConfigError
from loomrl.types import Group


class Bandit:
    """Logits over arms, moved along the policy gradient once per batch of groups."""

    def __init__(self, settings: BanditAlgorithm) -> None:
        self.settings = settings
        self.logits = [0.0] * len(settings.arms)

    def policy(self, version: int) -> MixturePolicy:
        """What acts now."""
        return MixturePolicy(arms=self.settings.arms, logits=tuple(self.logits), version=version)

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """One step; attempts that failed, and groups in which nothing can be compared, teach nothing."""
        total = sum(math.exp(logit) for logit in self.logits)
        chances = [math.exp(logit) / total for logit in self.logits]
        gradient, count = [0.0] * len(chances), 0
        for group in groups:
            for arm, advantage in _advantages(group):
                count += 1
                for other, chance in enumerate(chances):
                    gradient[other] += advantage * ((other == arm) - chance)
        if count:
            rate = self.settings.learning_rate / count
            self.logits = [logit + rate * g for logit, g in zip(self.logits, gradient, strict=True)]
        return {f"chance_{arm}": chance for arm, chance in zip(self.settings.arms, chances, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """Arms and logits, as JSON."""
        return {"arms": list(self.settings.arms), "logits": self.logits}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; other arms are refused."""
        if tuple(state["arms"]) != self.settings.arms:
            raise ConfigError(f"checkpoint of arms {state['arms']} does not fit algorithm.arms={self.settings.arms}.")
        self.logits = list(state["logits"])


def _advantages(group: Group) -> list[tuple[int, float]]:
    """Each usable attempt's arm, and its reward against the mean of its siblings."""
    attempts = [t for t in group.usable if t.tokens is not None]
    if len(attempts) < 2:
        return []
    total = sum(t.reward.total for t in attempts)
    others = len(attempts) - 1
    return [(int(t.tokens.ids_T[0]), t.reward.total - (total - t.reward.total) / others) for t in attempts if t.tokens]
