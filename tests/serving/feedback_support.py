"""A gateway with a recorder, keys and feedback in LoomDB, before a policy of a script."""

import json
import time
from typing import Any

import httpx

from loomrl.config import HubConfig
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.deployment.key import StoredKeys
from loomrl.serving.durable import open_recorder
from loomrl.serving.feedback.intake import EndpointHubs, FeedbackIntake
from loomrl.serving.retention.sweep import Sweeper, SweepTerms, SweptSessions
from loomrl.store import open_store
from loomrl.store.feedback import FEEDBACK
from loomrl.store.keys import create_key
from loomrl.types import Feedback
from tests.serving.local_gateway import FixedView, LocalGateway
from tests.serving.scripted import Script

FEEDBACK_PATH = "/v1/feedback"
DAY_S = 86_400.0


class Served(LocalGateway):
    """Opens it, talks to it, and looks at what is stored. Its clock can be moved."""

    def __init__(self, store_url: str, view: FixedView | None = None) -> None:
        self.store_url, self.db, self.ahead_s = store_url, open_store(store_url), 0.0
        self.recorder = open_recorder(store_url, clock=self.now)
        self.intake = FeedbackIntake(self.db, EndpointHubs(store_url, ["m"]), clock=self.now)
        keys = StoredKeys(self.db, required=True)
        policies = view or {"m": Script()}
        super().__init__(policies, self.recorder, keys=keys, intake=self.intake)
        self.mine = self.key("act", "feedback", "record")
        self.theirs = self.key("act", "feedback")
        self.admin = self.key("admin")

    def now(self) -> float:
        return time.time() + self.ahead_s

    def key(self, *scopes: str) -> str:
        return create_key(self.db, "app", scopes=scopes, at=time.time())[0]

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        self.intake.close()
        self.db.close()

    async def post(self, path: str, body: Any, *, key: str = "", **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", "authorization": f"Bearer {key or self.mine}", **headers}
        return await self.client.post(path, content=content, headers=sent)

    async def chat(self, session: str, text: str = "Hello", *, key: str = "", **body: Any) -> str:
        """The id of the answer."""
        asked = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
        answer = await self.post(f"/sessions/{session}/v1/chat/completions", asked, key=key)
        assert answer.status_code == 200, answer.text
        id: str = answer.json()["id"]
        return id

    async def give(self, *, key: str = "", headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        return await self.post(FEEDBACK_PATH, body, key=key, **(headers or {}))

    async def given(self, **body: Any) -> dict[str, Any]:
        answer = await self.give(**body)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def stored(self) -> list[Feedback]:
        return [one for _, one in FEEDBACK.read(self.db)]

    def archive(self, *, days: float = 0.0) -> SweptSessions:
        """End all sessions and move them to the hub, so many days later."""
        self.ahead_s += days * DAY_S
        with open_endpoint_hub(self.store_url, "m", HubConfig()) as hub:
            return Sweeper(self.db, hub, "m", terms=SweepTerms(idle_s=0.0)).sweep_sessions(now=self.now())
