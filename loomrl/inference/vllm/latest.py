"""The latest weights given to a fleet's engines, as a file on each engine's node.

On the learner's node it is the file that the learner staged in shared memory; on other nodes, and on all nodes if
`engine.transport` is nexus, an outpost stages the weights that Nexus delivers.
"""

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from loomrl.errors import PolicyError
from loomrl.inference.vllm.engine import StagedWeights
from loomrl.inference.weights.nexus_ray import Relay, outpost_on
from loomrl.inference.weights.sealed import unstage

CALL_S = 60.0
"""Time limit of an outpost's call, including its start."""
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class GivenWeights:
    """A version and its state."""

    staged: StagedWeights
    admitted: bool = False
    rejected: str | None = None


class LatestWeights:
    """An actor on the learner's node; its calls may come from any number of threads."""

    def __init__(self, name: str, transport: str) -> None:
        self._name = name
        self._transport = transport
        self._node = ray.get_runtime_context().get_node_id()
        self._given: GivenWeights | None = None
        self._version = 0
        self._relay = Relay(timeout_s=CALL_S)
        self._outposts: dict[str, Any] = {}
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)

    def give(self, staged: StagedWeights) -> None:
        """Give engines these weights from now on; they hold their completions."""
        self._given = GivenWeights(staged)

    def admit(self) -> None:
        """Engines need not hold completions any more."""
        assert self._given is not None
        self._given = replace(self._given, admitted=True)
        self._version = self._given.staged.version

    def reject(self, cause: str) -> None:
        """Engines start without weights from now on, and refuse work."""
        if self._given is not None:
            self._given = replace(self._given, admitted=False, rejected=cause)

    def newest(self) -> GivenWeights | None:
        """None before the first version."""
        return self._given

    def version(self) -> int:
        """The last admitted version; 0 before the first."""
        return self._version

    def file(self, staged: StagedWeights, node: str) -> Path | PolicyError:
        """The file of this version, which must be the newest, on a node; delivered there if missing."""
        if self._given is None or self._given.staged != staged:
            return PolicyError(f"version {staged.version} is not the newest any more: take that one.")
        if node == self._node and self._transport != "nexus":
            return staged.file
        if self._transport == "shared":
            return PolicyError("engine.transport='shared', and an engine came back on another node. Choose auto.")
        with self._locks[node]:  # engines of a node share what one of them has waited for
            if node not in self._outposts:
                self._outposts[node] = outpost_on(node, self._name)
            try:
                return Path(self._relay.deliver(self._outposts[node], unstage(staged.file)))
            except PolicyError as error:
                ray.kill(self._outposts.pop(node))
                return error

    def close(self) -> None:
        """Remove all files from all nodes."""
        with suppress(RayError):
            ray.get([outpost.close.remote() for outpost in self._outposts.values()], timeout=CLOSE_S)


def open_latest_weights(name: str, transport: str, *, asked_by: int) -> Any:
    """The actor on this node, with this name in Ray, for this many engines."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_concurrency": 2 * asked_by + 4, "scheduling_strategy": here}
    actor: Any = ray.remote(LatestWeights)
    return actor.options(name=latest_weights_name(name), **options).remote(name, transport)


def latest_weights_name(fleet: str) -> str:
    """The actor's name in Ray."""
    return f"{fleet}-latest-weights"
