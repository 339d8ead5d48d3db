"""The RLModule of control policies, and any other RLModule as our runner and learner see it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from loomrl.control.distribution import Distribution, open_distribution
from loomrl.control.network import Actor, ActorCritic
from loomrl.control.space import acts, seen
from loomrl.control.weave import WeaveNet
from loomrl.errors import ArtifactError

MOST = 3
"""Differences that a message names."""


class ActorModule(TorchRLModule):  # type: ignore[misc]
    """An Actor, as RLlib has it."""

    net: Actor

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take these weights; an ArtifactError names those that are another network's."""
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

    def _forward(self, batch: Mapping[str, Tensor], **_: Any) -> dict[str, Tensor]:
        return {Columns.ACTION_DIST_INPUTS: self.net.decide(self.net.features(batch[Columns.OBS]))}


class ControlModule(ActorModule, ValueFunctionAPI):  # type: ignore[misc]
    """An ActorCritic, as RLlib has it."""

    net: ActorCritic

    def setup(self) -> None:
        """Build the network from `model_config`: `network`, `normalize`."""
        self.net = ActorCritic(
            seen(self.observation_space),
            acts(self.action_space),
            self.model_config["network"],
            normalize=self.model_config["normalize"],
        )

    def _forward_train(self, batch: Mapping[str, Tensor], **_: Any) -> dict[str, Tensor]:
        inputs_BI, value_B = self.net(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: inputs_BI, Columns.VF_PREDS: value_B}

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Tensor:
        """What is expected from each observation."""
        return self.net.value(self.net.features(batch[Columns.OBS]))


class WeaveModule(ControlModule):
    """A WeaveNet, as RLlib has it."""

    net: WeaveNet

    def setup(self) -> None:
        """Build the network from `model_config`: `network`, `normalize`, `threads`."""
        self.net = WeaveNet(
            seen(self.observation_space),
            acts(self.action_space),
            self.model_config["network"],
            self.model_config["threads"],
            normalize=self.model_config["normalize"],
        )


class Policy(Protocol):
    """Decides by putting numbers into a distribution."""

    distribution: Distribution

    def decide(self, seen_N: Tensor) -> Tensor:
        """`[N, I]` for what the network sees."""


class Own:
    """The short way through a module of ours."""

    def __init__(self, module: ActorModule) -> None:
        self._net = module.net
        self.distribution = module.net.distribution

    def decide(self, seen_N: Tensor) -> Tensor:
        """See Policy."""
        return self._net.decide(self._net.features(seen_N))


class Foreign:
    """Through the public methods of any RLModule whose distribution takes what RLlib's own take."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.distribution = open_distribution(acts(module.action_space))

    def decide(self, seen_N: Tensor) -> Tensor:
        """See Policy."""
        out: Tensor = self._module.forward_exploration({Columns.OBS: seen_N})[Columns.ACTION_DIST_INPUTS]
        return out


class Plain:
    """Plain layers as NumPy arrays in the same memory: for few environments calling torch costs more than computing."""

    def __init__(self, net: Actor) -> None:
        self.distribution = net.distribution
        self._normalizer = net.normalizer
        layers = [*(net.trunk or ()), *(net.policy if isinstance(net.policy, nn.Sequential) else (net.policy,))]
        self._layers = [_as_numpy(layer) for layer in layers]
        self._log_std = None if net.log_std is None else net.log_std.detach().numpy()

    def decide(self, seen_N: Tensor) -> Tensor:
        """See Policy."""
        numbers = (seen_N if self._normalizer is None else self._normalizer(seen_N)).numpy()
        for layer in self._layers:
            numbers = layer(numbers)
        if self._log_std is not None:
            numbers = np.concatenate(
                [numbers, np.broadcast_to(self._log_std, (len(numbers), len(self._log_std)))], axis=1
            )
        return torch.from_numpy(numbers)

    @staticmethod
    def can(net: Actor) -> bool:
        """Whether it is made of plain layers only, and not on a GPU."""
        return net.pixels is None and all(
            isinstance(layer, (nn.Linear, nn.Tanh, nn.ReLU)) and all(not p.is_cuda for p in layer.parameters())
            for part in (net.trunk, net.policy)
            if part is not None
            for layer in part.modules()
            if not isinstance(layer, nn.Sequential)
        )


def _shape(weight: Any) -> str:
    return "missing" if weight is None else str(tuple(np.shape(weight)))


def _as_numpy(layer: nn.Module) -> Callable[[Any], Any]:
    if isinstance(layer, nn.Linear):
        weight, bias = layer.weight.detach().numpy().T, layer.bias.detach().numpy()
        return lambda x: x @ weight + bias
    return np.tanh if isinstance(layer, nn.Tanh) else lambda x: np.maximum(x, 0)


def policy_of(module: Any) -> Policy:
    """The module as whoever acts sees it."""
    if not isinstance(module, ActorModule):
        return Foreign(module)
    return Plain(module.net) if Plain.can(module.net) else Own(module)
