"""People as judges: a question waits in a LoomDB until somebody answers or time runs out."""

import asyncio
import time
from threading import Lock
from typing import TYPE_CHECKING

from loomrl.errors import ScorerError, StoreError
from loomrl.gym.judge.judge import HumanJudgeConfig, Inquiry, Opinion
from loomrl.types import Message

if TYPE_CHECKING:
    from loomrl.store import LoomDB
    from loomrl.store.judgements import Judgement

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
"""Pauses between two polls of the queue."""


class HumanJudge:
    """Asks the people who answer this store's queue, from any process. Equal inquiries are answered once."""

    def __init__(self, config: HumanJudgeConfig) -> None:
        self._config = config
        self._db: LoomDB | None = None
        self._opening = Lock()

    def close(self) -> None:
        """Close the database connections."""
        if self._db is not None:
            self._db.close()

    async def ask(self, inquiry: Inquiry) -> Opinion:
        """A person's answer; a ScorerError if there is none in time."""
        try:
            async with asyncio.timeout(self._config.timeout_s):
                return await self._answer(inquiry)
        except TimeoutError:
            raise ScorerError(
                f"judgement {inquiry.id!r}: nobody answered within timeout_s={self._config.timeout_s:g}. "
                "`loomrl feedback questions` shows what waits."
            ) from None
        except StoreError as error:
            raise ScorerError(f"judgement {inquiry.id!r}: {error}") from error

    async def _answer(self, inquiry: Inquiry) -> Opinion:
        from loomrl.store.judgements import JUDGEMENTS

        found: Judgement | None = await asyncio.to_thread(self._put, inquiry)
        pause_s = FIRST_PAUSE_S
        while found is None or found.choice is None:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            found = await asyncio.to_thread(lambda: JUDGEMENTS.find(self._opened(), inquiry.id))
        return Opinion(found.choice, found.comment, found.who)

    def _opened(self) -> "LoomDB":
        """One connection pool for all episodes of a process, opened by the first question."""
        from loomrl.store import open_store

        with self._opening:
            if self._db is None:
                self._db = open_store(self._config.store)
            return self._db

    def _put(self, inquiry: Inquiry) -> "Judgement":
        from loomrl.store.judgements import Judgement, ask

        now = time.time()
        asked = Judgement(
            id=inquiry.id,
            question=inquiry.question,
            conversation=tuple(Message(message.role, message.text) for message in inquiry.conversation),
            choices=inquiry.choices,
            created_at=now,
            expires_at=now + self._config.timeout_s,
        )
        return ask(self._opened(), asked)
