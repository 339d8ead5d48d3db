"""The process dies: nothing is lost and nothing counted twice, as far as a protocol without acks can tell."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from atropos_support import ENVIRONMENT, TRAINER, first_tokens, group

from loomrl.config import HubConfig
from loomrl.hub import Hub
from loomrl.hub.atropos.groups import ScoredData
from loomrl.hub.atropos.session import AtroposSession
from loomrl.hub.atropos.state import RegisterEnv, Registration
from loomrl.hub.open import open_hub
from loomrl.store import open_store
from loomrl.store.notes import Notes

WRITES = {"append", "keep", "lease", "ack", "release", "renew"}


class Crash(BaseException):
    """The process is gone."""


class Dying:
    """A hub and its notes; the process dies just before or just after the nth write; while it settles, before."""

    def __init__(self, hub: Hub, notes: Notes, *, nth: int, before: bool) -> None:
        self._hub = hub
        self._notes = notes
        self._left = nth
        self._before = before
        self.settling = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._notes if name in {"keep", "find"} else self._hub, name)
        return (lambda *args, **more: self._write(call, *args, **more)) if name in WRITES else call

    def _write(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left == 0 and (self._before or self.settling):
            raise Crash
        answer = call(*args, **more)
        if self._left == 0:
            raise Crash
        return answer


class Clients:
    """An environment and a trainer that ask again when they get no answer, of a server that is started again."""

    def __init__(self, hub: Hub, notes: Notes, *, nth: int, before: bool) -> None:
        self._hub: Any = Dying(hub, notes, nth=nth, before=before)
        self.crashes = 0
        self.trained: list[int] = []
        self._start()

    def _start(self) -> None:
        self._session = AtroposSession(self._hub, self._hub, clock=lambda: 0.0)

    def call(self, exchange: Callable[[AtroposSession], Any]) -> Any:
        while True:
            try:
                return exchange(self._session)
            except Crash:
                self.crashes += 1
                self._start()

    def settled(self, exchange: Callable[[AtroposSession], Any]) -> Any:
        def whole(session: AtroposSession) -> Any:
            answer, settle = exchange(session)
            self._hub.settling = True
            try:
                settle()
            finally:
                self._hub.settling = False
            return answer

        return self.call(whole)

    def post(self, data: dict[str, Any]) -> None:
        content = hashlib.sha256(json.dumps(data).encode()).hexdigest()
        self.settled(lambda session: session.submit([ScoredData(**data)], content=content))

    def train(self) -> None:
        """As the real trainers: collect until null, then train on all of it."""
        collected: list[int] = []
        while (batch := self.settled(lambda session: session.batch())["batch"]) is not None:
            collected += first_tokens(batch)
        self.trained += collected

    def run(self) -> None:
        self.call(lambda session: session.register(Registration(**TRAINER)))
        self.train()
        self.call(lambda session: session.register_environment(RegisterEnv(**ENVIRONMENT)))
        self.post(group(0, env_id=0))
        self.post(group(100, env_id=0))
        self.train()
        self.post(group(200, size=2, env_id=0))
        self.post(group(300, size=2, env_id=0))
        self.train()
        self.train()


@pytest.mark.parametrize("before", [True, False])
def test_server_that_dies_at_any_write_loses_and_repeats_nothing(sqlite_url: str, before: bool) -> None:
    with open_hub(sqlite_url, HubConfig()) as hub, open_store(sqlite_url) as db:
        for nth in range(1, 200):
            clients = Clients(hub, Notes(db), nth=nth, before=before)
            clients.run()
            assert sorted(clients.trained) == [0, 100, 200, 300], f"died at write {nth}"
            assert clients.call(lambda session: session.state.handed) == []
            if clients.crashes == 0:
                break
            AtroposSession(hub, Notes(db), clock=lambda: 0.0).reset()
        assert nth > 20
