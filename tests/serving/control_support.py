"""A small control policy."""

import torch
from gymnasium import spaces

from loomrl.config.control import Network
from loomrl.control.network import ActorCritic
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen

CARTPOLE = spaces.Box(-5.0, 5.0, (4,))
TWO = spaces.Discrete(2)


def control_policy(
    observed: spaces.Space = CARTPOLE, acted: spaces.Space = TWO, *, seed: int = 0, memory: str | None = None
) -> ControlPolicy:
    """Untrained, but not indifferent."""
    network = Network(hidden=(16,), memory=memory and {"kind": memory, "size": 16})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = ActorCritic(seen(observed), acts(acted), network, normalize=False)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.5 * torch.randn(parameter.shape))
    return ControlPolicy(net, observed, acted, network)
