"""SIGKILL, again and again, of the hub, of producers and of the learner: nothing is lost, nothing trained twice."""

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from fault_parts import learn, produce, serve, traced

from tests.forks import FORKS

pytestmark = pytest.mark.system


class Victims:
    """Processes by role. One that is killed starts again at once."""

    def __init__(self, store_url: str, folder: Path, port: int) -> None:
        url = f"http://127.0.0.1:{port}"
        producers = {name: (produce, (url, folder / f"{name}.log", name)) for name in ("left", "right")}
        self._parts: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
            "hub": (serve, (store_url, port)),
            **producers,
            "learner": (learn, (url, folder)),
        }
        self.processes: dict[str, ForkServerProcess] = {}
        self._folder = folder

    def start(self, role: str) -> None:
        part, arguments = self._parts[role]
        self.processes[role] = FORKS.Process(target=traced, args=(self._trace(role), part, *arguments))
        self.processes[role].start()

    def kill(self, role: str) -> None:
        self.processes[role].kill()
        assert self.ended(role) == -signal.SIGKILL, f"{role} had ended by itself\n{self._trace(role).read_text()}"
        self.start(role)

    def _trace(self, role: str) -> Path:
        return self._folder / f"{role}.trace"

    def ended(self, role: str) -> int | None:
        self.processes[role].join(60)
        return self.processes[role].exitcode

    @contextmanager
    def running(self) -> Iterator[None]:
        for role in self._parts:
            self.start(role)
        try:
            yield
        finally:
            for process in self.processes.values():
                process.kill()
                process.join()

    def kill_any(self, rng: random.Random) -> None:
        self.kill(rng.choice(list(self._parts)))


def trained(folder: Path) -> list[str]:
    return [id for file in folder.glob("*.checkpoint") for id in json.loads(file.read_text())["trained"]]


def confirmed(folder: Path) -> list[str]:
    return [line for file in folder.glob("*.log") for line in file.read_text().split("\n")[:-1]]


def wait_until_confirmed(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(confirmed(folder)) < count:
        assert time.monotonic() < deadline, f"{len(confirmed(folder))} of {count} attempts got through"
        time.sleep(0.01)


def wait_until_drained(folder: Path, victims: Victims) -> None:
    """Producers stop after a whole group, so everything they had confirmed can be trained."""
    (folder / "stop").touch()
    assert [victims.ended(name) for name in ("left", "right")] == [0, 0]
    deadline = time.monotonic() + 60
    while lost := set(confirmed(folder)) - set(trained(folder)):
        assert time.monotonic() < deadline, f"lost: {sorted(lost)[:5]}"
        time.sleep(0.01)
    (folder / "drained").touch()
    assert victims.ended("learner") == 0


@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_trained_twice_under_kills(
    store_url: str, tmp_path: Path, unused_tcp_port: int, kills: int
) -> None:
    rng, victims = random.Random(kills), Victims(store_url, tmp_path, unused_tcp_port)
    with victims.running():
        for number in range(kills):
            wait_until_confirmed(tmp_path, 4 * number + 1)  # one that only begins has nothing to lose
            time.sleep(rng.uniform(0.0, 0.3))
            victims.kill_any(rng)
        wait_until_confirmed(tmp_path, kills + 1)
        wait_until_drained(tmp_path, victims)
    told, learnt = confirmed(tmp_path), trained(tmp_path)
    assert len(told) == len(set(told)) > kills
    assert len(learnt) == len(set(learnt)), "trained twice"
    assert set(learnt) == set(told)
    print(f"kills={kills} appended={len(told)} trained={len(learnt)}")
