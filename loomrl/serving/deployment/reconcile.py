"""A gateway's view of LoomDB: endpoints and live replicas, read periodically, and a link to each replica."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.errors import StoreError
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.channel.frame import HELLO_S
from loomrl.serving.channel.link import ChannelLink
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.refusal import Refusal
from loomrl.serving.repeat import cancel_task
from loomrl.store import LoomDB
from loomrl.store.ab_tests import AbTest, last_change, list_tests
from loomrl.store.endpoints import Endpoint, State, list_endpoints
from loomrl.store.replicas import BEAT_S, DEAD_S, Replica, ReplicaRole, ReplicaState, aged_replicas

log = redacted_logger(__name__)
PACE_S = BEAT_S
"""Time between two reads of LoomDB where nothing has changed: heartbeats grow old without a change."""
GLANCE_S = 0.1
"""Time between two checks for changed endpoints, tests or replicas: a change is read at once."""
LINK_S = 2.0
"""A new revision takes effect here once its policies are linked, or after this time."""


class StoredView:
    """The endpoints and replicas on record in LoomDB. While it cannot be read, the last state read holds."""

    def __init__(self, db: LoomDB, *, token: str, only: str | None = None) -> None:
        """With `only`, the endpoint of this name and its replicas."""
        self._db = db
        self._token = token
        self._only = only
        self._endpoints: Mapping[str, Endpoint] = {}
        self._tests: Mapping[str, list[AbTest]] = {}
        self._change: tuple[Any, ...] = ()
        self._version = -1
        """LoomDB's, at which nothing had changed."""
        self._links: dict[str, ChannelLink] = {}
        self._groups: Mapping[str, tuple[ChannelLink, ...]] = {}
        self._late: frozenset[ChannelLink] = frozenset()
        """Those whose heartbeat is overdue: they may be busy, and are asked where no other is up."""
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read once, link every replica that answers, and read periodically from then on."""
        await self.look()
        if self._opening:
            await asyncio.wait(self._opening.values(), timeout=HELLO_S)
            await self.look()
        self._task = asyncio.create_task(self._keep_looking())

    async def close(self) -> None:
        """Stop reading, and close all links."""
        await cancel_task(self._task)
        for task in list(self._opening.values()):
            task.cancel()
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def endpoint(self, name: str) -> Endpoint | None:
        """The endpoint of this name."""
        return self._endpoints.get(name)

    def endpoints(self) -> Sequence[Endpoint]:
        """All of them."""
        return list(self._endpoints.values())

    def tests(self, endpoint: str) -> Sequence[AbTest]:
        """The A/B tests that run on an endpoint."""
        return self._tests.get(endpoint, ())

    def replicas(self, policy: str) -> Sequence[ServedPolicy]:
        """The replicas of an arm's policy that can be reached; the one with the fewest calls first."""
        links = self._groups.get(policy, ())
        if len(links) < 2 and not any(link.is_lost for link in links):
            return links
        there = [link for link in links if not link.is_lost]
        heard = [link for link in there if link not in self._late]
        return sorted(heard or there, key=lambda link: link.busy)

    async def look(self) -> None:
        """Read LoomDB now; wait for replicas that are new to be linked."""
        try:
            self._change, endpoints, tests, replicas, live = await asyncio.to_thread(self._read)
        except StoreError as error:
            log.warning("LoomDB cannot be read, the last known state holds: %s", error)
            return
        wanted = {each.address: each for each in replicas}
        for address in [*self._links]:
            if self._links[address].is_lost or address not in wanted:
                self._drop(address)
        # one that is gone closes its connection: as long as that holds, a late heartbeat means that it is busy
        self._late = frozenset(link for address, link in self._links.items() if address not in live)
        for address in wanted.keys() & live:
            if address not in self._links and address not in self._opening:
                self._opening[address] = asyncio.create_task(self._open(address))
        if awaited := self._links_to_await(endpoints, wanted):
            await asyncio.wait(awaited, timeout=LINK_S)
        self._group(wanted)
        self._endpoints = {each.name: each for each in endpoints if each.state is not State.DELETED}
        self._tests = {}
        for test in tests:
            self._tests.setdefault(test.endpoint, []).append(test)

    def _links_to_await(self, endpoints: Sequence[Endpoint], wanted: Mapping[str, Replica]) -> list[asyncio.Task[None]]:
        """Links being made to policies that a new revision gives calls to, and that have none yet."""
        known = {name: endpoint.revision for name, endpoint in self._endpoints.items()}
        changed = [each for each in endpoints if known.get(each.name, each.revision) != each.revision]
        policies = {arm.policy for each in changed for arm in each.arms if arm.share > 0}
        linked = {each.policy for address, each in wanted.items() if address in self._links}
        new = [address for address, each in wanted.items() if each.policy in policies - linked]
        return [self._opening[address] for address in new if address in self._opening]

    def _read(self) -> tuple[tuple[Any, ...], list[Endpoint], list[AbTest], list[Replica], set[str]]:
        """The last change, the endpoints, their tests, the replicas, and the addresses of those heard of lately."""
        change = last_change(self._db)  # before what it stands for: a change after it leads to another look
        aged = aged_replicas(self._db, role=ReplicaRole.POLICY, endpoint=self._only)
        live = {each.address for each, age_s in aged if age_s < DEAD_S}
        endpoints = [each for each in list_endpoints(self._db) if self._only in (None, each.name)]
        now = time.time()
        tests = [each for each in list_tests(self._db) if each.is_running(now)]
        return change, endpoints, tests, [each for each, _ in aged if each.state is ReplicaState.READY], live

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            await asyncio.sleep(GLANCE_S)
            try:
                is_cut = any(link.is_lost for link in self._links.values())
                if is_cut or loop.time() - looked >= PACE_S or await self._has_changed():
                    looked = loop.time()
                    await self.look()
            except Exception:
                log.exception("The gateway's view could not be renewed.")

    async def _has_changed(self) -> bool:
        try:
            version = self._db.version()
            if self._change and version == self._version:
                return False
            has_changed = await asyncio.to_thread(last_change, self._db) != self._change
        except StoreError:
            return False  # the next look says it
        if not has_changed:
            self._version = version
        return has_changed

    async def _open(self, address: str) -> None:
        try:
            self._links[address] = await ChannelLink.open(address, token=self._token)
            self._change = ()  # the next glance finds a change, and groups it
        except Refusal as refusal:
            log.warning("%s", refusal)
        finally:
            self._opening.pop(address, None)

    def _drop(self, address: str) -> None:
        """Drop a replica: calls in progress may finish."""
        link = self._links.pop(address)
        if link.is_lost:
            return

        async def leave() -> None:
            while link.busy and not link.is_lost:  # noqa: ASYNC110 - the last call may be any of them
                await asyncio.sleep(PACE_S)
            await link.close()
            self._opening.pop(f"leaving {address}", None)

        self._opening[f"leaving {address}"] = asyncio.create_task(leave())

    def _group(self, wanted: Mapping[str, Replica]) -> None:
        groups: dict[str, tuple[ChannelLink, ...]] = {}
        for address, replica in wanted.items():
            if (link := self._links.get(address)) is not None:
                groups[replica.policy] = (*groups.get(replica.policy, ()), link)
        self._groups = groups
