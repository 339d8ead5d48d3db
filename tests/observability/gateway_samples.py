"""A metered gateway in this process, over real HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from loomrl.http.listen import open_door
from loomrl.http.server import Embedded
from loomrl.serving.asgi import GatewayApp
from loomrl.serving.gateway import Gateway, GatewaySettings
from loomrl.serving.meter import GatewayMeter
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.request import CallerKeys
from loomrl.store.endpoints import Arm, Endpoint
from tests.serving.local_gateway import FixedView, NoKeys


def served(policies: Mapping[str, ServedPolicy], *arms: Arm) -> FixedView:
    """The endpoint `e` with these arms."""
    endpoint = Endpoint(name="e", revision=1, arms=arms or (Arm(name="stable", policy="stable"),), created_at=0.0)
    return FixedView({"e": endpoint}, {name: [policy] for name, policy in policies.items()})


@dataclass(frozen=True, slots=True)
class Metered:
    """A client of the gateway."""

    client: httpx.AsyncClient

    async def value(self, name: str, **labels: str) -> float | None:
        """A sample as Prometheus reads it."""
        answer = await self.client.get("/metrics")
        assert answer.status_code == 200, answer.text
        for metric in text_string_to_metric_families(answer.text):
            for sample in metric.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None


@asynccontextmanager
async def metered(
    view: FixedView, *, settings: GatewaySettings | None = None, keys: CallerKeys | None = None
) -> AsyncIterator[Metered]:
    """A gateway of this view."""
    gateway = Gateway(
        view=view,
        recorder=MemoryRecorder(),
        keys=keys or NoKeys(),
        meter=GatewayMeter(),
        settings=settings or GatewaySettings(),
    )
    door = open_door("127.0.0.1", 0)
    server = Embedded(GatewayApp(gateway), door.listeners)
    await server.start()
    async with httpx.AsyncClient(base_url=door.url, timeout=30) as client:
        yield Metered(client)
    await server.close()
    await gateway.close()
