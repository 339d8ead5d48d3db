"""The Learner of control policies: rollouts in, one table of steps, optimizer steps over its minibatches.

Axes: `_T` steps, `_N` environments, `_S` steps of the table, `_B` steps of a minibatch, `_I` inputs of a distribution.
"""

import inspect
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from ray.rllib.core import ALL_MODULES, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import NUM_MODULE_STEPS_TRAINED_LIFETIME
from torch import Tensor, nn
from typing_extensions import override

from loomrl.algorithms.control.module import HISTORY, ActorModule, ControlModule, seed_without_compiler
from loomrl.algorithms.control.rollout import Rollout, Table, history_in
from loomrl.algorithms.control.step_replay import Ring
from loomrl.algorithms.learners import OwnSteps, share_of
from loomrl.config.control import Replay
from loomrl.control.distribution import open_distribution
from loomrl.control.memory import History
from loomrl.control.network import Normalizer
from loomrl.control.space import acts, seen
from loomrl.errors import LearnerError
from loomrl.telemetry.metric import Metric

# Rollouts of other processes are views of Ray's memory; nothing is written to them.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")

MOMENTUM = 0.9
"""Adam's usual β₁."""
OURS = "loomrl"
"""Key of our additions in RLlib's states."""


class Adam(torch.optim.Adam):
    """Fused Adam without torch's compiler, which takes over a second and 80 MB to import, and with one counter.

    torch's methods are wrapped to keep them out of compiled graphs, and nothing here is compiled.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = [each for each in group["params"] if each.grad is not None]
            if not parameters:
                continue
            if not all(self.state[each] for each in parameters):
                self._init_group(group, *([] for _ in range(6)))  # type: ignore[no-untyped-call]
            states = [self.state[each] for each in parameters]
            counter = states[0]["step"]
            for state in states:  # torch counts for every parameter: dozens of tiny calls
                state["step"] = counter
            counter += 1
            torch._fused_adam_(
                parameters,
                [each.grad for each in parameters],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [counter] * len(parameters),
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=0.0,
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    step.hooked = True  # type: ignore[attr-defined]  # or torch would wrap it in its profiler's records
    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)

    def __init__(
        self, parameters: Iterable[Tensor], *, rate: float, eps: float = 1e-8, momentum: float = MOMENTUM
    ) -> None:
        super().__init__(parameters, lr=rate, eps=eps, betas=(momentum, 0.999), fused=True)


@contextmanager
def no_denormals() -> Iterator[None]:
    """Numbers below 1e-38 are 0 in this thread.

    Moments of a unit that has died shrink to such numbers and stay there, and a CPU takes ten times as long for them.
    Not for the whole process: an environment's numbers are its own.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@dataclass(frozen=True, slots=True)
class ControlWork:
    """The work of one learner, with its learning rate."""

    rollouts: tuple[Rollout, ...]
    rate: float = 0.0
    entropy: float = 0.0


