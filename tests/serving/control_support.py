"""A small control policy, and a gateway that serves it."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from gymnasium import spaces

from loomrl.config.control import Network
from loomrl.control.network import ActorCritic
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.serving.acting import ControlServedPolicy
from loomrl.serving.durable import open_recorder
from loomrl.serving.recording.acts import NewActs, RecordedActs
from loomrl.store import LoomDB, open_store
from loomrl.types import Steps
from tests.serving.local_gateway import LocalGateway

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


def acting_policy(*spaces: Any, version: str = "run/3", **shape: Any) -> ControlServedPolicy:
    """The same, as a gateway has it."""
    return ControlServedPolicy(control_policy(*spaces, **shape), version=version, number=3)


def recorded_act(
    session: str, observation: np.ndarray, *, endpoint: str = "pole", at: float = 0.0, **caller: str
) -> NewActs:
    """One step of a session, as a gateway records it."""
    one_T = np.zeros(1, np.int32)
    steps = Steps(
        observations=observation[None],
        actions=one_T,
        logprobs_T=np.zeros(1, np.float32),
        sampled_T=np.zeros(1, np.bool_),
        versions_T=one_T,
        lanes_T=one_T,
        times_T=np.full(1, at),
    )
    acts = RecordedActs(arm="stable", version="run/3", steps=steps)
    return NewActs(session=session, endpoint=endpoint, acts=acts, **{"key": "a", **caller})


class Pole(LocalGateway):
    """A gateway before a control policy, with a recorder in LoomDB."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.store_url = f"sqlite:///{folder}/loom.db"
        super().__init__({"pole": acting_policy()}, open_recorder(self.store_url), **options)

    async def act(self, session: str, body: dict[str, Any]) -> httpx.Response:
        answer = await self.client.post(f"/sessions/{session}/v1/act", json={"model": "pole", **body})
        assert answer.status_code == 200, answer.text
        return answer

    def db(self) -> LoomDB:
        return open_store(self.store_url)
