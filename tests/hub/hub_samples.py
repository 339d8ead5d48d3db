"""Trajectories, clocks and servers for the tests of the hub."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from loomrl.http.listen import Certificate, open_door
from loomrl.http.server import Limits, Server
from loomrl.hub import Hub, Lease
from loomrl.hub.client import HubClient
from loomrl.hub.hub import EnvironmentStats
from loomrl.types import End, Failure, Message, Reward, Task, Tokens, Trajectory, Turn

OpenHub = Callable[..., Hub]


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def attempt(id: str, group: str | None = None, **fields: Any) -> Trajectory:
    """A small trajectory; `environment`, `family`, `level`, `success` and `failed` are given directly."""
    environment, family = fields.pop("environment", "Math"), fields.pop("family", "algebra")
    task = Task(environment, "1.0.0", family, fields.pop("level", 1), 7, {"terms": 3})
    success = fields.pop("success", 1.0)
    reward = Reward(success + 0.1, {"correctness": success, "format": 0.1}, success)
    failure = Failure("environment", "ValueError", "boom") if fields.pop("failed", False) else None
    tokens = Tokens.of([5, 6, 151_000], [False, True, True], [0, -0.5, -1.25], [-1, 3, 3])
    return Trajectory(
        id=id,
        task=task,
        turns=(Turn((Message("user", "1 + 1 = ?"),), "<answer>2</answer>", reward, tokens),),
        end=End.FAILED if failure else End.TERMINATED,
        reward=reward,
        group=group or f"group of {id}",
        failure=failure,
        **fields,
    )


def attempts(group: str, size: int = 2, **fields: Any) -> list[Trajectory]:
    """All attempts of a group."""
    return [attempt(f"{group}/{index}", group, group_size=size, **fields) for index in range(size)]


def ids(groups: Sequence[Any]) -> list[str]:
    """The ids of groups or trajectories."""
    return [group.id for group in groups]


def take(hub: Hub, count: int, **more: Any) -> Lease:
    """A lease of the learner's, whose policy has the version 0."""
    return hub.lease(count, **{"version": 0, "consumer": "learner"} | more)


def math_of(hub: Hub) -> EnvironmentStats:
    """What the hub counts of the usual environment."""
    return hub.stats().environments["Math"]


@contextmanager
def served(
    app: ASGIApp,
    limits: Limits | None = None,
    *,
    ending: Callable[[], None] | None = None,
    certificate: Certificate | None = None,
) -> Iterator[str]:
    """The address of an application that runs in a thread."""
    door = open_door(port=0, certificate=certificate)
    server = Server(app, door.listeners, limits=limits, ending=ending, tls=door.tls)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield door.url
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def hub_command(folder: Path, port: int, *, descriptors: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """`loomrl hub` on a database in a folder, under `ulimit -n` if so asked, as soon as it answers."""
    command = [sys.executable, "-m", "loomrl", "hub", "--port", str(port), f"store_url=sqlite:///{folder}/loom.db"]
    limit = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
    process = subprocess.Popen([*limit, *command], stderr=subprocess.DEVNULL, text=True)
    try:
        with HubClient(f"http://127.0.0.1:{port}", patience_s=60) as client:
            client.stats()
        yield process
    finally:
        process.terminate()
        process.wait()