class ArrayLearner(OwnSteps):
    """The base of control algorithms' learners. Fed `TrainingData(batches=[Work, …])`, one per learner."""

    policy = DEFAULT_MODULE_ID
    """The policy that learns."""

    @override
    def build(self) -> None:
        """Build RLlib's part, and the state beside it."""
        seed_without_compiler()
        super().build()
        self.start()

    def start(self) -> None:
        """Build the state beside the module: the random generator and the scale of rewards."""
        self._chance = torch.Generator().manual_seed(int(self.config.seed or 0))
        self._scale = Normalizer(1)
        self.parts: dict[str, Any] = {}
        """Parts that an algorithm adds, by their names in the state; None for one that is not used."""
        own = self.own
        self.distribution: Any = (
            own.net.distribution if isinstance(own, ActorModule) else open_distribution(acts(own.action_space))
        )
        """The distribution of actions; for a foreign module, that of its action space."""
        self._sums: dict[str, list[Tensor]] = {}

    @override
    def update(self, *, training_data: Any = None, timesteps: Any = None, **_: Any) -> Any:
        """One update; its metrics are means over its optimizer steps. After a LearnerError no step is half done."""
        return self.report_metrics(self.learn(share_of(training_data)))

    def report_metrics(self, trained: int) -> Any:
        """The metrics since the last call, for this many trained steps."""
        self._weights_seq_no += 1
        self.log_update(trained)
        self.metrics.log_value((ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME), trained, reduce="lifetime_sum")
        return self.metrics.reduce()

    def log_update(self, trained: int) -> None:
        """Log the policy's metrics since the last call."""
        for name, values in self._sums.items():
            self.metrics.log_value((self.policy, name), float(torch.stack(values).mean()), window=1)
        self.metrics.log_value((self.policy, NUM_MODULE_STEPS_TRAINED_LIFETIME), trained, reduce="lifetime_sum")
        self._sums = {}

    def learn(self, work: ControlWork) -> int:
        """The algorithm's learning from its work; returns the number of steps trained on."""
        raise NotImplementedError

    # -- what algorithms are made of --------------------------------------------------------------------------------

    @property
    def own(self) -> Any:
        """The module itself, without DDP around it."""
        return self.module[self.policy].unwrapped()

    @property
    def ranks(self) -> int:
        """Number of learners in this update."""
        return dist.get_world_size() if dist.is_initialized() else 1

    @property
    def rank(self) -> int:
        """This learner's rank."""
        return dist.get_rank() if dist.is_initialized() else 0

    def forward(self, batch: Table) -> tuple[Tensor, Tensor]:
        """Inputs of the distribution, and values, for the steps with an action; with several learners through DDP's
        wrapper.
        """
        history = history_in(batch)
        inputs, values = self._said(batch["seen"], history)
        return (inputs, values) if history is None else (inputs[batch["acted"]], values[batch["acted"]])

    def _said(self, seen_B: Tensor, history: History | None) -> tuple[Tensor, Tensor]:
        module = self.module[self.policy]
        batch = {Columns.OBS: seen_B, HISTORY: history}
        if self.ranks == 1 and isinstance(module, ControlModule):
            return module.net(seen_B, history)  # type: ignore[no-any-return]
        out = module(batch)
        if Columns.VF_PREDS in out:
            return out[Columns.ACTION_DIST_INPUTS], out[Columns.VF_PREDS]
        embeddings = out.get(Columns.EMBEDDINGS)
        return out[Columns.ACTION_DIST_INPUTS], self.own.compute_values(batch, embeddings=embeddings)

    def minibatches(self, table: Table, size: float) -> Iterator[Table]:
        """One random pass over the table, in parts of about `size` rows over all learners."""
        rows = len(next(iter(table.values())))
        parts = max(1, round(self.least(rows) * self.ranks / size))
        order_S = torch.randperm(rows, generator=self._chance).to(self._device)
        mixed = {name: column.to(self._device)[order_S].tensor_split(parts) for name, column in table.items()}
        for columns in zip(*mixed.values(), strict=True):
            yield dict(zip(mixed, columns, strict=True))

    def step(
        self, loss: Tensor, optimizer: torch.optim.Optimizer, *, clip_norm: float | None, is_wrapped: bool = True
    ) -> None:
        """One optimizer step, unless its gradient is not finite. Parameters outside the module are not wrapped
        by DDP.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for parameter in parameters:
            parameter.grad = None
        with no_denormals():
            loss.backward()
            if self.ranks > 1 and not (is_wrapped and self.module[self.policy] is not self.own):
                self._average([p.grad for p in parameters if p.grad is not None])
            what = "loss"
            judged = loss
            if clip_norm is not None:
                what = "gradient"
                judged = nn.utils.clip_grad_norm_(parameters, clip_norm, foreach=True)
            if not math.isfinite(judged.item()):
                raise LearnerError(
                    f"the {what} is {judged.item()}: this step changed nothing. Lower the learning rate, set "
                    "normalize_rewards or normalize_observations, or look at the environment's numbers."
                )
            optimizer.step()
        if clip_norm is not None:
            self.log(Metric.GRADIENT_NORM, judged)

    def log(self, name: str, value: Tensor) -> None:
        """Log a number of one optimizer step."""
        self._sums.setdefault(name, []).append(value.detach())

    def whiten(self, values_S: Tensor) -> Tensor:
        """The values normalised to mean 0 and standard deviation 1, over all learners' steps."""
        _, mean, variance = self._moments(values_S[:, None])
        return (values_S - mean.float()) / (variance.sqrt().float() + 1e-8)

    def mean(self, values: Sequence[Tensor]) -> float:
        """The mean of a number per step, over all learners."""
        return float(self.reduce(torch.stack(list(values)).mean())) / self.ranks

    def _average(self, gradients: list[Tensor]) -> None:
        """Average gradients over all learners, for parameters outside DDP."""
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.ranks
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    # -- statistics -------------------------------------------------------------------------------------------------

    def scale_rewards(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Rewards of each rollout, divided by the standard deviation of the discounted return if configured."""
        rewards = [torch.from_numpy(rollout.rewards) for rollout in rollouts]
        if not self.config.settings.normalize_rewards:
            return rewards
        returns = [torch.from_numpy(r.discounted[r.valid]) for r in rollouts if r.discounted is not None]
        self.gather(self._scale, torch.cat(returns)[:, None])
        deviation = float(self._scale.variance.sqrt() + 1e-8)
        return [(reward / deviation).clamp(-10, 10) for reward in rewards]

    def observe(self, seen_S: Tensor) -> None:
        """Update the network's observation statistics."""
        normalizer = getattr(getattr(self.own, "net", None), "normalizer", None)
        if normalizer is not None:
            self.gather(normalizer, seen_S)

    def gather(self, normalizer: Normalizer, numbers_SF: Tensor) -> None:
        """Update statistics with all learners' numbers; they stay equal on all."""
        count, mean_F, variance_F = self._moments(numbers_SF.to(normalizer.mean.device))
        normalizer.observe(count, mean_F.float(), variance_F.float())

    def _moments(self, numbers_SF: Tensor) -> tuple[float, Tensor, Tensor]:
        """Count, mean and variance over all learners."""
        wide_SF = numbers_SF.double()
        count = wide_SF.new_tensor([len(wide_SF)])
        sums = self.reduce(torch.cat([count, wide_SF.sum(0), wide_SF.square().sum(0)]))
        mean_F, square_F = (sums[1:] / sums[0]).chunk(2)
        return float(sums[0]), mean_F, (square_F - mean_F.square()).clamp(min=0)

    def least(self, count: int) -> int:
        """The smallest of all learners' counts: all must take the same number of steps."""
        return int(self.reduce(torch.tensor(count), op=dist.ReduceOp.MIN)) if self.ranks > 1 else count

    def reduce(self, numbers: Tensor, *, op: Any = dist.ReduceOp.SUM) -> Tensor:
        """The reduction over all learners, on their modules' device."""
        if self.ranks == 1:
            return numbers
        met = numbers.to(self._device, copy=True)
        dist.all_reduce(met, op=op)
        return met.to(numbers.device)

    # -- RLlib's hooks ----------------------------------------------------------------------------------------------

    @override
    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state and ours."""
        state: dict[str, Any] = super().get_state(components, **kwargs)
        if components is None:
            state[OURS] = self.state_dict()
        return state

    @override
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        super().set_state(state)
        if OURS in state:
            self.load_state_dict(state[OURS])

    def state_dict(self) -> dict[str, Any]:
        """The state beside the module."""
        parts = {name: part.state_dict() for name, part in self.parts.items() if part is not None}
        return {"chance": self._chance.get_state(), "scale": deepcopy(self._scale.state_dict()), **parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume; a part that was not used there starts fresh."""
        self._chance.set_state(state["chance"])
        self._scale.load_state_dict(state["scale"])
        for name, part in self.parts.items():
            if part is not None and name in state:
                part.load_state_dict(state[name])


class PartsLearner(ArrayLearner):
    """The base of learners with several optimizers: every loss trains one part of the module."""

    @override
    def _make_modules_ddp_if_necessary(self) -> None:
        """Gradients are averaged part by part (`step`), not by DDP."""
        if self.ranks > 1:
            for tensor in self.own.state_dict().values():
                dist.broadcast(tensor, 0)

    owed = 0.0
    """Updates that are due for steps that were played."""

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"owed": self.owed}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.owed = state["owed"]

    def open_ring(self, settings: Replay, length: int = 1) -> Ring:
        """An empty memory of steps; or of sequences of this length, with the state of the policy's memory before."""
        view = seen(self.own.observation_space)
        kind = acts(self.own.action_space)
        numbers = view.shape, np.uint8 if view.kind == "pixels" else np.float32
        shape = () if kind.kind == "discrete" else (kind.count,)
        action = shape, np.float32 if kind.kind == "box" else np.int64
        columns: dict[str, tuple[tuple[int, ...], Any]] = {"seen": numbers, "actions": action}
        columns |= {"rewards": ((), np.float32), "ahead": ((), np.float32)}
        if length == 1:
            columns["after"] = numbers
        else:
            columns["valid"] = (), np.bool_
            columns = {name: ((length, *shape), dtype) for name, (shape, dtype) in columns.items()}
            columns["seen"] = (length + 1, *numbers[0]), numbers[1]
            columns["state"] = (self.own.net.memory.state,), np.float32
            settings = settings.model_copy(update={"capacity": max(1, settings.capacity // length)})
        return Ring(columns, settings, seed=int(self.config.seed or 0))

    def tend(self, name: str, loss: Tensor) -> None:
        """A step of the optimizer of this name."""
        self.step(loss, self.get_optimizer(DEFAULT_MODULE_ID, name), clip_norm=self.config.settings.clip_norm)

    def adam(
        self, module_id: str, name: str, parameters: Sequence[Any], *, rate: float, momentum: float = MOMENTUM
    ) -> None:
        """Register the optimizer of a part."""
        self.register_optimizer(
            module_id=module_id,
            optimizer_name=name,
            optimizer=Adam(parameters, rate=rate, momentum=momentum),
            params=list(parameters),
            lr_or_lr_schedule=rate,
        )
