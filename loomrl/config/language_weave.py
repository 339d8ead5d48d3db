"""Settings of WEAVE for language policies."""

from typing import Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from loomrl.config.basic import Positive, PositiveInt
from loomrl.config.language import PPO
from loomrl.config.warm_start import Formats
from loomrl.config.weave import Woven


class LanguageWeave(PPO, Woven):
    """PPO over tokens with experts for the policy, critics for the value, and objectives for the reward.

    A preference among the objectives is a line of what the policy reads first, and may be another for every request.
    """

    kind: Literal["weave"] = "weave"  # type: ignore[assignment]
    experts: PositiveInt = 1
    """Number of experts: low-rank changes of the last hidden state whose distributions are mixed token by token."""
    expert_rank: PositiveInt = 8
    """Rank of an expert's change."""
    critics: PositiveInt = 1
    """Number of critics: value heads on the same trunk."""
    shown: dict[str, Formats] = Field({})
    """Formats of demonstrations per objective, instead of `warm_start.formats`; each is used as often as a
    demonstration's preference weighs its objective."""
    baseline: Literal["values", "group"] = "values"
    """Baseline of the advantage: `values` of every objective, or the `group` of attempts with the same task and
    preference. With `group`, the weighted reward is normalised within the group, so that the scales of the
    objectives do not matter; the critics' values are learnt but not used."""
    precision: Positive = 0.1
    """Sampled preferences are multiples of this."""

    @property
    @override
    def objective_names(self) -> tuple[str, ...]:
        return self.tree.names if self.objectives else ()

    @model_validator(mode="after")
    def _check_language(self) -> Self:
        if self.experts > 1 and self.model.lora is not None:
            raise ValueError(f"experts={self.experts} with model.lora: the experts would not be trained. Leave one out")
        if self.experts == 1 and self.expert_rank != type(self).model_fields["expert_rank"].default:
            raise ValueError(f"expert_rank={self.expert_rank} has no effect with experts=1: leave it out")
        if not self.objectives:
            self._refuse_without_objectives("precision", "shown", "baseline")
            return self
        names = self.tree.names
        if self.shown and (self.shown.keys() != {*names} or not all(self.shown.values())):
            some = ", ".join(self.shown)
            raise ValueError(f"shown has formats of {some}: some are needed of each of {', '.join(names)}")
        if not 0.01 <= self.precision <= 0.5:
            raise ValueError(f"precision={self.precision:g}: 0.01 to 0.5; preferences are told in percent")
        idle = {
            "reward_clip": self.reward_clip is not None,
            "dynamic_sampling": self.dynamic_sampling,
            "kl.place=reward": self.kl.coefficient > 0 and self.kl.place == "reward",
        }
        if self.baseline == "group" and (self.critics > 1 or self.normalize_advantages):
            raise ValueError(
                "baseline=group compares with the group alone: several critics and normalize_advantages would have no "
                "effect. Set critics=1 and normalize_advantages=false"
            )
        for name, given in idle.items():
            if given:
                raise ValueError(f"{name} is about one reward, and objectives are several: leave it out")
        return self
