"""Work that a process repeats until it ends, and streams that it joins."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from loomrl.errors import LoomError
from loomrl.safety.redaction.log import redacted_logger
from loomrl.store import LoomDB

log = redacted_logger(__name__)
T = TypeVar("T")


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


def after_commits(db: LoomDB, work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
    """The work, left out while nothing was committed to LoomDB since it was done."""
    done = -1

    async def work_if_changed() -> None:
        nonlocal done
        version = db.version()
        if version != done:
            await work()
            done = version

    return work_if_changed


async def cancel_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """The items of all streams as they come. The first error ends all of them."""
    events: asyncio.Queue[T | BaseException | None] = asyncio.Queue(maxsize=len(streams))

    async def drain(stream: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(stream):
                async for event in stream:
                    await events.put(event)
            await events.put(None)
        except Exception as error:  # noqa: BLE001 - handed to the reader
            await events.put(error)

    tasks = [asyncio.create_task(drain(stream)) for stream in streams]
    try:
        left = len(tasks)
        while left:
            event = await events.get()
            if isinstance(event, BaseException):
                raise event
            if event is None:
                left -= 1
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
