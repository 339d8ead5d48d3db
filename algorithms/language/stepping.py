"""The base of Learners of token policies: scores, optimizer steps over micro-batches, model and state.

Axes: `_N` samples, `_T` tokens of one sample, `_K` action tokens of one micro-batch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor, nn
from typing_extensions import override

from loomrl.algorithms.language import sharding
from loomrl.algorithms.language.batch import LanguageWork, TokenBatch, gather, inputs
from loomrl.algorithms.language.eight_bit import EightBitAdamW
from loomrl.algorithms.language.flat import blocks_of, variable_of
from loomrl.algorithms.language.footprint import bound_memory
from loomrl.algorithms.language.lora import Adapter, additions, base_weights, without_adapters
from loomrl.algorithms.language.module import LanguageModule, open_teacher
from loomrl.algorithms.language.packing import Packed, Reader, Sample, UpdateStep
from loomrl.algorithms.language.score import Scores
from loomrl.algorithms.language.sequence import RowGroup, refuse_unshared
from loomrl.algorithms.learners import OwnSteps, compress
from loomrl.config import TorchEngineConfig
from loomrl.errors import ConfigError, LearnerError
from loomrl.inference.weights.loan import LentWeights, lend
from loomrl.inference.weights.sealed import Sealed, Weights, identify, seal
from loomrl.telemetry.metric import Metric


class TokenLearner(OwnSteps):
    """A token policy's model and optimizer, in as many processes as there are learners."""

    @override
    def build(self) -> None:
        """Build, and shard the model if configured."""
        if self.config.algorithm.learners.gpus:
            bound_memory(self.config.resolved, learns=True)
        super().build()
        self._reference: LanguageModule | None = None
        self._sums: dict[str, list[Any]] = {}
        self._lent: Tensor | None = None
        self._base = self._identify_base()
        size = self.config.algorithm.learners.sequence_parallel
        self._row_group = RowGroup.join(size) if size > 1 else None
        self._read = self._choose_reader()

    def _choose_reader(self) -> Reader | None:
        """Makes the readings of flat rows; None if rows are padded."""
        asked = self.config.algorithm.learners.attention
        on_cpu = self._device.type == "cpu"
        if asked == "flat" or self._row_group is not None:
            _refuse_other_mixing(self._own)
        if asked == "dense" or (asked == "auto" and not (on_cpu and self._own.reads_flat)):
            return None
        read: Reader = blocks_of if on_cpu or self.config.algorithm.model.dtype == "float32" else variable_of
        return read if self._row_group is None else self._row_group.reader(read)

    @property
    def reads_flat(self) -> bool:
        """True if samples are learnt from in flat rows."""
        return self._read is not None

    def _score(
        self, work: LanguageWork, forward: Callable[[Packed], Scores], *, first: int | None = None
    ) -> dict[str, list[NDArray[np.float32]]]:
        """The model's scores of every sample, gathered on all learners; of the `first` micro-batches, if given."""
        steps = work.steps[: len(work.steps) // work.epochs]
        found: dict[int, dict[str, NDArray[np.float32]]] = {}
        with torch.no_grad():
            for micro_batch in [batch for step in steps for batch in step.micro_batches][:first]:
                batch = TokenBatch.of(work.samples, micro_batch, self._device, read=self._read)
                scores = forward(batch.packed)
                for name, flat_K in scores.items():
                    numbers = flat_K.float().cpu().numpy()
                    sample_K = batch.packed.sample_K.cpu().numpy()
                    for position, index in enumerate(batch.order):
                        mask_T = work.samples[index].mask_T
                        column_T = np.zeros((len(mask_T), *numbers.shape[1:]), np.float32)
                        column_T[mask_T] = numbers[sample_K == position]
                        found.setdefault(index, {})[name] = column_T
        nothing = np.zeros(0, np.float32)
        everyone = gather(found)
        names: dict[str, Any] = next(iter(everyone.values()), {})
        return {name: [everyone.get(i, {}).get(name, nothing) for i in range(len(work.samples))] for name in names}

    # -- steps ------------------------------------------------------------------------------------------------------

    def _run(
        self, work: LanguageWork, samples: Sequence[Sample], loss: Callable[["TokenBatch", UpdateStep], Tensor]
    ) -> None:
        """Optimizer steps over accumulated micro-batches. `loss` adds up to a mean over the step."""
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for step in work.steps:
            optimizer.zero_grad(set_to_none=True)
            last = len(step.micro_batches) - 1
            for index, micro_batch in enumerate(step.micro_batches):
                batch = TokenBatch.of(samples, micro_batch, self._device, read=self._read)
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
        return self._scores(self.module[DEFAULT_MODULE_ID], packed)

    def _scores(self, module: Any, packed: Packed) -> Scores:
        if self._row_group is not None:
            return self._row_group.scores(module, packed)
        scores: Scores = module(inputs(packed))
        return scores

    def _under_reference(self, packed: Packed) -> Scores:
        assert self._reference is not None
        if self._reference is not self._own:
            return {"logp_K": self._scores(self._reference, packed)["logp_K"]}
        without_adapters(self._own.lm, enabled=False)
        try:
            return {"logp_K": self._scores(self._own, packed)["logp_K"]}
        finally:
            without_adapters(self._own.lm, enabled=True)

    def _accumulating(self, more: bool) -> Any:
        """Exchange gradients between learners only with the last micro-batch of a step."""
        if self.config.num_learners < 2:
            return nullcontext()
        return sharding.accumulating(self.module[DEFAULT_MODULE_ID], more)

    def release(self) -> None:
        """Give back the gradients, and what torch holds in reserve on a GPU: engines need it."""
        self.get_optimizer(DEFAULT_MODULE_ID).zero_grad(set_to_none=True)
        if self._device.type == "cuda":
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()

    def _log(self, name: str, values: Tensor) -> None:
        entry = self._sums.setdefault(name, [0.0, 0.0])
        entry[0] = entry[0] + values.detach().sum().double()  # on its device: a number here would wait for it
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
        rate = settings.learning_rate
        made = EightBitAdamW if settings.states == "8bit" else partial(torch.optim.AdamW, fused=True)
        optimizer = made(parameters, lr=rate, betas=settings.betas, weight_decay=settings.weight_decay)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=rate)

    @override
    def _make_module(self) -> Any:
        """Shard before the optimizer is created: sharding replaces the parameters."""
        made = super()._make_module()
        sees = made[DEFAULT_MODULE_ID].vision is not None
        if sees and self.config.algorithm.learners.sequence_parallel > 1:
            raise ConfigError("learners.sequence_parallel and a model that sees: use learners.sequence_parallel=1.")
        if self._is_sharded:
            if sees:
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

    @property
    def _teacher(self) -> str | None:
        """The folder of the reference policy, if it is another model."""
        kl = getattr(self.config.algorithm, "kl", None)
        return None if kl is None else kl.teacher

    def _frozen(self) -> LanguageModule:
        if self._teacher is not None:
            teacher = open_teacher(self._own, self._teacher).to(self._device)
            if self.reads_flat:
                _refuse_other_mixing(teacher)
            if self._row_group is not None:
                refuse_unshared(teacher.lm.config, self._row_group.size)
            return teacher
        if self.config.algorithm.model.lora is not None:
            return self._own
        return sharding.copy_of(self._own)

    def weights(self) -> Weights | None:
        """The policy under its model's parameter names, on the CPU; None on all learners but the first."""
        merged = self._own.merge_weights()
        whole = {name: sharding.full(tensor).detach().cpu().clone() for name, tensor in merged.items()}
        return whole if self._is_first else None

    def adapter(self) -> Adapter | None:
        """The low-rank additions, if any; None on all learners but the first."""
        if self._base is None:
            return None
        own = Adapter.of(self._own.lm, base=self._base)
        whole = sharding.whole(own.tensors)
        return replace(own, tensors=whole) if self._is_first else None

    def seal(self, version: int) -> Sealed | LentWeights | None:
        """The weights that engines load to have the policy; None on all learners but the first.

        Torch engines keep the run's first weights, and take the low-rank additions alone. Those in other processes that
        share this learner's memory by turns read the weights there.
        """
        if self.config.resolved.lends:
            return self._lend(version)
        if self._base is None or not isinstance(self.config.experiment.engine, TorchEngineConfig):
            weights = self.weights()
            return None if weights is None else seal(weights, version)
        whole = sharding.whole(additions(self._own.lm))
        return seal(whole, version, base=self._base) if self._is_first else None

    def _lend(self, version: int) -> LentWeights:
        self._lent = None  # its memory, before the next takes some
        given = self._own.lm.state_dict() if self._base is None else additions(self._own.lm)
        readers = range(1, self.config.experiment.rollout.runners + 1)
        dtypes = {} if self._base is not None else self._own.computed
        loan, self._lent = lend(given, version, readers=readers, dtypes=dtypes, base=self._base)
        return loan

    def _identify_base(self) -> str | None:
        """The identity of the weights that low-rank additions are added to; None without such."""
        if self.config.algorithm.model.lora is None:
            return None
        return identify((name, sharding.full(tensor)) for name, tensor in base_weights(self._own.lm).items())

    def recompute(self, samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        """Log-probabilities of each sample's action tokens with the current weights, equal on every learner."""
        micro_batch = tuple((index,) for index in range(len(samples)))
        batch = TokenBatch.of(samples, micro_batch, self._device, read=self._read)
        with torch.no_grad():
            logp_K = self._forward(batch.packed)["logp_K"].float().cpu().numpy()
        sample_K = batch.packed.sample_K.cpu().numpy()
        return [logp_K[sample_K == index] for index in range(len(samples))]

    def whole_state(self) -> dict[str, Any] | None:
        """The state needed to resume; None on all learners but the first."""
        own = self._own.state_dict()
        frozen = self._frozen_names()
        state = {
            "base": self._base,
            "states": self.config.algorithm.optimizer.states,
            "module": sharding.whole({name: tensor for name, tensor in own.items() if name not in frozen}),
            "optimizer": sharding.whole(self.get_optimizer(DEFAULT_MODULE_ID).state_dict()),
            "reference": None,
        }
        if self._reference is not None:
            separate = self._reference is not self._own and self._teacher is None
            state["reference"] = sharding.whole(self._reference.state_dict()) if separate else {}
        return state if self._is_first else None

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`, on any number of learners."""
        if state["base"] != self._base:
            raise ConfigError(
                f"the checkpoint has low-rank additions to a model of identity {state['base']}, and the run's first "
                f"weights have {self._base}. Give algorithm.model.path the model that the run began with."
            )
        if state["states"] != (own := self.config.algorithm.optimizer.states):
            raise ConfigError(f"optimizer.states={own}: the checkpoint has {state['states']}. Set it so.")
        sharding.load_module(self._own, state["module"], beside=self._frozen_names())
        sharding.load_optimizer(self.get_optimizer(DEFAULT_MODULE_ID), state["optimizer"])
        self._reference = None
        if state["reference"] is not None:
            self._reference = self._frozen()
            if state["reference"]:
                sharding.load_module(self._reference, state["reference"])

    def _frozen_names(self) -> set[str]:
        """The parameters that training does not change: low-rank additions leave their base alone."""
        named = self._own.named_parameters(remove_duplicate=False)
        return {name for name, parameter in named if not parameter.requires_grad}

    @property
    def _is_first(self) -> bool:
        return not dist.is_initialized() or dist.get_rank() == 0


def _refuse_other_mixing(module: LanguageModule) -> None:
    """Refuse flat rows for a model that cannot read them."""
    if not module.reads_flat:
        raise ConfigError(
            f"learners.attention: {type(module.lm).__name__} mixes tokens otherwise than by an attention that "
            "transformers can replace, so it cannot read flat rows. Use learners.attention=dense."
        )
