"""Work that a process repeats until it ends."""

import asyncio
from collections.abc import Awaitable, Callable

from loomrl.errors import LoomError
from loomrl.safety.redaction.log import redacted_logger

log = redacted_logger(__name__)


async def again(work: Callable[[], Awaitable[object]], pause_s: float) -> None:
    """Repeat the work for ever; failures are logged, and the work tried again."""
    while True:
        try:
            await work()
        except (LoomError, OSError) as error:
            log.warning("It is tried again: %s", error)
        except Exception:
            log.exception("It is tried again.")
        await asyncio.sleep(pause_s)


async def cancel_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
