"""An algorithm of your own: only attempts that beat most of their siblings teach (docs/custom.md)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.language.advantage import Estimate
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.learner import LanguageLearner
from loomrl.config import GRPO


class OwnSettings(GRPO):
    """All settings of GRPO, and one more."""

    quantile: float = 0.5
    """The share of its siblings that an attempt must beat."""


class OwnLearner(LanguageLearner):
    """GRPO with other advantages; `surrogate` would be another loss."""

    def advantages(
        self, rewards: Any, masks: Sequence[NDArray[np.bool_]], *, groups: Sequence[str], values: Any
    ) -> Estimate:
        """An attempt's reward above the bar of its group, on every token that the policy sampled."""
        totals = np.array([reward_T.sum() for reward_T in rewards])
        names = np.array(groups)
        bars = {name: np.quantile(totals[names == name], self.config.algorithm.quantile) for name in set(groups)}
        above = [max(0.0, total - bars[name]) for total, name in zip(totals, groups, strict=True)]
        return Estimate([np.where(mask_T, earned, 0.0) for mask_T, earned in zip(masks, above, strict=True)])


class OwnConfig(LanguageConfig):
    """The object that an experiment names as `algorithm.entry_point`."""

    settings = OwnSettings

    def get_default_learner_class(self) -> type[OwnLearner]:
        """The learner above."""
        return OwnLearner
