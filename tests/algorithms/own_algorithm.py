"""A user's own algorithm: only the best attempt of a group teaches."""

from loomrl.algorithms.language.advantage import Estimate
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.learner import LanguageLearner
from loomrl.config import Reinforce


class BestLearner(LanguageLearner):
    def advantages(self, rewards, masks, *, groups, values):
        totals = [reward_T.sum() for reward_T in rewards]
        best = {name: max(t for t, other in zip(totals, groups, strict=True) if other == name) for name in set(groups)}
        right = [float(total == best[name]) for total, name in zip(totals, groups, strict=True)]
        return Estimate([mask_T * share for mask_T, share in zip(masks, right, strict=True)])


class BestConfig(LanguageConfig):
    settings = Reinforce

    def get_default_learner_class(self):
        return BestLearner
