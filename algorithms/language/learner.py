"""The Learner of token policies: the ways to learn, and what is known before the first step. The mathematics is
imported.

Axes: `_N` samples, `_A` action tokens of one sample, `_K` action tokens of one micro-batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.advantage import explained_variance
from loomrl.algorithms.language.advantage import Column, Estimate, estimate, over_attempts
from loomrl.algorithms.language.batch import LanguageWork, TokenBatch, gather, kl, with_columns
from loomrl.algorithms.language.loss import dpo_loss, importance_weight, mean_by_sample, per_token, sum_by_sample
from loomrl.algorithms.language.module import imitating
from loomrl.algorithms.language.packing import Sample, UpdateStep, attempts_of
from loomrl.algorithms.language.sample import AGE, ENGINE, REWARD, SHIFT
from loomrl.algorithms.language.score import Scores
from loomrl.algorithms.language.stepping import TokenLearner
from loomrl.algorithms.learners import memory_errors_translated, share_of
from loomrl.algorithms.losses import cispo_loss, kl_estimate, policy_loss, value_loss
from loomrl.config import DPO, PPO
from loomrl.errors import LearnerError
from loomrl.telemetry.metric import Metric

HEADS = ("value_K", "doubt_K")
"""Scores of heads that demonstrations do not train."""
OLD = "old"
REFERENCE = "reference"
VALUE = "value"
RETURN = "return"
ADVANTAGE = "advantage"
"""Columns that the learner adds to its samples, beside those of `sample`."""
SAMPLE = "sample"
"""Column of a micro-batch: the sample of each token."""


class LanguageLearner(TokenLearner):
    """Learns from `TrainingData(batches=[Work, …])`, one per learner.

    An algorithm of your own overrides `advantages`, `surrogate` or `policy_loss` (docs/custom.md).
    """

    @override
    def update(self, *, training_data: Any = None, timesteps: Any = None, **_: Any) -> Any:
        """One update; its metrics are means over its action tokens. After a LearnerError no step is half done."""
        work: LanguageWork = share_of(training_data)
        self._weights_seq_no += 1
        self._sums = {}
        self._lent = None
        with memory_errors_translated(self.config.algorithm.optimizer.micro_batch_tokens):
            self._set_optimizer_lr(self.get_optimizer(DEFAULT_MODULE_ID), work.rate)
            self.learn(work)
        numbers = {name: [float(total), weight] for name, (total, weight) in self._sums.items()}
        everyone = gather({self._rank: numbers}).values()
        for name in dict.fromkeys(name for sums in everyone for name in sums):
            total, weight = (sum(sums.get(name, (0.0, 0.0))[part] for sums in everyone) for part in (0, 1))
            if weight:
                self.metrics.log_value((DEFAULT_MODULE_ID, str(name)), total / weight, window=1)
        return self.metrics.reduce()

    # -- the ways to learn ------------------------------------------------------------------------------------------

    def learn(self, work: LanguageWork) -> None:
        """Learn from the samples in the way of their kind."""
        match work.kind:
            case "imitate":
                self._imitate(work)
            case "reinforce":
                self._reinforce(work)
            case "prefer":
                self._prefer(work)
            case _:
                raise LearnerError(f"{type(self).__name__} cannot {work.kind}: derive it from ServedLearner.")

    def _imitate(self, work: LanguageWork) -> None:
        def loss(batch: TokenBatch, step: UpdateStep) -> Tensor:
            scores = self._forward(batch.packed)
            self._log(Metric.SUPERVISED_LOSS, -scores["logp_K"])
            idle = sum(0 * scores[name].sum() for name in scores if name in HEADS)  # or DDP waits for their gradients
            return idle - scores["logp_K"].sum() / step.targets

        devices = [self._device] if self._device.type == "cuda" else []
        with imitating(self._own), torch.random.fork_rng(devices):  # a resumed run drops what it would have dropped
            torch.manual_seed(work.noise + self._rank)
            self._run(work, work.samples, loss)

    def _reinforce(self, work: LanguageWork) -> None:
        algorithm = self.config.algorithm
        samples = self._basis(work)
        single = len(work.steps) == 1

        def loss(batch: TokenBatch, step: UpdateStep) -> Tensor:
            scores = self._forward(batch.packed)
            columns = {**batch.packed.columns, SAMPLE: batch.packed.sample_K}
            old_K = scores["logp_K"].detach() if single else columns[OLD]
            loss_K = per_token(self.policy_loss(scores, columns, old_K), scores["logp_K"], self)
            if VALUE in columns:
                value_K = self._value_loss(scores, columns)
                self._log(Metric.VALUE_LOSS, value_K)
                loss_K = loss_K + algorithm.value_coefficient * value_K
            return (loss_K * batch.weights(step, algorithm.average)).sum()

        self._run(work, samples, loss)
        if single and algorithm.optimizer.schedule.kind == "adaptive":
            self._watch_step(work, samples)

    def _watch_step(self, work: LanguageWork, samples: Sequence[Sample]) -> None:
        """The KL of the update's only step, measured after it: with a single step nothing earlier can show it."""
        after = self._score(work, self._forward, first=1)["logp_K"]
        gaps = [
            kl(sample.columns[OLD][sample.mask_T], after_T[sample.mask_T], "k3")
            for sample, after_T in zip(samples, after, strict=True)
            if len(after_T)
        ]
        self._sums[Metric.POLICY_STEP_KL] = [0.0, 0.0]
        self._log(Metric.POLICY_STEP_KL, torch.from_numpy(np.concatenate(gaps)))

    def policy_loss(self, scores: Scores, columns: Mapping[str, Tensor], old_K: Tensor) -> Tensor:
        """Per token: the surrogate, weighted by the agreement of engine and learner and by how free the token was, with
        entropy and KL terms.
        """
        algorithm = self.config.algorithm
        logp_K = scores["logp_K"]
        entropy_K = scores["entropy_K"]
        whole = algorithm.ratio == "sequence"
        compared_K = old_K + mean_by_sample(logp_K - old_K, columns[SAMPLE]) if whole else logp_K
        loss_K: Tensor
        loss_K, clipped_K = self.surrogate(compared_K, old_K, columns[ADVANTAGE])
        self._log(Metric.POLICY_LOSS, loss_K)
        self._log(Metric.POLICY_CLIP_FRACTION, clipped_K.float())
        self._log(Metric.POLICY_ENTROPY, entropy_K)
        self._log(Metric.POLICY_STEP_KL, kl_estimate(logp_K.detach(), old_K, estimator="k3"))
        comparable_K = (columns[AGE] == 0) & columns[SHIFT].isfinite()
        self._log(Metric.POLICY_DRIFT, (old_K - columns[ENGINE]).abs()[comparable_K])
        # what was sampled is the policy's own as far as nothing raised its odds: a forced token is not
        loss_K = loss_K * columns[SHIFT].clamp(min=0).neg().exp()
        if algorithm.importance_cap is not None:
            trust_K = importance_weight(old_K, columns[ENGINE], cap=algorithm.importance_cap)
            self._log(Metric.POLICY_IMPORTANCE, trust_K)
            loss_K = loss_K * trust_K
        loss_K = loss_K - algorithm.entropy_coefficient * entropy_K
        if algorithm.kl.coefficient and algorithm.kl.place == "loss":
            kl_K = kl_estimate(logp_K, columns[REFERENCE], estimator=algorithm.kl.estimator)
            loss_K = loss_K + algorithm.kl.coefficient * kl_K
        return loss_K

    def _value_loss(self, scores: Scores, columns: Mapping[str, Tensor]) -> Tensor:
        """Per token."""
        clip = self.config.algorithm.value_clip
        loss_K: Tensor = value_loss(scores["value_K"], columns[VALUE], columns[RETURN], clip=clip)
        return loss_K

    def surrogate(self, logp_K: Tensor, old_K: Tensor, advantage_K: Tensor) -> tuple[Tensor, Tensor]:
        """Per token: the loss, and whether the clip removes its gradient."""
        algorithm = self.config.algorithm
        made = cispo_loss if algorithm.surrogate == "cispo" else policy_loss
        return made(logp_K, old_K, advantage_K, clip=algorithm.clip)

    def _prefer(self, work: LanguageWork) -> None:
        algorithm: DPO = self.config.algorithm
        reference = self._score(work, self._under_reference)["logp_K"]
        samples = with_columns(work.samples, {REFERENCE: reference})

        def loss(batch: TokenBatch, step: UpdateStep) -> Tensor:
            packed = batch.packed
            ours_N = sum_by_sample(self._forward(packed)["logp_K"], packed.sample_K, samples=batch.count)
            theirs_N = sum_by_sample(packed.columns[REFERENCE], packed.sample_K, samples=batch.count)
            better, worse = batch.pairs()
            loss_P, margin_P = dpo_loss(
                ours_N[better],
                ours_N[worse],
                theirs_N[better],
                theirs_N[worse],
                beta=algorithm.beta,
                label_smoothing=algorithm.label_smoothing,
            )
            self._log(Metric.POLICY_LOSS, loss_P)
            self._log(Metric.PREFERENCE_MARGIN, margin_P)
            self._log(Metric.PREFERENCE_ACCURACY, (margin_P > 0).float())
            return loss_P.sum() * 2 / step.samples + 0 * ours_N.sum()

        self._run(work, samples, loss)

    def mean_loss(self, shares: Sequence[LanguageWork]) -> float:
        """The negative log-likelihood of the trained tokens, per token, computed by all learners together."""
        work = shares[self._rank]
        logp = self._score(work, self._forward)["logp_K"]
        learnt = np.concatenate([logp_T[sample.mask_T] for sample, logp_T in zip(work.samples, logp, strict=True)])
        return -float(learnt.mean(dtype=np.float64))

    @property
    def _rank(self) -> int:
        return dist.get_rank() if dist.is_initialized() else 0

    # -- before the first step --------------------------------------------------------------------------------------

    def advantages(
        self, rewards: Column, masks: Sequence[NDArray[np.bool_]], *, groups: Sequence[str], values: Column | None
    ) -> Estimate:
        """Per token of every sample, from rewards per token; members of a group have the same name in `groups`."""
        return estimate(self.config.algorithm, rewards, masks, groups=groups, values=values)

    def _basis(self, work: LanguageWork) -> list[Sample]:
        """The samples with everything that must be computed before the first step changes the policy."""
        algorithm = self.config.algorithm
        in_reward = algorithm.kl.coefficient > 0 and algorithm.kl.place == "reward"
        watched = algorithm.optimizer.schedule.kind == "adaptive"
        needed = len(work.steps) > 1 or isinstance(algorithm, PPO) or in_reward
        aged = any(sample.columns[AGE].any() for sample in work.samples)
        needed = needed or (aged and (watched or self.config.experiment.data is not None))
        scores = self._score(work, self._forward) if needed else {}
        columns: dict[str, Column] = {OLD: scores.get("logp_K") or [sample.columns[ENGINE] for sample in work.samples]}
        if self._reference is not None:
            columns |= self._reference_column(work, columns[OLD])
        rewards = [sample.columns[REWARD] for sample in work.samples]
        if in_reward:
            gaps = zip(rewards, columns[OLD], columns[REFERENCE], strict=True)
            rewards = [r_T - algorithm.kl.coefficient * kl(o_T, f_T, algorithm.kl.estimator) for r_T, o_T, f_T in gaps]
        columns |= self._make_targets(work, rewards, scores)
        return with_columns(work.samples, columns)

    def _make_targets(self, work: LanguageWork, rewards: Column, scores: Mapping[str, Column]) -> dict[str, Column]:
        """Advantages, and what a value head learns from."""
        made = self._estimate(work, rewards, scores.get("value_K"))
        values = scores.get("value_K")
        if made.returns is None or values is None:
            return {ADVANTAGE: made.advantages}
        self._explain(work, values, made.returns)
        return {ADVANTAGE: made.advantages, VALUE: values, RETURN: made.returns}

    def _estimate(self, work: LanguageWork, rewards: Column, values: Column | None) -> Estimate:
        masks = [sample.mask_T for sample in work.samples]
        attempts = attempts_of(work.samples)
        return over_attempts(self.advantages, rewards, masks, groups=work.groups, values=values, attempts=attempts)

    def _explain(self, work: LanguageWork, values: Column, returns: Column) -> None:
        """Log how much of the returns the values explain."""
        mask = np.concatenate([sample.mask_T for sample in work.samples])
        explained = explained_variance(np.concatenate(values)[mask], np.concatenate(returns)[mask])
        sums = self._sums.setdefault(Metric.VALUE_EXPLAINED_VARIANCE, [0.0, 0.0])
        sums[0] = sums[0] + explained
        sums[1] = sums[1] + 1.0

    def _reference_column(self, work: LanguageWork, old: Column) -> dict[str, Column]:
        """Log-probabilities under the reference policy; if no loss needs them, of a few samples for monitoring.

        The KL is that of the policy which sampled the tokens: from a data set, of the reference policy.
        """
        needed = self.config.algorithm.kl.coefficient > 0
        reference = self._score(work, self._under_reference, first=None if needed else 1)["logp_K"]
        sampled, other = (old, reference) if self.config.experiment.data is None else (reference, old)
        gaps = [
            kl(sampled_T[sample.mask_T], other_T[sample.mask_T], "k3")
            for sample, sampled_T, other_T in zip(work.samples, sampled, other, strict=True)
            if len(sampled_T) == len(other_T)
        ]
        self._log(Metric.POLICY_KL, torch.from_numpy(np.concatenate(gaps)))
        return {REFERENCE: reference} if needed else {}
