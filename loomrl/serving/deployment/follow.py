"""A replica that follows a run: each newer, or better, version is checked and loaded in place, while calls go on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from loomrl.errors import LoomError
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import Event
from loomrl.serving.deployment.source import OpenFolder, PolicySource, fetch, fetch_adapter, version_to_follow
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation, ServedPolicy
from loomrl.store import LoomDB
from loomrl.types import PolicyVersion

log = redacted_logger(__name__)
LOOK_S = 1.0


class Following:
    """A ServedPolicy whose weights change. A version that cannot be loaded is logged, and the former one stays."""

    def __init__(self, source: PolicySource, policy: ServedPolicy, db: LoomDB, *, is_adapter: bool = False) -> None:
        self._source = source
        self._policy = policy
        self._db = db
        self._is_adapter = is_adapter
        self._about = policy.about
        self._refused = ""
        """The version that could not be loaded; it is not tried again."""
        self.swaps = 0
        """Versions that were loaded since the start."""

    @property
    def about(self) -> About:
        """The policy's description now."""
        return self._about

    def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The events of all choices; each token names its version, and versions may differ."""
        return self._policy.answer(continuation)

    async def act(self, act: ActRequest) -> ActResult:
        """The actions for a batch, all of one version."""
        return await self._policy.act(act)

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Follow for ever; `changed` is awaited after each swap."""
        while True:
            try:
                if await self.look():
                    await changed()
            except LoomError as error:
                log.warning("%s cannot be followed now: %s", self._source.key, error)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> bool:
        """Load the run's present version if it is a new one. True if it was loaded."""
        wanted = await asyncio.to_thread(self._find_wanted)
        if wanted is None or wanted.id in (self._about.version, self._refused):
            return False
        get = fetch_adapter if self._is_adapter else fetch
        files = await asyncio.to_thread(get, self._source, self._db)
        try:
            if files.version in (self._about.version, self._refused):
                return False
            await self._load(files)
        except LoomError as error:
            self._refused = files.version
            log.error("Version %s was refused, %s stays: %s", files.version, self._about.version, error)
            return False
        finally:
            await asyncio.to_thread(files.discard)
        self._about = replace(self._about, version=files.version, number=files.number)
        self.swaps += 1
        log.info("%s has version %s now.", self._source.key, files.version)
        return True

    def _find_wanted(self) -> PolicyVersion | None:
        assert self._source.follow is not None
        return version_to_follow(self._source.run, self._source.follow, self._db)

    async def _load(self, files: OpenFolder) -> None:
        if self._source.kind == "control":
            from loomrl.serving.acting import ControlServedPolicy

            self._policy = await asyncio.to_thread(
                ControlServedPolicy.open, files.path, version=files.version, number=files.number
            )
            return
        from loomrl.inference.merged import sealed_adapter
        from loomrl.inference.model import open_model
        from loomrl.inference.weights.sealed import Sealed, seal
        from loomrl.serving.speech import LanguageServedPolicy

        def seal_files() -> Sealed:
            if self._is_adapter:
                return sealed_adapter(files.path.parent, files.number)
            opened = open_model(files.path, trust_remote_code=self._source.trust_remote_code)
            return seal(opened.state_dict(), files.number)

        assert isinstance(self._policy, LanguageServedPolicy)
        await self._policy.load(await asyncio.to_thread(seal_files))
