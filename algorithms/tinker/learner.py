"""Low-rank training of many adapters on one base: each has factors, AdamW and gradients of its own.

Axes: B rows of T tokens, K targets, I inputs and O outputs of a layer, R rank.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from loomrl.algorithms.language.lora import Adapter
from loomrl.algorithms.language.score import score
from loomrl.algorithms.losses import FARTHEST, cispo_loss, policy_loss
from loomrl.algorithms.tinker.wire import AdamBody, LoraBody, LossRequest, TinkerDatum
from loomrl.config import Clip
from loomrl.errors import ConfigError, LearnerError, unknown
from loomrl.inference.weights.adapter import NARROW, WIDEN, Factors

ALPHA = 32
"""The scale of additions is `ALPHA / rank`, as everywhere in the client's world."""
OLD = ("logprobs", "advantages")
INPUTS: Mapping[str, tuple[str, ...]] = {
    "cross_entropy": ("weights",),
    "importance_sampling": OLD,
    "ppo": OLD,
    "cispo": OLD,
}
"""The losses, and the arrays that each reads beside `target_tokens`."""
THRESHOLDS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
"""Settings of the losses that clip, with the client's defaults."""
ATTENTION = ("attn", "attention")


class LowRankHooks:
    """Adds low-rank factors to a model's linear layers, differentiably, while some are `computing`."""

    def __init__(self, lm: PreTrainedModel) -> None:
        self.layers = {name: layer for name, layer in lm.named_modules() if type(layer) in (nn.Linear, Conv1D)}
        self._head = lm.get_output_embeddings()
        self._active: Mapping[str, Factors] = {}
        for name, layer in self.layers.items():
            layer.register_forward_hook(partial(self._add, name))

    def targets(self, lora: LoraBody) -> list[str]:
        """The layers that get factors."""
        return [name for name in self.layers if getattr(lora, f"train_{self._part(name)}")]

    def _part(self, name: str) -> str:
        if self.layers[name] is self._head:
            return "unembed"
        return "attn" if any(word in name for word in ATTENTION) else "mlp"

    @contextmanager
    def computing(self, factors: Mapping[str, Factors]) -> Iterator[None]:
        """In this context the model computes with these additions."""
        self._active = factors
        try:
            yield
        finally:
            self._active = {}

    def _add(self, name: str, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        found = self._active.get(name)
        if found is None:
            return None
        return output + (inputs[0].float() @ found.narrow_RI.t() @ found.widen_OR.t()).to(output.dtype)


class Trainee:
    """One adapter in training."""

    def __init__(self, lora: LoraBody, factors: Mapping[str, Factors]) -> None:
        self.lora = lora
        self.factors = factors
        self.parameters = [factor for pair in factors.values() for factor in pair]
        self.optimizer = torch.optim.AdamW(self.parameters)

    @property
    def additions(self) -> dict[str, Factors]:
        """The factors as they are added: with the scale in the second."""
        scale = ALPHA / self.lora.rank
        return {name: Factors(narrow_RI, widen_OR * scale) for name, (narrow_RI, widen_OR) in self.factors.items()}

    def adapter(self, base: str) -> Adapter:
        """The adapter as peft's files have it."""
        tensors = {}
        for name, (narrow_RI, widen_OR) in self.factors.items():
            tensors[f"base_model.model.{name}{NARROW}"] = narrow_RI.detach().cpu()
            tensors[f"base_model.model.{name}{WIDEN}"] = widen_OR.detach().cpu()
        return Adapter(tensors, PeftSettings(self.lora.rank, list(self.factors)), base)

    def dump(self) -> bytes:
        """Factors and optimizer as bytes."""
        sink = io.BytesIO()
        pairs = {name: tuple(factor.detach() for factor in pair) for name, pair in self.factors.items()}
        torch.save({"factors": pairs, "optimizer": self.optimizer.state_dict()}, sink)
        return sink.getvalue()

    def load(self, state: bytes, *, optimizer: bool) -> None:
        """Take factors, and with them the optimizer's averages, from a dump; gradients are dropped.

        A ConfigError if it has another shape.
        """
        found = torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
        pairs = found["factors"]
        shapes = {name: [factor.shape for factor in pair] for name, pair in pairs.items()}
        if shapes != {name: [factor.shape for factor in pair] for name, pair in self.factors.items()}:
            raise ConfigError(
                "these weights have another rank or other layers than this training. Begin one from them."
            )
        with torch.no_grad():
            for name, pair in self.factors.items():
                for factor, given in zip(pair, pairs[name], strict=True):
                    factor.copy_(given)
        self.optimizer = torch.optim.AdamW(self.parameters)
        if optimizer:
            self.optimizer.load_state_dict(found["optimizer"])
        self.optimizer.zero_grad(set_to_none=True)


@dataclass
class PeftSettings:
    """The settings that peft reads beside an adapter. Written here, as importing peft takes seconds."""

    rank: int
    layers: list[str]
    base_model_name_or_path: str = ""
    task_type: str = "CAUSAL_LM"
    inference_mode: bool = True

    def save_pretrained(self, folder: str) -> None:
        """Write `adapter_config.json`."""
        told = {
            "peft_type": "LORA",
            "r": self.rank,
            "lora_alpha": ALPHA,
            "target_modules": self.layers,
            "base_model_name_or_path": self.base_model_name_or_path,
            "task_type": self.task_type,
            "inference_mode": self.inference_mode,
        }
        (Path(folder) / "adapter_config.json").write_text(json.dumps(told, indent=2))


class SharedLearner:
    """Computes losses, gradients and steps of any number of trainees with one frozen base."""

    def __init__(self, lm: PreTrainedModel, *, pass_tokens: int, context: int) -> None:
        self.lm = lm.requires_grad_(False)
        self.hooks = LowRankHooks(lm)
        self._pass_tokens = pass_tokens
        self._context = context
        self._vocabulary = int(lm.config.get_text_config().vocab_size)

    def open(self, lora: LoraBody) -> Trainee:
        """A trainee whose additions are zero; equal seeds give equal factors."""
        names = self.hooks.targets(lora)
        if not names:
            raise ConfigError("lora_config trains nothing: set train_attn, train_mlp or train_unembed.")
        rng = torch.Generator().manual_seed(lora.seed or 0)
        factors = {}
        for name in names:
            layer = self.hooks.layers[name]
            sizes = layer.weight.shape[::-1] if isinstance(layer, Conv1D) else layer.weight.shape  # GPT-2's are turned
            inputs = sizes[1]
            bound = inputs**-0.5
            narrow_RI = torch.rand(lora.rank, inputs, generator=rng) * 2 * bound - bound
            widen_OR = torch.zeros(sizes[0], lora.rank)
            device = self.lm.device
            factors[name] = Factors(nn.Parameter(narrow_RI.to(device)), nn.Parameter(widen_OR.to(device)))
        return Trainee(lora, factors)

    def compute(self, trainee: Trainee, asked: LossRequest) -> tuple[list[NDArray[np.float32]], float]:
        """The log-probability of every target, and the sum of the loss; gradients are added to those that are there.

        A ConfigError names what cannot be computed; the gradients are then those of before.
        """
        loss = open_loss(asked)
        for index, datum in enumerate(asked.data):
            self._check(index, datum, asked.loss)
        if asked.forward_only:
            with torch.no_grad():
                return self._pass(trainee, asked.data, loss, backward=False)
        before = [parameter.grad for parameter in trainee.parameters]
        trainee.optimizer.zero_grad(set_to_none=True)
        try:
            found = self._pass(trainee, asked.data, loss, backward=True)
        except BaseException:
            for parameter, gradient in zip(trainee.parameters, before, strict=True):
                parameter.grad = gradient
            raise
        for parameter, gradient in zip(trainee.parameters, before, strict=True):
            if gradient is not None and parameter.grad is not None:
                parameter.grad += gradient
        return found

    def _pass(
        self, trainee: Trainee, data: Sequence[TinkerDatum], loss: "Loss", *, backward: bool
    ) -> tuple[list[NDArray[np.float32]], float]:
        logprobs: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(data)
        total = 0.0
        for group in in_passes([len(datum.ids_T) for datum in data], self._pass_tokens):
            chosen = [data[index] for index in group]
            with self.hooks.computing(trainee.additions):
                logp_K = self._score([datum.ids_T for datum in chosen], [datum.inputs[TARGETS] for datum in chosen])
                columns = {
                    name: torch.from_numpy(np.concatenate([datum.inputs[name] for datum in chosen])).to(logp_K)
                    for name in chosen[0].inputs
                    if name != TARGETS
                }
                summed = loss(logp_K, columns).sum()
                if backward:
                    summed.backward()
            total += float(summed.detach())
            flat = logp_K.detach().float().cpu().numpy()
            ends = np.cumsum([len(datum.ids_T) for datum in chosen])[:-1]
            for index, part in zip(group, np.split(flat, ends), strict=True):
                logprobs[index] = part
        return logprobs, total

    def step(self, trainee: Trainee, adam: AdamBody) -> dict[str, float]:
        """One step of AdamW; its gradients are then gone. A ConfigError without any, a LearnerError if they are not
        finite: then nothing has changed.
        """
        if all(parameter.grad is None for parameter in trainee.parameters):
            raise ConfigError("optim_step: there is no gradient since the last step. Call forward_backward first.")
        limit = adam.grad_clip_norm if adam.grad_clip_norm > 0 else float("inf")
        norm = float(nn.utils.clip_grad_norm_(trainee.parameters, limit))
        if not np.isfinite(norm):
            trainee.optimizer.zero_grad(set_to_none=True)
            raise LearnerError(
                f"optim_step: the gradient is {norm}: nothing has changed. Lower the rate, check the data."
            )
        for group in trainee.optimizer.param_groups:
            group["lr"] = adam.learning_rate
            group["betas"] = (adam.beta1, adam.beta2)
            group["eps"] = adam.eps
            group["weight_decay"] = adam.weight_decay
        trainee.optimizer.step()
        trainee.optimizer.zero_grad(set_to_none=True)
        return {"gradient_norm": norm}

    def read(self, factors: Mapping[str, Factors], ids_T: NDArray[np.int32]) -> NDArray[np.float32]:
        """The log-probability of each token of a prompt; NaN for the first, which nothing precedes."""
        found = np.full(len(ids_T), np.nan, np.float32)
        if len(ids_T) > 1:
            with torch.no_grad(), self.hooks.computing(factors):
                whole_T = ids_T.astype(np.int64)
                found[1:] = self._score([whole_T[:-1]], [whole_T[1:]]).float().cpu().numpy()
        return found

    def _score(self, ids: Sequence[NDArray[np.int64]], targets: Sequence[NDArray[np.int64]]) -> Tensor:
        """Log-probabilities of the targets, row after row. Rows are padded on the right, which nothing before sees."""
        lengths = [len(ids_T) for ids_T in ids]
        ids_BT = np.zeros((len(ids), max(lengths)), np.int64)
        for row_T, ids_T in zip(ids_BT, ids, strict=True):
            row_T[: len(ids_T)] = ids_T
        batch = {
            "ids_BT": ids_BT,
            "positions_BT": np.broadcast_to(np.arange(ids_BT.shape[1]), ids_BT.shape).copy(),
            "row_K": np.repeat(np.arange(len(ids)), lengths),
            "column_K": np.concatenate([np.arange(length) for length in lengths]),
            "target_K": np.concatenate(targets),
        }
        tensors = {name: torch.from_numpy(array).to(self.lm.device) for name, array in batch.items()}
        return score(self.lm, {**tensors, "attention": None})["logp_K"]

    def _check(self, index: int, datum: TinkerDatum, loss: str) -> None:
        """A ConfigError for a datum that the loss, the model or its context has no place for."""
        known = {TARGETS, *INPUTS[loss]}
        for name in sorted(known ^ datum.inputs.keys()):
            if name in known:
                raise ConfigError(f"data.{index}: {loss} needs {name}: {', '.join(sorted(known))}.")
            raise ConfigError(f"data.{index}.{name} has no effect with {loss}, which reads {', '.join(sorted(known))}.")
        if len(datum.ids_T) > self._context:
            raise ConfigError(f"data.{index} has {len(datum.ids_T)} tokens; this server has context={self._context}.")
        for ids in (datum.ids_T, datum.inputs[TARGETS]):
            if ids.dtype != np.int64 or ids.min() < 0 or ids.max() >= self._vocabulary:
                raise ConfigError(f"data.{index}: token ids are whole numbers from 0 to {self._vocabulary - 1}.")


TARGETS = "target_tokens"
Loss = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


def open_loss(asked: LossRequest) -> Loss:
    """The loss of each token, by name and settings; a ConfigError for others."""
    if asked.loss not in INPUTS:
        raise ConfigError("loss_fn " + unknown("loss", asked.loss, INPUTS))
    clipped = asked.loss in ("ppo", "cispo")
    for name in asked.settings:
        if not clipped or name not in THRESHOLDS:
            known = ", ".join(THRESHOLDS) if clipped else "none"
            raise ConfigError(f"loss_fn_config.{name} has no effect with {asked.loss}. Known: {known}.")
    if asked.loss == "cross_entropy":
        return lambda logp_K, columns: -logp_K * columns["weights"]
    if asked.loss == "importance_sampling":
        return lambda logp_K, columns: -_ratio(logp_K, columns) * columns["advantages"]
    given = {**THRESHOLDS, **asked.settings}
    clip = Clip(low=1 - float(given["clip_low_threshold"]), high=float(given["clip_high_threshold"]) - 1)
    made = policy_loss if asked.loss == "ppo" else cispo_loss
    return lambda logp_K, columns: made(logp_K, columns["logprobs"], columns["advantages"], clip=clip)[0]


def _ratio(logp_K: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
    return (logp_K - columns["logprobs"]).clamp(-FARTHEST, FARTHEST).exp()


def in_passes(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Indices by length, the longest first, in groups that have at most this many tokens with their padding."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= most:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
