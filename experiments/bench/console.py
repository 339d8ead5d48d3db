"""The console: milliseconds of its pages over a large store, and from a commit to the browser.

The console is the real one in a process of its own, and every run has its hub. Trajectories are written straight into
the hubs' tables from moulds, groups of four with two turns each, as appending them one by one would take longer than
looking at them.
"""

import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import httpx
import numpy as np

from loomrl.console.source import Indexer, open_source
from loomrl.experiments.bench.rounds import machine, seconds
from loomrl.experiments.shipped import resolve
from loomrl.hub.codec import HEADER, MAGIC, encode
from loomrl.load import dump
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.events import EVENTS
from loomrl.store.hub_tables import groups, trajectories
from loomrl.store.policies import record_policy
from loomrl.store.runs import Run, RunStatus, finish_run, start_run
from loomrl.store.view.metrics import append_metrics
from loomrl.store.view.tables import metrics
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.progress import progress
from loomrl.telemetry.sink import new_metrics
from loomrl.types import End, Message, PolicyVersion, Reward, Task, Tokens, Trajectory, Turn

GROUP = 4
ENVIRONMENTS = ("Math", "Code", "Game", "ToolCall", "LogicPuzzle")
KINDS = 700
"""Kinds of tasks: every environment with every family, level and version."""
NUMBER = b"@@@@@@@@"
TASK = b"########"
RUN = b"run-????"
"""Placeholders for the number, the group and the run of a trajectory."""
LONG_TOKENS = 100_000
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSize:
    """The size of a measurement."""

    trajectories: int = 1_000_000
    runs: int = 1000
    updates: int = 200
    requests: int = 40
    """Requests of each page."""
    commits: int = 100
    """Commits whose delay is measured."""


FULL = ConsoleSize()
QUICK = ConsoleSize(trajectories=2000, runs=20, updates=20, requests=3, commits=5)


