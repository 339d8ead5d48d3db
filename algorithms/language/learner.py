"""The Learner of token policies: scores, advantages, losses, steps. Work comes as data; the mathematics is imported.

Axes: `_N` samples, `_A` action tokens of one sample, `_K` action tokens of one micro-batch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor, nn
from typing_extensions import override

from loomrl.algorithms.advantage import explained_variance
from loomrl.algorithms.comm import compress
from loomrl.algorithms.language import sharding
from loomrl.algorithms.language.batch import Batch, Work, gathered, inputs, kl, with_columns
from loomrl.algorithms.language.estimate import Column, Estimate, estimate, over_attempts
from loomrl.algorithms.language.loss import dpo_loss, importance_weight, mean_by_sample, per_token, sum_by_sample
from loomrl.algorithms.language.model.lora import Adapter, without_adapters
from loomrl.algorithms.language.module import LanguageModule, imitating
from loomrl.algorithms.language.packing import Packed, Sample, UpdateStep, attempts_of
from loomrl.algorithms.language.sample import AGE, ENGINE, REWARD
from loomrl.algorithms.language.score import Scores
from loomrl.algorithms.learners import OwnSteps, memory_errors_translated, share_of
from loomrl.algorithms.losses import cispo_loss, kl_estimate, policy_loss, value_loss
from loomrl.config import DPO, PPO
from loomrl.errors import ConfigError, LearnerError
from loomrl.inference.weights.sealed import Sealed, Weights, seal
from loomrl.telemetry.metric import Metric

OLD, REFERENCE, VALUE, RETURN, ADVANTAGE = "old", "reference", "value", "return", "advantage"
"""Columns that the learner adds to its samples, beside those of `sample`."""
SAMPLE = "sample"
"""Column of a micro-batch: the sample of each token."""


class LanguageLearner(OwnSteps):
    """Learns from `TrainingData(batches=[Work, …])`, one per learner.

    An algorithm of your own overrides `advantages`, `surrogate` or `policy_loss` (docs/custom.md).
    """

    @override
    def build(self) -> None:
        """Build, and shard the model if configured."""
        super().build()
        self._reference: LanguageModule | None = None
        self._sums: dict[str, list[float]] = {}

    @override
    def update(self, *, training_data: Any = None, timesteps: Any = None, **_: Any) -> Any:
        """One update; its metrics are means over its action tokens. After a LearnerError no step is half done."""
        work: Work = share_of(training_data)
        self._weights_seq_no += 1
        self._sums = {}
        with memory_errors_translated(self.config.algorithm.optimizer.micro_batch_tokens):
            self._set_optimizer_lr(self.get_optimizer(DEFAULT_MODULE_ID), work.rate)
            self.learn(work)
        rank = dist.get_rank() if dist.is_initialized() else 0
        everyone = gathered({rank: self._sums}).values()
        for name in dict.fromkeys(name for sums in everyone for name in sums):
            total, weight = (sum(sums.get(name, (0.0, 0.0))[part] for sums in everyone) for part in (0, 1))
            if weight:
                self.metrics.log_value((DEFAULT_MODULE_ID, str(name)), total / weight, window=1)
        return self.metrics.reduce()

    # -- the ways to learn ------------------------------------------------------------------------------------------

    def learn(self, work: Work) -> None:
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

    def _imitate(self, work: Work) -> None:
        def loss(batch: Batch, step: UpdateStep) -> Tensor:
            scores = self._forward(batch.packed)
            self._log(Metric.SUPERVISED_LOSS, -scores["logp_K"])
            idle = 0 * scores["value_K"].sum() if "value_K" in scores else 0  # or DDP waits for its gradient
            return idle - scores["logp_K"].sum() / step.targets

        with imitating(self._own):
            self._run(work, work.samples, loss)

    def _reinforce(self, work: Work) -> None:
        algorithm, samples = self.config.algorithm, self._basis(work)
        single = len(work.steps) == 1

        def loss(batch: Batch, step: UpdateStep) -> Tensor:
            scores, columns = self._forward(batch.packed), {**batch.packed.columns, SAMPLE: batch.packed.sample_K}
            old_K = scores["logp_K"].detach() if single else columns[OLD]
            loss_K = per_token(self.policy_loss(scores, columns, old_K), scores["logp_K"], self)
            if VALUE in columns:
                value_K = value_loss(scores["value_K"], columns[VALUE], columns[RETURN], clip=algorithm.value_clip)
                self._log(Metric.VALUE_LOSS, value_K)
                loss_K = loss_K + algorithm.value_coefficient * value_K
            return (loss_K * batch.weights(step, algorithm.average)).sum()

        self._run(work, samples, loss)
        if single and algorithm.optimizer.schedule.kind == "adaptive":
            self._watch_step(work, samples)

    def _watch_step(self, work: Work, samples: Sequence[Sample]) -> None:
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
        """Per token: the surrogate, weighted by the agreement of engine and learner, with entropy and KL terms."""
        algorithm, logp_K, entropy_K = self.config.algorithm, scores["logp_K"], scores["entropy_K"]
        whole = algorithm.ratio == "sequence"
        compared_K = old_K + mean_by_sample(logp_K - old_K, columns[SAMPLE]) if whole else logp_K
        loss_K: Tensor
        loss_K, clipped_K = self.surrogate(compared_K, old_K, columns[ADVANTAGE])
        self._log(Metric.POLICY_LOSS, loss_K)
        self._log(Metric.POLICY_CLIP_FRACTION, clipped_K.float())
        self._log(Metric.POLICY_ENTROPY, entropy_K)
        self._log(Metric.POLICY_STEP_KL, kl_estimate(logp_K.detach(), old_K, estimator="k3"))
        self._log(Metric.POLICY_DRIFT, (old_K - columns[ENGINE]).abs()[columns[AGE] == 0])
        if algorithm.importance_cap is not None:
            trust_K = importance_weight(old_K, columns[ENGINE], cap=algorithm.importance_cap)
            self._log(Metric.POLICY_IMPORTANCE, trust_K)
            loss_K = loss_K * trust_K
        loss_K = loss_K - algorithm.entropy_coefficient * entropy_K
        if algorithm.kl.coefficient and algorithm.kl.place == "loss":
            kl_K = kl_estimate(logp_K, columns[REFERENCE], estimator=algorithm.kl.estimator)
            loss_K = loss_K + algorithm.kl.coefficient * kl_K
        return loss_K

    def surrogate(self, logp_K: Tensor, old_K: Tensor, advantage_K: Tensor) -> tuple[Tensor, Tensor]:
        """Per token: the loss, and whether the clip removes its gradient."""
        algorithm = self.config.algorithm
        made = cispo_loss if algorithm.surrogate == "cispo" else policy_loss
        return made(logp_K, old_K, advantage_K, clip=algorithm.clip)

    def _prefer(self, work: Work) -> None:
        algorithm: DPO = self.config.algorithm
        reference = self._score(work, self._under_reference)["logp_K"]
        samples = with_columns(work.samples, {REFERENCE: reference})

        def loss(batch: Batch, step: UpdateStep) -> Tensor:
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

    # -- before the first step --------------------------------------------------------------------------------------

    def advantages(
        self, rewards: Column, masks: Sequence[NDArray[np.bool_]], *, groups: Sequence[str], values: Column | None
    ) -> Estimate:
        """Per token of every sample, from rewards per token; members of a group have the same name in `groups`."""
        return estimate(self.config.algorithm, rewards, masks, groups=groups, values=values)

    def _basis(self, work: Work) -> list[Sample]:
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
        masks = [sample.mask_T for sample in work.samples]
        if in_reward:
            gaps = zip(rewards, columns[OLD], columns[REFERENCE], strict=True)
            rewards = [r_T - algorithm.kl.coefficient * kl(o_T, f_T, algorithm.kl.estimator) for r_T, o_T, f_T in gaps]
        made = over_attempts(
            self, rewards, masks, groups=work.groups, values=scores.get("value_K"), attempts=attempts_of(work.samples)
        )
        columns[ADVANTAGE] = made.advantages
        if made.returns is not None:
            columns |= {VALUE: scores["value_K"], RETURN: made.returns}
            mask = np.concatenate(masks)
            explained = explained_variance(np.concatenate(scores["value_K"])[mask], np.concatenate(made.returns)[mask])
            self._sums[Metric.VALUE_EXPLAINED_VARIANCE] = [explained, 1.0]
        return with_columns(work.samples, columns)

    def _reference_column(self, work: Work, old: Column) -> dict[str, Column]:
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

    def _score(
        self, work: Work, forward: Callable[[Packed], Scores], *, first: int | None = None
    ) -> dict[str, list[NDArray[np.float32]]]:
        """The model's scores of every sample, gathered on all learners; of the `first` micro-batches, if given."""
        steps = work.steps[: len(work.steps) // work.epochs]
        found: dict[int, dict[str, NDArray[np.float32]]] = {}
        with torch.no_grad():
            for micro_batch in [batch for step in steps for batch in step.micro_batches][:first]:
                batch = Batch.of(work.samples, micro_batch, self._device)
                scores = forward(batch.packed)
                for name, flat_K in scores.items():
                    numbers, sample_K = flat_K.float().cpu().numpy(), batch.packed.sample_K.cpu().numpy()
                    for position, index in enumerate(batch.order):
                        mask_T = work.samples[index].mask_T
                        column_T = np.zeros(len(mask_T), np.float32)
                        column_T[mask_T] = numbers[sample_K == position]
                        found.setdefault(index, {})[name] = column_T
        nothing = np.zeros(0, np.float32)
        everyone = gathered(found)
        names: dict[str, Any] = next(iter(everyone.values()), {})
        return {name: [everyone.get(i, {}).get(name, nothing) for i in range(len(work.samples))] for name in names}

    # -- steps ------------------------------------------------------------------------------------------------------

    def _run(self, work: Work, samples: Sequence[Sample], loss: Callable[["Batch", UpdateStep], Tensor]) -> None:
        """Optimizer steps over accumulated micro-batches. `loss` adds up to a mean over the step."""
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for step in work.steps:
            optimizer.zero_grad(set_to_none=True)
            last = len(step.micro_batches) - 1
            for index, micro_batch in enumerate(step.micro_batches):
                batch = Batch.of(samples, micro_batch, self._device)
                with self._accumulating(index < last):
                    (loss(batch, step) * max(1, self.config.num_learners)).backward()
            norm = sharding.full(nn.utils.clip_grad_norm_(parameters, self.config.algorithm.optimizer.clip_norm))
            if not torch.isfinite(norm):
                raise LearnerError(
                    f"the gradient is {norm.item()} after {work.kind} on {len(work.samples)} samples: this step "
                    "changed nothing. Lower optimizer.learning_rate, or look at the rewards of these groups."
                )
            optimizer.step()
            self._log(Metric.GRADIENT_NORM, norm)
            self._log(Metric.GRADIENT_CLIPPED, (norm > self.config.algorithm.optimizer.clip_norm).float())

    def _forward(self, packed: Packed) -> Scores:
        """Forward through the wrapper of DDP or FSDP."""
        scores: Scores = self.module[DEFAULT_MODULE_ID](inputs(packed))
        return scores

    def _under_reference(self, packed: Packed) -> Scores:
        assert self._reference is not None
        if self._reference is not self._own:
            return {"logp_K": self._reference(inputs(packed))["logp_K"]}
        without_adapters(self._own.lm, enabled=False)
        try:
            return {"logp_K": self._own(inputs(packed))["logp_K"]}
        finally:
            without_adapters(self._own.lm, enabled=True)

    def _accumulating(self, more: bool) -> Any:
        """Exchange gradients between learners only with the last micro-batch of a step."""
        if self.config.num_learners < 2:
            return nullcontext()
        return sharding.accumulating(self.module[DEFAULT_MODULE_ID], more)

    def _log(self, name: str, values: Tensor) -> None:
        entry = self._sums.setdefault(name, [0.0, 0.0])
        entry[0] += float(values.detach().sum())
        entry[1] += values.numel()

    # -- model, optimizer, state ------------------------------------------------------------------------------------

    @property
    def _own(self) -> LanguageModule:
        module: LanguageModule = self.module[DEFAULT_MODULE_ID].unwrapped()
        return module

    @override
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """AdamW over the trainable parameters."""
        settings = self.config.algorithm.optimizer
        parameters = [p for p in self._own.parameters() if p.requires_grad]
        rate, decay = settings.learning_rate, settings.weight_decay
        optimizer = torch.optim.AdamW(parameters, lr=rate, betas=settings.betas, weight_decay=decay)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=rate)

    @override
    def _make_module(self) -> Any:
        """Shard before the optimizer is created: sharding replaces the parameters."""
        made = super()._make_module()
        if self._is_sharded:
            if made[DEFAULT_MODULE_ID].vision is not None:
                raise ConfigError("learners.sharding='fsdp' and a model that sees: use learners.sharding=replicate.")
            sharding.shard(made[DEFAULT_MODULE_ID])
        return made

    @override
    def _make_modules_ddp_if_necessary(self) -> None:
        if not self._is_sharded:
            super()._make_modules_ddp_if_necessary()
            compress(self.module[DEFAULT_MODULE_ID], self.config.algorithm.learners.compression)

    @property
    def _is_sharded(self) -> bool:
        return bool(self.config.algorithm.learners.sharding == "fsdp")

    def begin(self, *, reference: bool) -> None:
        """Start reinforcement learning: a fresh optimizer, and the current policy as the reference policy if needed."""
        self.get_optimizer(DEFAULT_MODULE_ID).state.clear()
        self._reference = self._frozen() if reference else None

    def _frozen(self) -> LanguageModule:
        if self.config.algorithm.model.lora is not None:
            return self._own
        return sharding.copy_of(self._own)

    def weights(self) -> Weights | None:
        """The policy under its model's parameter names, on the CPU; None on all learners but the first."""
        merged = self._own.merged()
        whole = {name: sharding.full(tensor).detach().cpu().clone() for name, tensor in merged.items()}
        return whole if self._is_first else None

    def adapter(self) -> Adapter | None:
        """The low-rank additions, if any; None on all learners but the first."""
        if self.config.algorithm.model.lora is None:
            return None
        own = Adapter.of(self._own.lm)
        whole = sharding.whole(own.tensors)
        return replace(own, tensors=whole) if self._is_first else None

    def sealed(self, version: int) -> Sealed | None:
        """The policy for engines, sealed; None on all learners but the first."""
        weights = self.weights()
        return None if weights is None else seal(weights, version)

    def recomputed(self, samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        """Log-probabilities of each sample's action tokens with the current weights, equal on every learner."""
        batch = Batch.of(samples, tuple((index,) for index in range(len(samples))), self._device)
        with torch.no_grad():
            logp_K = self._forward(batch.packed)["logp_K"].float().cpu().numpy()
        sample_K = batch.packed.sample_K.cpu().numpy()
        return [logp_K[sample_K == index] for index in range(len(samples))]

    def whole_state(self) -> dict[str, Any] | None:
        """The state needed to resume; None on all learners but the first."""
        state = {
            "module": sharding.whole(self._own.state_dict()),
            "optimizer": sharding.whole(self.get_optimizer(DEFAULT_MODULE_ID).state_dict()),
            "reference": None,
        }
        if self._reference is not None:
            separate = self._reference is not self._own
            state["reference"] = sharding.whole(self._reference.state_dict()) if separate else {}
        return state if self._is_first else None

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`, on any number of learners."""
        sharding.load_module(self._own, state["module"])
        sharding.load_optimizer(self.get_optimizer(DEFAULT_MODULE_ID), state["optimizer"])
        self._reference = None
        if state["reference"] is not None:
            self._reference = self._frozen()
            if state["reference"]:
                sharding.load_module(self._reference, state["reference"])

    @property
    def _is_first(self) -> bool:
        return not dist.is_initialized() or dist.get_rank() == 0
