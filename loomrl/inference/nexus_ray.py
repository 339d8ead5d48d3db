"""Nexus over Ray: from the learner's node to an outpost on each node of engines, which stages what arrives for them."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from loomrl.errors import PolicyError
from loomrl.inference.nexus import Parcel, Receiver, Sender
from loomrl.inference.sealed import Sealed, stage

TRIES = 3
"""Times that a version is begun or gone on with before an outpost is given up."""
AHEAD = 8
"""Chunks on their way to an outpost at a time."""


class Outpost:
    """An actor's half: receives versions and stages the newest as a file in a folder of its node."""

    def __init__(self, folder: str) -> None:
        self._receiver = Receiver()
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def holds(self) -> str | None:
        """The version that is here."""
        return self._receiver.holds

    def offer(self, manifest: bytes) -> list[int]:
        """The chunks that are still to come."""
        return self._receiver.offer(manifest)

    def take(self, index: int, chunk: Any) -> None:
        """One of them."""
        self._receiver.take(index, memoryview(chunk).tobytes())

    def finish(self) -> str:
        """The file of the version, verified, which is the only one in the folder then."""
        sealed = self._receiver.finish()
        file = stage(sealed, self._folder / f"{sealed.version}-{os.getpid()}")
        for old in self._folder.iterdir():
            if old != file:
                old.unlink()
        return str(file)


def outpost_on(node_id: str, folder: Path) -> Any:
    """An outpost on this node; one that dies begins again without any version."""
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    actor: Any = ray.remote(Outpost)
    return actor.options(num_cpus=0, max_restarts=-1, scheduling_strategy=there).remote(str(folder))


class Relay:
    """Sends every version to all outposts at once; what can be a delta is one, what was lost is sent again."""

    def __init__(self, outposts: Sequence[Any], *, timeout_s: float) -> None:
        self._outposts = list(outposts)
        self._timeout_s = timeout_s
        self._sender = Sender()
        self._lock = Lock()
        self.sent_bytes = 0
        """So far, manifests included."""

    def send(self, sealed: Sealed) -> list[str]:
        """Where each outpost has staged the version; a PolicyError where one could not be reached."""
        self._sender.hold(sealed)
        with ThreadPoolExecutor(len(self._outposts)) as pool:
            return list(pool.map(self._deliver, self._outposts))

    def _deliver(self, outpost: Any) -> str:
        causes: list[str] = []
        while len(causes) < TRIES:
            try:
                return self._attempt(outpost)
            except RayError as error:
                causes.append(f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:300]}")
        raise PolicyError(
            f"a version did not reach {outpost} in {TRIES} attempts of {self._timeout_s:g} s per call: "
            f"{'; '.join(causes)}. See whether its node is alive (ray status), and how much shared memory it has left."
        )

    def _attempt(self, outpost: Any) -> str:
        """All that the outpost lacks, in order, a few chunks ahead of its answers."""
        parcel = self._parcel(self._answer(outpost.holds.remote()))
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

    def _parcel(self, holds: str | None) -> Parcel:
        with self._lock:
            return self._sender.parcel(holds)

    def _answer(self, reference: Any) -> Any:
        return ray.get(reference, timeout=self._timeout_s)

    def _count(self, size: int) -> None:
        with self._lock:
            self.sent_bytes += size


def _lacking(parcel: Parcel, indices: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Chunks as arrays, which Ray passes on without copying them into a pickle."""
    for index in indices:
        yield index, np.frombuffer(parcel.chunks[index], np.uint8)
