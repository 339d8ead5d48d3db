"""The Learner of what people judged and of text: KTO and RAFT.

Axes: `_N` samples, `_K` action tokens of one micro-batch.
"""

import torch
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.language.batch import LanguageWork, TokenBatch, with_columns
from loomrl.algorithms.language.learner import REFERENCE, LanguageLearner
from loomrl.algorithms.language.loss import kto_loss, sum_by_sample
from loomrl.algorithms.language.packing import UpdateStep
from loomrl.algorithms.losses import kl_estimate
from loomrl.config import KTO, RAFT
from loomrl.telemetry.metric import Metric


class ServedLearner(LanguageLearner):
    """Learns in two further ways: from answers that are desirable or not, and from the best answers."""

    @override
    def learn(self, work: LanguageWork) -> None:
        match work.kind:
            case "weigh":
                self._weigh(work)
            case "follow":
                self._follow(work)
            case _:
                super().learn(work)

    def _weigh(self, work: LanguageWork) -> None:
        algorithm: KTO = self.config.algorithm
        kl = 0.0 if work.mismatched is None else self._gain(work.mismatched)
        self._log(Metric.PREFERENCE_BASELINE, torch.tensor([kl]))
        samples = with_columns(work.samples, {REFERENCE: self._score(work, self._under_reference)["logp_K"]})

        def loss(batch: TokenBatch, step: UpdateStep) -> Tensor:
            packed = batch.packed
            logp_K = self._forward(packed)["logp_K"]
            reference_K = packed.columns[REFERENCE]
            gain_N = sum_by_sample(logp_K - reference_K, packed.sample_K, samples=batch.count)
            labels = [work.labels[index] for index in batch.order] or [0.0]
            label_N = torch.tensor(labels, dtype=gain_N.dtype, device=gain_N.device)
            loss_N, margin_N = kto_loss(gain_N, label_N, kl=kl, beta=algorithm.beta)
            if batch.order:
                self._log(Metric.POLICY_LOSS, loss_N)
                self._log(Metric.PREFERENCE_MARGIN, margin_N)
                self._log(Metric.PREFERENCE_ACCURACY, (margin_N > 0).float())
                self._log(Metric.POLICY_KL, kl_estimate(reference_K, logp_K.detach(), estimator="k3"))
            return loss_N.sum() / step.samples

        self._run(work, samples, loss)

    def _gain(self, mismatched: LanguageWork) -> float:
        """How much likelier than under the reference policy answers to other prompts are on average; at least 0."""
        ours = self._score(mismatched, self._forward)["logp_K"]
        theirs = self._score(mismatched, self._under_reference)["logp_K"]
        gains = [float((o_T - t_T).sum()) for o_T, t_T in zip(ours, theirs, strict=True)]
        return max(0.0, sum(gains) / max(1, len(gains)))

    def _follow(self, work: LanguageWork) -> None:
        algorithm: RAFT = self.config.algorithm
        leash = algorithm.kl
        samples = work.samples
        watched = self._reference is not None
        if watched:
            reference = self._score(work, self._under_reference)["logp_K"]
            samples = tuple(with_columns(samples, {REFERENCE: reference}))

        def loss(batch: TokenBatch, step: UpdateStep) -> Tensor:
            logp_K = self._forward(batch.packed)["logp_K"]
            loss_K = -logp_K
            self._log(Metric.SUPERVISED_LOSS, loss_K)
            if watched:
                reference_K = batch.packed.columns[REFERENCE]
                self._log(Metric.POLICY_KL, kl_estimate(reference_K, logp_K.detach(), estimator="k3"))
                loss_K = loss_K + leash.coefficient * kl_estimate(logp_K, reference_K, estimator=leash.estimator)
            return (loss_K * batch.weights(step, algorithm.average)).sum()

        self._run(work, samples, loss)
