"""The RLModules of control policies, and adapters to any other RLModule."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.debug import deterministic
from ray.rllib.utils.torch_utils import set_torch_seed
from torch import Tensor, nn
from typing_extensions import override

from loomrl.control.distribution import ActionDistribution, open_distribution
from loomrl.control.network import Actor, ActorCritic
from loomrl.control.space import acts, seen
from loomrl.control.weave import WeaveNet
from loomrl.errors import ArtifactError
from loomrl.own_ray import replaced

MOST = 3
"""Maximum number of differences in a message."""
HISTORY = "history"
"""Key of a training batch for the past of its sequences (`loomrl.control.memory.History`), for a memory."""


def seed_without_compiler() -> None:
    """Have RLlib seed torch in this process without torch's compiler, which takes over a second and 80 MB to import."""
    deterministic.set_torch_seed = _set_torch_seed


def _set_torch_seed(seed: int | None = None) -> None:
    with replaced(torch, "use_deterministic_algorithms", lambda _: torch.set_deterministic_debug_mode("error")):
        set_torch_seed(seed)


class ActorModule(TorchRLModule):
    """An Actor as an RLModule."""

    net: Actor

    @override
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load these weights; an ArtifactError names those of another network."""
        own = self.state_dict()
        differing = [
            f"{name} is {_shape(state.get(name))} there and {_shape(own.get(name))} here"
            for name in sorted({*own, *(() if self.inference_only else state)})
            if _shape(state.get(name)) != _shape(own.get(name))
        ]
        if differing:
            raise ArtifactError(
                f"these weights are of another network: {'; '.join(differing[:MOST])}. Use the environment and the "
                "settings of the network that they were learnt with."
            )
        super().set_state(state)

    @override
    def _forward(self, batch: Mapping[str, Tensor], **_: Any) -> dict[str, Tensor]:
        features, state = self.net.recall(batch[Columns.OBS], batch.get(Columns.STATE_IN))
        out = {Columns.ACTION_DIST_INPUTS: self.net.decide(features, batch[Columns.OBS])}
        return out if state is None else out | {Columns.STATE_OUT: state}


class ControlModule(ActorModule, ValueFunctionAPI):
    """An ActorCritic as an RLModule."""

    net: ActorCritic

    @override
    def setup(self) -> None:
        """Build the network from `model_config`: `network`, `normalize`."""
        self.net = ActorCritic(
            seen(self.observation_space),
            acts(self.action_space),
            self.model_config["network"],
            normalize=self.model_config["normalize"],
        )

    @override
    def _forward_train(self, batch: Mapping[str, Tensor], **_: Any) -> dict[str, Tensor]:
        inputs_BI, value_B = self.net(batch[Columns.OBS], batch.get(HISTORY))
        return {Columns.ACTION_DIST_INPUTS: inputs_BI, Columns.VF_PREDS: value_B}

    @override
    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Tensor:
        """The value of each observation."""
        return self.net.value(self.net.features(batch[Columns.OBS], batch.get(HISTORY)))


class WeaveModule(ControlModule):
    """A WeaveNet as an RLModule."""

    net: WeaveNet

    @override
    def setup(self) -> None:
        """Build the network from `model_config`: `network`, `normalize`, `threads`."""
        self.net = WeaveNet(
            seen(self.observation_space),
            acts(self.action_space),
            self.model_config["network"],
            self.model_config["threads"],
            normalize=self.model_config["normalize"],
        )


State = Tensor | None
"""`[N, S]` numbers that a policy with a memory takes from step to step, zero where an episode begins; else None."""


class RunnerPolicy(Protocol):
    """Computes the inputs of the action distribution."""

    distribution: ActionDistribution

    def begin(self, count: int) -> State:
        """The state of so many episodes at their first step."""

    def decide(self, seen_N: Tensor, state: State) -> tuple[Tensor, State]:
        """`[N, I]` from the network's observations, and the state after them."""


class NetPolicy:
    """A policy from our own module, called directly."""

    def __init__(self, module: ActorModule) -> None:
        self._net = module.net
        self.distribution = module.net.distribution

    def begin(self, count: int) -> State:
        """Zeros, if the network has a memory."""
        memory = self._net.memory
        return None if memory is None else torch.zeros(count, memory.state)

    def decide(self, seen_N: Tensor, state: State) -> tuple[Tensor, State]:
        """The distribution's inputs, and the state."""
        features, state = self._net.recall(seen_N, state)
        return self._net.decide(features, seen_N), state


class Foreign:
    """A policy from any RLModule, through its public methods, if its distribution takes the same inputs as RLlib's."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.distribution = open_distribution(acts(module.action_space))

    def begin(self, count: int) -> None:
        """None: a module with a state goes RLlib's own way."""

    def decide(self, seen_N: Tensor, state: State) -> tuple[Tensor, None]:
        """The distribution's inputs."""
        return self._module.forward_exploration({Columns.OBS: seen_N})[Columns.ACTION_DIST_INPUTS], None


class ForeignPolicy:
    """Plain layers as NumPy arrays in shared memory: for few environments torch's call overhead exceeds the
    computation.
    """

    def __init__(self, net: Actor) -> None:
        self.distribution = net.distribution
        self._normalizer = net.normalizer
        self._block = net.block
        layers = [*(net.trunk or ()), *(net.policy if isinstance(net.policy, nn.Sequential) else (net.policy,))]
        self._layers = [_as_numpy(layer) for layer in layers]
        self._log_std = None if net.log_std is None else net.log_std.detach().numpy()

    def begin(self, count: int) -> None:
        """None: a memory is no plain layer."""

    def decide(self, seen_N: Tensor, state: State) -> tuple[Tensor, None]:
        """The distribution's inputs."""
        numbers = (seen_N if self._normalizer is None else self._normalizer(seen_N)).numpy()
        for layer in self._layers:
            numbers = layer(numbers)
        if self._log_std is not None:
            numbers = np.concatenate(
                [numbers, np.broadcast_to(self._log_std, (len(numbers), len(self._log_std)))], axis=1
            )
        return self._block(torch.from_numpy(numbers), seen_N), None

    @staticmethod
    def can(net: Actor) -> bool:
        """True if the network has plain layers only and is not on a GPU."""
        return (
            net.pixels is None
            and net.memory is None
            and all(
                isinstance(layer, (nn.Linear, nn.Tanh, nn.ReLU)) and all(not p.is_cuda for p in layer.parameters())
                for part in (net.trunk, net.policy)
                if part is not None
                for layer in part.modules()
                if not isinstance(layer, nn.Sequential)
            )
        )


def _shape(weight: Any) -> str:
    return "missing" if weight is None else str(tuple(np.shape(weight)))


def _as_numpy(layer: nn.Module) -> Callable[[Any], Any]:
    if isinstance(layer, nn.Linear):
        weight = layer.weight.detach().numpy().T
        bias = layer.bias.detach().numpy()
        return lambda x: x @ weight + bias
    return np.tanh if isinstance(layer, nn.Tanh) else lambda x: np.maximum(x, 0)


def policy_of(module: Any) -> RunnerPolicy:
    """The fastest policy for this module."""
    if not isinstance(module, ActorModule):
        return Foreign(module)
    return ForeignPolicy(module.net) if ForeignPolicy.can(module.net) else NetPolicy(module)
