"""New weights for a server: staged in a folder it can read, then loaded through its own routes."""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import uuid
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.remote.server import ServerClient
from loomrl.inference.weights.sealed import Sealed, stage, unstage

UNLABELLED = "default"
"""vLLM's and SGLang's label for the initial weights: our version 0."""
LABEL = re.compile(r"([0-9]+)-[0-9a-f]{16}")


class Routes(Protocol):
    """The routes by which one kind of server loads new weights."""

    needs: str
    """The required start options of the server."""

    async def label(self) -> str:
        """The label of its current weights."""

    async def replace(self, folder: Path, label: str) -> None:
        """Pause between two tokens, load the weights in this folder, and clear the caches; stays paused."""

    async def resume(self) -> None:
        """Resume if paused."""


class VllmRoutes:
    """vLLM's routes, in its development mode. Open requests are kept and continue."""

    needs = "VLLM_SERVER_DEV_MODE=1 vllm serve … --enable-scale-out"

    def __init__(self, server: ServerClient) -> None:
        self._server = server

    async def label(self) -> str:
        """The label that it was last given."""
        return _label(self._server, await self._server.get("/weight_info"))

    async def replace(self, folder: Path, label: str) -> None:
        """The label comes last: a server that has it has everything else."""
        await self._server.post("/pause", mode="keep")
        reload = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self._server.post("/collective_rpc", reload)
        reset = await self._server.post("/reset_prefix_cache", reset_running_requests="true")
        if reset.get("success") is not True:
            raise PolicyError(f"{self._server.root} kept what it had cached: {reset}")
        await self._server.post("/update_weight_version", {"new_version": label})

    async def resume(self) -> None:
        """Resume the kept requests."""
        await self._server.post("/resume")


class SglangRoutes:
    """SGLang's routes. It clears its cache only if no request is open, so open requests are aborted and sent again."""

    needs = "python -m sglang.launch_server …, of a version whose /model_info has a weight_version"

    def __init__(self, server: ServerClient) -> None:
        self._server = server

    async def label(self) -> str:
        """The label that it was last given."""
        return _label(self._server, await self._server.get("/model_info"))

    async def replace(self, folder: Path, label: str) -> None:
        """Weights, cache and label in one call."""
        await self._server.post("/pause_generation", {"mode": "abort"})
        body = {"model_path": str(folder), "weight_version": label, "flush_cache": True}
        done = await self._server.post("/update_weights_from_disk", body)
        if done.get("success") is not True:
            raise PolicyError(f"{self._server.root} did not take the weights: {done.get('message', done)}")

    async def resume(self) -> None:
        """Accept requests again."""
        await self._server.post("/continue_generation", {})


class ServerWeights:
    """Gives a server one version after the other. Processes that share the server load each version once."""

    def __init__(self, server: ServerClient, routes: Routes, *, config: Path, staging: Path) -> None:
        self._server = server
        self._routes = routes
        self._config = config
        self._staging = staging
        self._name = f"loomrl-{hashlib.sha256(server.root.encode()).hexdigest()[:16]}"
        self._given: weakref.finalize[..., ServerWeights] | None = None
        self._sent: str | None = None

    async def meet(self) -> None:
        """A ConfigError with the required start options if the server cannot load weights."""
        try:
            await self._routes.label()
        except PolicyError as error:
            raise ConfigError(f"this server takes no weights: {error} Start it so: {self._routes.needs}") from error

    async def give(self, sealed: Sealed) -> None:
        """Return once the server samples with these weights; after a failure it stays paused until others arrive.

        Equal weights given twice are sent again, because the caller doubts that they arrived.
        """
        label = label_of(sealed)
        async with self._alone():
            if self._sent == label or await self._routes.label() != label:
                folder = self._stage(sealed)
                try:
                    await self._routes.replace(folder, label)
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
                self._sweep(folder)
                self._given = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                found = await self._routes.label()
                if found != label:
                    raise PolicyError(f"{self._server.root} was given weights {label} and says it has {found}.")
            self._sent = label
            await self._routes.resume()

    def forget(self) -> None:
        """Delete the staged folder, which otherwise happens at the end of the process."""
        if self._given is not None:
            self._given()
            self._given = None

    def _stage(self, sealed: Sealed) -> Path:
        folder = self._staging / f"{self._name}-{sealed.version}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        file = stage(sealed, folder / "model.safetensors")
        file.chmod(0o644)
        shutil.copy(self._config, folder / "config.json")
        unstage(file).verify()
        return folder

    def _sweep(self, folder: Path) -> None:
        """Delete folders staged earlier for this server, by any process: SGLang may read one until it has other
        weights.
        """
        for old in self._staging.glob(f"{self._name}-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Lock the server against updates by other processes that stage in the same folder."""
        self._staging.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + self._server.timeout_s
        with (self._staging / f"{self._name}.lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        limit = f"{self._server.timeout_s:g} s"
                        raise PolicyError(f"{self._server.root}: another process updates it for {limit}.") from None
                    await asyncio.sleep(0.05)
            yield


def _label(server: ServerClient, told: dict[str, Any]) -> str:
    if "weight_version" not in told:
        raise PolicyError(f"{server.root} does not report which weights it has.")
    return str(told["weight_version"])


def label_of(sealed: Sealed) -> str:
    """The version with a digest of the checksums: two runs may both have a version 7."""
    digest = hashlib.sha256(json.dumps(dict(sealed.checksums), sort_keys=True).encode()).hexdigest()
    return f"{sealed.version}-{digest[:16]}"


def version_of(label: str) -> int:
    """The version in a label; a PolicyError if the label is not ours."""
    if label == UNLABELLED:
        return 0
    found = LABEL.fullmatch(label)
    if found is None:
        raise PolicyError(f"the server has weights labelled {label!r}, which were not given by this machine.")
    return int(found[1])


def nearby() -> Path:
    """A folder that a server on this machine can read: shared memory if available."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path("/tmp")