def measure(size: ConsoleSize = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench console`."""
    with tempfile.TemporaryDirectory(prefix="loomrl-bench-") as name:
        url = f"sqlite:///{name}/loom.db"
        figures = _fill_store(url, size)
        with _console(url) as address, httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
            figures |= _pages(client, size)
            figures |= _delay(url, address, size)
    return figures | {"machine": machine()}


def _fill_store(url: str, size: ConsoleSize) -> dict[str, Any]:
    begun = time.perf_counter()
    with open_store(url) as db:
        _fill_runs(db, size)
    _fill_hubs(url, size)
    filled = time.perf_counter()
    source = open_source(url)
    try:
        indexer = Indexer(source)
        cpu = time.process_time()
        with progress("bench console: index", size.trajectories + 1) as report:
            done = 0
            while new := indexer.round():
                report(done := done + new)
        cpu = time.process_time() - cpu
    finally:
        source.close()
    return {
        "trajectories": size.trajectories,
        "runs": size.runs,
        "filled_s": round(filled - begun, 1),
        "indexed_per_cpu_s": round((size.trajectories + 1) / cpu),
    }


def _fill_runs(db: LoomDB, size: ConsoleSize) -> None:
    experiment = resolve(["language/math_tiny"])
    resolved = dump(experiment)
    now = time.time()
    rng = random.Random(0)
    for number in range(size.runs):
        id = f"run-{number:04d}"
        at = now - 60.0 * (size.runs - number)
        start_run(
            db,
            Run(
                id=id,
                name=f"name-{number % 17}",
                kind="train",
                experiment=experiment.sha256,
                resolved=resolved,
                code="c",
                environments={"Math@1.0.0": "0" * 64},
                started_at=at,
            ),
        )
        for version in (0, 1):
            parent = f"{id}/0" if version else None
            record_policy(
                db,
                PolicyVersion(
                    id=f"{id}/{version}",
                    number=version,
                    url=f"runs/{id}/{version}",
                    run=id,
                    algorithm="grpo",
                    experiment=experiment.sha256,
                    parent=parent,
                    created_at=at + version,
                ),
            )
        if number % 10:
            finish_run(db, id, status=RunStatus.FINISHED, finished_at=at + 600)
        rows = [_metric_row(id, update, at, rng) for update in range(1, size.updates + 1)]
        with db.write() as connection:
            connection.execute(metrics.insert(), rows)


def _metric_row(run: str, update: int, at: float, rng: random.Random) -> dict[str, Any]:
    values = {str(metric): rng.random() for metric in list(Metric)[:40]}
    content = json.dumps(values)
    return {
        "run": run,
        "number": update,
        "step": update,
        "headline": values[Metric.SUCCESS],
        "tokens": 1000.0 * update,
        "content": content,
        "created_at": at + update,
    }


def _fill_hubs(url: str, size: ConsoleSize) -> None:
    """Trajectories written from a mould for each kind of task, with another number in each."""
    rng = np.random.default_rng(0)
    now = time.time()
    moulds = [(made, encode(made)[HEADER.size :]) for made in (trajectory(kind, rng) for kind in range(KINDS))]
    long = long_trajectory()
    with progress("bench console: filling", size.trajectories) as report:
        for run, numbers in groupby(range(size.trajectories), partial(_run_of, size=size)):
            rows = [_cast(number, run, moulds[number // GROUP % KINDS]) for number in numbers]
            if run == long.run:
                rows.append((size.trajectories + GROUP, run, long, encode(long)))
            with open_store(beside(url, run)) as hub:
                _store(hub, rows, now)
            report(min(rows[-1][0] + 1, size.trajectories))


def _run_of(number: int, *, size: ConsoleSize) -> str:
    return f"run-{number * size.runs // size.trajectories:04d}"


def _cast(number: int, run: str, mould: tuple[Trajectory, bytes]) -> tuple[int, str, Trajectory, bytes]:
    """A number, its run, and the mould's trajectory with the number, the run and the group written into it."""
    made, body = mould
    body = body.replace(NUMBER, b"%08d" % number).replace(RUN, run.encode())
    body = body.replace(TASK, b"%08d" % (number // GROUP))
    return number, run, made, HEADER.pack(MAGIC, zlib.crc32(body), len(body)) + body


def _store(db: LoomDB, rows: Sequence[tuple[int, str, Trajectory, bytes]], now: float) -> None:
    group = {
        "environment": "Math",
        "size": GROUP,
        "needed": GROUP,
        "version": 0,
        "state": "acked",
        "cause": "",
        "arrived": GROUP,
        "usable": GROUP,
        "oldest": 0,
        "lease": None,
        "opened_at": now,
        "deadline": now,
    }
    positions = {number // GROUP: t.group.replace(TASK.decode(), f"{number // GROUP:08d}") for number, _, t, _ in rows}
    with db.write() as connection:
        connection.execute(groups.insert(), [{"position": 1 + at, "id": id, **group} for at, id in positions.items()])
        connection.execute(trajectories.insert(), [_row(*row, now=now) for row in rows])
        event = {"kind": "bench.filled", "subject": f"batch-{rows[0][0]}", "data": "{}", "created_at": now}
        connection.execute(EVENTS.table.insert(), [event])


def _row(number: int, run: str, t: Trajectory, payload: bytes, *, now: float) -> dict[str, Any]:
    task = t.task
    return {
        "position": number + 1,
        "id": t.id.replace(RUN.decode(), run).replace(NUMBER.decode(), f"{number:08d}"),
        "group_position": 1 + number // GROUP,
        "late": False,
        "environment": task.environment,
        "family": task.family,
        "level": task.level,
        "source": t.source.value,
        "ending": t.end.value,
        "success": t.reward.success,
        "run": run,
        "first_version": t.first_version,
        "last_version": t.last_version,
        "created_at": now,
        "payload": payload,
    }


def trajectory(kind: int, rng: np.random.Generator) -> Trajectory:
    """A small trajectory of two turns: a mould for many."""
    success = float(rng.random() < 0.4)
    number = NUMBER.decode()
    run = RUN.decode()
    task = Task(ENVIRONMENTS[kind % 5], "1.0.0", f"family-{kind % 7}", 1 + kind % 10, kind)
    question = f"What is {number} + 1? Write the answer into <answer> tags."
    answer = f"Attempt {number}: the sum is {rng.integers(1000)}."
    turns = (
        Turn((Message("user", question),), answer, Reward(), _tokens(24, rng)),
        Turn((Message("user", "Are you sure?"),), "Yes. <answer>2</answer>", Reward(success), _tokens(24, rng)),
    )
    return Trajectory(
        id=f"{run}/{number}",
        task=task,
        turns=turns,
        end=End.TERMINATED,
        reward=Reward(success + 0.1, {"correctness": success}, success),
        group=f"group-{TASK.decode()}",
        group_size=GROUP,
        first_version=kind % 100,
        last_version=kind % 100,
        run=run,
    )


def _tokens(count: int, rng: np.random.Generator) -> Tokens:
    mask = np.arange(count) >= count // 2
    logprobs = np.where(mask, -rng.exponential(1.0, count), 0).astype(np.float32)
    return Tokens(rng.integers(0, 500, count).astype(np.int32), mask, logprobs, np.where(mask, 3, -1).astype(np.int32))


def long_trajectory() -> Trajectory:
    """100,000 tokens in 100 turns."""
    rng = np.random.default_rng(1)
    words = "The quick brown fox jumps over the lazy dog. " * 100
    turns = tuple(
        Turn((Message("user", f"Part {n}"),), words, Reward(), _tokens(LONG_TOKENS // 100, rng)) for n in range(100)
    )
    return replace(trajectory(0, rng), id="long", run="run-0000", turns=turns, group="long", group_size=1)


@contextlib.contextmanager
def _console(url: str) -> Iterator[str]:
    command = [sys.executable, "-P", "-m", "loomrl", "console", "--store", url, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process.stderr.readline().rpartition(" on ")[2].strip()
    finally:
        process.terminate()
        process.wait(timeout=30)


def _paths(size: ConsoleSize) -> dict[str, list[str]]:
    rng = random.Random(2)
    ids = [rng.randrange(size.trajectories) for _ in range(size.requests)]
    runs = [_run_of(number, size=size) for number in ids]
    long = f"hub=run-0000&place={size.trajectories + GROUP + 1}"
    return {
        "runs": [f"/runs?sort={rng.choice(('started', 'name', 'headline', 'status'))}" for _ in ids],
        "runs_filtered": [f"/runs?text=-{number % 97}&status=finished" for number in ids],
        "run": [f"/runs/{run}" for run in runs],
        "run_metrics": [f"/runs/{run}/metrics.json" for run in runs],
        "trajectories": [f"/trajectories?before={1 + number}" for number in ids],
        "trajectories_of_run": [f"/trajectories?run={run}" for run in runs],
        "trajectories_of_family": [
            f"/trajectories?environment=Code&family=family-{number % 7}&level_min=9" for number in ids
        ],
        "trajectories_by_bounds": [
            f"/trajectories?reward_min=1&version_min={number % 90}&version_max={number % 90}" for number in ids
        ],
        "trajectories_none_match": ["/trajectories?reward_min=1000" for _ in ids],
        "trajectories_with_text": [f"/trajectories?text=Attempt {number:08d}:" for number in ids],
        "viewer": [f"/trajectories/{run}/{number:08d}" for run, number in zip(runs, ids, strict=True)],
        "viewer_100k_tokens": ["/trajectories/long" for _ in ids],
        "tokens_100k": [f"/tokens.json?{long}&from={1000 * (number % 96)}" for number in ids],
        "policies": [f"/policies?run={run}" for run in runs],
        "policy": [f"/policies/{run}/1" for run in runs],
        "audit": [f"/audit?before={1 + number % (3 * size.runs)}" for number in ids],
        "feedback": ["/feedback" for _ in ids],
    }


def _pages(client: httpx.Client, size: ConsoleSize) -> dict[str, Any]:
    found = {}
    for name, paths in _paths(size).items():
        _open(client, paths[0])
        times = [seconds(partial(_open, client, path)) for path in paths]
        found[name] = round(1000 * float(np.percentile(times, 95)), 1)
    return {"page_ms_p95": found, "slowest_page_ms_p95": max(found.values())}


def _open(client: httpx.Client, path: str) -> None:
    client.get(path, headers={"accept": "text/html"}).raise_for_status()


def _delay(url: str, address: str, size: ConsoleSize) -> dict[str, float]:
    """From the return of a commit to its event at a client."""
    arrived: dict[int, float] = {}
    ready = threading.Event()

    def watch() -> None:
        with httpx.stream("GET", f"{address}/live?kind=metrics&subject=live", timeout=PATIENCE_S) as stream:
            for line in stream.iter_lines():
                if line == ": live":
                    ready.set()
                if line.startswith("data: "):
                    arrived[len(arrived)] = time.perf_counter()
                    if len(arrived) == size.commits:
                        return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    ready.wait(PATIENCE_S)
    time.sleep(0.5)
    delays = []
    with open_store(url) as db:
        for number in range(size.commits):
            append_metrics(db, new_metrics("live", number + 1, {"success": 0.5}), at=time.time())
            committed = time.perf_counter()
            deadline = time.perf_counter() + PATIENCE_S
            while number not in arrived and time.perf_counter() < deadline:
                time.sleep(0.001)
            delays.append(1000 * (arrived[number] - committed))
    watcher.join(PATIENCE_S)
    return {
        "live_delay_ms": round(statistics.median(delays), 1),
        "live_delay_ms_p95": round(float(np.percentile(delays, 95)), 1),
    }
