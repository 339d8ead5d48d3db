"""Time of a program in a sandbox: `pytest tests/gym/test_sandbox_speed.py -m slow -s`."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import pytest

from loomrl.gym.sandbox import Execution, open_sandbox
from tests.needs import needs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.system,
    needs("bubblewrap"),
]
PROGRAM, STDIN = "print(sum(map(int, input().split())))", b"1 2 3"


async def milliseconds(run: Callable[[], Awaitable[Execution]], count: int) -> list[float]:
    """Of each run, sorted."""
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        assert (await run()).output == b"6\n"
        taken.append((time.perf_counter() - start) * 1e3)
    return sorted(taken)


def show(name: str, taken: list[float]) -> None:
    """Least, middle, and what one in twenty exceeds."""
    print(f"{name}: min {taken[0]:.1f} p50 {statistics.median(taken):.1f} p95 {taken[len(taken) * 19 // 20]:.1f} ms")


async def test_a_warm_run_is_several_times_faster_than_a_cold_one() -> None:
    sandbox = open_sandbox("bubblewrap")
    cold = await milliseconds(lambda: sandbox.run(PROGRAM, stdin=STDIN), 60)
    async with sandbox.session() as session:
        await session.run(PROGRAM, STDIN)
        warm = await milliseconds(lambda: session.run(PROGRAM, STDIN), 300)
    start = time.perf_counter()
    await asyncio.gather(*(milliseconds(lambda: sandbox.run(PROGRAM, stdin=STDIN), 15) for _ in range(4)))
    show("cold", cold)
    show("warm", warm)
    print(f"four at once: {60 / (time.perf_counter() - start):.0f} cold runs per second")
    assert statistics.median(warm) * 2 < statistics.median(cold)
