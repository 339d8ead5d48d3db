"""A gateway in this process, on its event loop, and endpoints that do not change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from loomrl.http.listen import open_door
from loomrl.http.server import Embedded
from loomrl.serving.asgi import GatewayApp
from loomrl.serving.dispatch import EndpointView
from loomrl.serving.gateway import Gateway, GatewaySettings, Mode
from loomrl.serving.monitor.monitor import Monitor
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


def only(name: str, policy: ServedPolicy) -> FixedView:
    """One endpoint with one policy."""
    version = policy.about.version
    endpoint = Endpoint(name=name, revision=1, arms=(Arm(name="stable", policy=version),), created_at=0.0)
    return FixedView({name: endpoint}, {version: [policy]})


class LocalGateway:
    """Serves a view on this machine only. Use it with `async with`."""

    def __init__(
        self,
        view: EndpointView | Mapping[str, ServedPolicy],
        recorder: Recorder | None,
        *,
        keys: CallerKeys | None = None,
        mode: Mode = "before",
        monitor: Monitor | None = None,
        settings: GatewaySettings | None = None,
    ) -> None:
        if isinstance(view, Mapping):
            views = [only(name, policy) for name, policy in view.items()]
            known = {name: endpoint for each in views for name, endpoint in each.known.items()}
            view = FixedView(known, {version: p for each in views for version, p in each.policies.items()})
        self._door = open_door("127.0.0.1", 0)
        self.gateway = Gateway(
            view=view,
            recorder=recorder,
            keys=keys or NoKeys(),
            mode=mode,
            monitor=monitor,
            settings=settings or GatewaySettings(),
        )
        self._server = Embedded(GatewayApp(self.gateway), self._door.listeners)

    @property
    def url(self) -> str:
        """The address; OpenAI's base URL has `/v1` behind it, a session `/sessions/ID` before that."""
        return self._door.url

    async def __aenter__(self) -> Self:
        if self.gateway.monitor is not None:
            await self.gateway.monitor.start()
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.close()
        await self.gateway.close()
        if self.gateway.recorder is not None:
            await self.gateway.recorder.close()
        if self.gateway.monitor is not None:
            await self.gateway.monitor.close()
