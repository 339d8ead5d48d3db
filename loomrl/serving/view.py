"""The endpoints and the replicas behind them, as a gateway sees them now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loomrl.serving.policy import ServedPolicy
from loomrl.store.ab_tests import AbTest
from loomrl.store.endpoints import Endpoint


class View(Protocol):
    """The endpoints and policies that are served now."""

    def endpoint(self, name: str) -> Endpoint | None:
        """The endpoint of this name."""

    def endpoints(self) -> Sequence[Endpoint]:
        """All of them."""

    def tests(self, endpoint: str) -> Sequence[AbTest]:
        """The A/B tests that run on an endpoint."""

    def replicas(self, policy: str) -> Sequence[ServedPolicy]:
        """The replicas of an arm's policy that can be reached; the one to ask first comes first."""


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
