"""What people who look at the console cost a run beside it."""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from loomrl.store import LoomDB, open_store
from loomrl.store.view.metrics import append_metrics
from loomrl.telemetry.sink import new_metrics

VIEWERS = 50
VIEWER_ROUNDS = 3
BUSY = """
import sys, time
done, until = 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    sum(range(10_000))
    done += 1
print(done)
"""
"""A process that works all the time, and says how much."""
PATIENCE_S = 120.0


def viewers(url: str, address: str, process: int, *, seconds: float) -> dict[str, Any]:
    """What 50 open streams cost a run that commits once a second and uses every core, by turns with and without them;
    and CPU seconds of the console per second with them.
    """
    worked: dict[bool, list[int]] = {False: [], True: []}
    shares = []
    with open_store(url) as db:
        for watched in [False, True] * VIEWER_ROUNDS:
            with contextlib.ExitStack() as stack:
                limits = httpx.Limits(max_connections=2 * VIEWERS)
                client = stack.enter_context(httpx.Client(timeout=PATIENCE_S, limits=limits))
                for _ in range(VIEWERS if watched else 0):
                    stack.enter_context(client.stream("GET", f"{address}/live?kind=metrics"))
                before, begun = _cpu(process), time.perf_counter()
                worked[watched].append(_work(db, seconds))
                if watched:
                    shares.append((_cpu(process) - before) / (time.perf_counter() - begun))
    return {
        "cpu_share_of_50_viewers": round(statistics.median(shares), 4),
        "cost_of_50_viewers": round(1 - statistics.median(worked[True]) / statistics.median(worked[False]), 4),
        "work_of_rounds": worked[False] + worked[True],
    }


def _work(db: LoomDB, seconds: float) -> int:
    """What a process on every core gets done in these seconds, while a run commits metrics every second."""
    command = [sys.executable, "-S", "-c", BUSY, str(seconds)]
    busy = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(os.cpu_count() or 1)]
    while any(each.poll() is None for each in busy):
        append_metrics(db, new_metrics("beside", time.monotonic_ns(), {"success": 0.5}), at=time.time())
        time.sleep(1.0)
    return sum(int(each.communicate()[0]) for each in busy)


def _cpu(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
