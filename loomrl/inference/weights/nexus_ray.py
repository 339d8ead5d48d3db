"""Nexus over Ray: from the learner's node to an outpost on each engine node, which stages the weights."""

import shutil
import time
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

import numpy as np
import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from loomrl.errors import PolicyError
from loomrl.inference.weights.nexus import Receiver, Sender, WeightParcel, identity
from loomrl.inference.weights.sealed import Sealed, own_staging_folder, stage, sweep_staging

TRIES = 3
"""Attempts to send a version before an outpost is given up."""
PAUSE_S = 0.1
"""Interval between polls whether a dead outpost has restarted."""
AHEAD = 8
"""Maximum number of chunks in transit to an outpost."""


class Outpost:
    """The actor that receives versions and stages the newest as a file in a folder of its node."""

    def __init__(self, name: str) -> None:
        self._receiver = Receiver()
        self._folder = own_staging_folder(name)
        self._staged: tuple[str, str] | None = None

    def holds(self) -> str | None:
        """The identity of the version held here."""
        return self._receiver.holds

    def find_file(self, version: str) -> str | None:
        """The file of this version, if it is already staged."""
        return self._staged[1] if self._staged is not None and self._staged[0] == version else None

    def offer(self, manifest: bytes) -> list[int]:
        """The missing chunks."""
        return self._receiver.offer(manifest)

    def take(self, index: int, chunk: Any) -> None:
        """Accept one chunk."""
        self._receiver.take(index, memoryview(chunk).tobytes())

    def finish(self) -> str:
        """The file of the verified version; older ones are removed."""
        self._staged = None
        sweep_staging()
        sealed = self._receiver.finish()
        name = identity(sealed)
        file = stage(sealed, self._folder / f"{sealed.version}-{name}.safetensors")
        for old in self._folder.iterdir():
            if old != file:
                old.unlink()
        self._staged = name, str(file)
        return str(file)

    def close(self) -> None:
        """Remove all files from the node."""
        shutil.rmtree(self._folder, ignore_errors=True)
        sweep_staging()


def outpost_on(node_id: str, name: str) -> Any:
    """An outpost on this node; Ray restarts a dead one, empty."""
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    actor: Any = ray.remote(Outpost)
    return actor.options(num_cpus=0, max_restarts=-1, scheduling_strategy=there).remote(name)


class Relay:
    """Delivers versions to outposts, from any number of threads. Sends deltas if possible, and lost data again."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sender = Sender()
        self._newest: str | None = None
        self._lock = Lock()
        self.sent_bytes = 0
        """Total so far, manifests included."""

    def deliver(self, outpost: Any, sealed: Sealed) -> str:
        """The file that the outpost has staged; a PolicyError if the outpost could not be reached."""
        causes: list[str] = []
        beginning_again_until = time.monotonic() + self._timeout_s
        while len(causes) < TRIES:
            try:
                return self._attempt(outpost, sealed)
            except RayError as error:
                if isinstance(error, ActorUnavailableError) and time.monotonic() < beginning_again_until:
                    time.sleep(PAUSE_S)
                    continue
                causes.append(f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:300]}")
        raise PolicyError(
            f"version {sealed.version} did not reach {outpost} in {TRIES} attempts of {self._timeout_s:g} s per call: "
            f"{'; '.join(causes)}. Check that its node is alive (ray status) and has shared memory left."
        )

    def _attempt(self, outpost: Any, sealed: Sealed) -> str:
        """Send everything the outpost lacks, in order, a few chunks ahead of its answers."""
        there: str | None = self._answer(outpost.find_file.remote(identity(sealed)))
        if there is not None:
            return there
        parcel = self._parcel(sealed, self._answer(outpost.holds.remote()))
        self._count(len(parcel.manifest))
        under_way: list[Any] = []
        for index, chunk in _lacking(parcel, self._answer(outpost.offer.remote(parcel.manifest))):
            under_way.append(outpost.take.remote(index, chunk))
            self._count(len(chunk))
            if len(under_way) == AHEAD:
                self._answer(under_way.pop(0))
        self._answer(under_way)
        file: str = self._answer(outpost.finish.remote())
        return file

    def _parcel(self, sealed: Sealed, holds: str | None) -> WeightParcel:
        with self._lock:
            if self._newest != (name := identity(sealed)):
                self._sender.hold(sealed)
                self._newest = name
            return self._sender.parcel(holds)

    def _answer(self, reference: Any) -> Any:
        return ray.get(reference, timeout=self._timeout_s)

    def _count(self, size: int) -> None:
        with self._lock:
            self.sent_bytes += size


def _lacking(parcel: WeightParcel, indices: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Chunks as arrays, which Ray passes without copying them into a pickle."""
    for index in indices:
        yield index, np.frombuffer(parcel.chunks[index], np.uint8)
