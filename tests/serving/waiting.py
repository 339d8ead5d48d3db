"""Waiting for what has no event, and refusals by their cause."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from loomrl.serving.refusal import Refusal, RefusalCause


async def until(holds: Callable[[], object]) -> None:
    """Return as soon as it is true; looked at every hundredth of a second."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - often another process' word
            await asyncio.sleep(0.01)


@contextmanager
def refuses(cause: RefusalCause, match: str | None = None) -> Iterator[None]:
    """What is done here is refused for that cause."""
    with pytest.raises(Refusal, match=match) as refused:
        yield
    assert refused.value.cause is cause
