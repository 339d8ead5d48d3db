"""A gateway in this process, on its event loop, and endpoints that do not change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from loomrl.http.listen import open_door
from loomrl.http.server import Embedded
from loomrl.serving.asgi import GatewayApp
from loomrl.serving.dispatch import EndpointView
from loomrl.serving.gateway import Gateway
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.recorder import Recorder
from loomrl.serving.request import Caller, CallerKeys
from loomrl.store.ab_tests import AbTest
from loomrl.store.endpoints import Arm, Endpoint


class NoKeys:
    """No keys: every caller may do everything."""

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        """The caller."""
        return Caller(key="")

    def spent(self, caller: Caller, tokens: int) -> None:
        """Nothing is counted."""


@dataclass(frozen=True, slots=True)
class FixedView:
    """Endpoints and policies that do not change: in one process, for the agents of a rollout and for tests."""

    known: Mapping[str, Endpoint] = field(default_factory=dict)
    policies: Mapping[str, Sequence[ServedPolicy]] = field(default_factory=dict)
    running: Sequence[AbTest] = ()

    def endpoint(self, name: str) -> Endpoint | None:
        """The endpoint of this name."""
        return self.known.get(name)

    def endpoints(self) -> Sequence[Endpoint]:
        """All of them."""
        return list(self.known.values())

    def tests(self, endpoint: str) -> Sequence[AbTest]:
        """Those of this endpoint."""
        return [test for test in self.running if test.endpoint == endpoint]

    def replicas(self, policy: str) -> Sequence[ServedPolicy]:
        """Those of this name."""
        return self.policies.get(policy, ())


def alone(policies: Mapping[str, ServedPolicy]) -> FixedView:
    """An endpoint for each, of its name."""

    def endpoint(name: str, policy: ServedPolicy) -> Endpoint:
        return Endpoint(name=name, revision=1, arms=(Arm(name="stable", policy=policy.about.version),), created_at=0.0)

    known = {name: endpoint(name, policy) for name, policy in policies.items()}
    return FixedView(known, {policy.about.version: [policy] for policy in policies.values()})


class LocalGateway:
    """Serves a view on this machine only, and has a client for it. Use it with `async with`."""

    def __init__(
        self,
        view: EndpointView | Mapping[str, ServedPolicy],
        recorder: Recorder | None,
        *,
        keys: CallerKeys | None = None,
        **options: Any,
    ) -> None:
        if isinstance(view, Mapping):
            view = alone(view)
        self._door = open_door("127.0.0.1", 0)
        self.gateway = Gateway(view=view, recorder=recorder, keys=keys or NoKeys(), **options)
        self._server = Embedded(GatewayApp(self.gateway), self._door.listeners)
        self.client = httpx.AsyncClient(base_url=self.url, timeout=30)

    @property
    def url(self) -> str:
        """The address; OpenAI's base URL has `/v1` behind it, a session `/sessions/ID` before that."""
        return self._door.url

    async def __aenter__(self) -> Self:
        if self.gateway.monitor is not None:
            await self.gateway.monitor.start()
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await self._server.close()
        await self.gateway.close()
        for each in (self.gateway.recorder, self.gateway.monitor):
            if each is not None:
                await each.close()
