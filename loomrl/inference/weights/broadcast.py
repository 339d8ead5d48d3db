"""The learner's end of a process group with all current engines, rebuilt when one of them has restarted."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import ray
import torch

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import ConfigError
from loomrl.inference.weights.group import Meeting, Member, host, send
from loomrl.inference.weights.sealed import Sealed

Lives = Sequence[tuple[str, int]]
"""Of every engine: the name of its life, and its number of workers."""


class Broadcast:
    """Sends to the workers of all engines at once."""

    def __init__(self, name: str, choice: VllmEngineConfig) -> None:
        _refuse_impossible(choice)
        self._name = name
        self._device = torch.device("cuda" if choice.gpus else "cpu")
        self._lives: Lives = ()
        self._built = 0
        self._hosted: tuple[Meeting, Any] | None = None
        self._member: Member | None = None

    def invite(self, lives: Lives) -> tuple[Meeting, list[int]]:
        """The meeting point of these engines, and the rank of each one's first worker."""
        first = [*accumulate((workers for _, workers in lives), initial=1)]
        if self._hosted is None or self._lives != lives:
            self.end()
            self._built += 1
            self._lives = lives
            self._hosted = host(f"{self._name}-{self._built}", first[-1], ray.util.get_node_ip_address())
        return self._hosted[0], first[:-1]

    def send(self, sealed: Sealed) -> None:
        """Send to all invited members while they receive; a PolicyError if one is missing."""
        assert self._hosted is not None
        if self._member is None:
            self._member = Member(self._hosted[0], 0, self._device, store=self._hosted[1])
        send(self._member, sealed)

    def end(self) -> None:
        """Leave the group; the next version starts a new one."""
        if self._member is not None:
            self._member.leave()
        self._member = self._hosted = None


def _refuse_impossible(choice: VllmEngineConfig) -> None:
    if choice.gpus != int(choice.gpus):
        raise ConfigError(
            f"engine.transport='nccl' and engine.gpus={choice.gpus:g}: NCCL wants a whole GPU for every member. Choose "
            "engine.gpus=1, or transport=auto."
        )
    if choice.gpus and not torch.cuda.is_available():
        raise ConfigError(
            "engine.transport='nccl': the learner's process has no GPU to send from. Choose transport=auto."
        )
