"""The processes of a service as deployments of Ray Serve. Calls do not pass through Serve: it keeps them alive."""

import asyncio
import os
from functools import partial
from typing import Any

from ray import serve

from loomrl.errors import LoomError
from loomrl.observability.log import open_log
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.deployment.policies import PolicyProcess
from loomrl.serving.deployment.process import FrontProcess, GatewayProcess
from loomrl.serving.deployment.station import LOOK_S, Change, Station, Steward
from loomrl.serving.repeat import again

log = redacted_logger(__name__)
CALLS = "loomrl_calls"
"""Metric of a replica: its open calls."""
HEAD = {"node:__internal_head__": 0.001}
"""The front is on the head node, whose address is known."""
LOAD = 16
"""Open calls per replica beyond which another one is started, by default."""
_USUAL: dict[str, float] = {
    "graceful_shutdown_wait_loop_s": 0.1,
    "graceful_shutdown_timeout_s": 15.0,
    "health_check_period_s": 1.0,
    "health_check_timeout_s": 30.0,
}


class PolicyReplica:
    """One engine in a process of its own."""

    async def __init__(self, station: Station, engine: str) -> None:  # type: ignore[misc]
        self._process = PolicyProcess(station, engine)
        await _start(self._process)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Its load, for the number of replicas."""
        return {CALLS: float(self._process.calls)}

    async def __del__(self) -> None:
        await self._process.stop()


class GatewayReplica:
    """One gateway."""

    async def __init__(self, station: Station) -> None:  # type: ignore[misc]
        self._process = GatewayProcess(station)
        await _start(self._process)

    async def __del__(self) -> None:
        await self._process.stop()


class FrontReplica:
    """HAProxy, the housekeeping, and the steward, which starts and ends the other applications."""

    async def __init__(self, station: Station, change: Change) -> None:  # type: ignore[misc]
        self._process = FrontProcess(station)
        await _start(self._process)
        steward = Steward(station)
        self._tasks = [asyncio.create_task(again(partial(asyncio.to_thread, steward.look, change), LOOK_S))]

    async def __del__(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._process.stop()


class Scaled:
    """Autoscaling: as many replicas as needed for `load` open calls each, within Serve's bounds."""

    def __init__(self, load: float) -> None:
        self._load = load

    def __call__(self, ctx: Any) -> tuple[float, dict[str, Any]]:
        """The wanted number of replicas, and no state."""
        calls = sum((ctx.aggregated_metrics or {}).get(CALLS, {}).values())
        return max(1.0, -(-calls // self._load)), {}


async def _start(process: PolicyProcess | GatewayProcess | FrontProcess) -> None:
    """Start it. Errors that a user can mend are one line, since Serve would show the end of a long trace."""
    open_log()
    _keep_to_loopback()
    try:
        await process.start()
    except LoomError as error:
        raise RuntimeError(f"{type(error).__name__}: {error} (process {os.getpid()})") from None


def _keep_to_loopback() -> None:
    """Have Serve's own server in this replica, which nothing of ours calls, listen on loopback.

    By itself it listens on all interfaces, and reads pickles. Serve starts it once the replica is made, and has no
    setting for its address.
    """
    from ray._common.tls_utils import add_port_to_grpc_server
    from ray.serve._private import replica

    def listen(server: Any, address: str) -> int:
        return int(add_port_to_grpc_server(server, address.replace("[::]", "127.0.0.1")))

    replica.add_port_to_grpc_server = listen


POLICY = serve.deployment(name="policy", **_USUAL)(PolicyReplica)
GATEWAY = serve.deployment(name="gateway", **_USUAL)(GatewayReplica)
FRONT = serve.deployment(name="front", **_USUAL)(FrontReplica)
