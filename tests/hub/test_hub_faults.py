"""SIGKILL, again and again, of the hub, of producers and of the learner: nothing is lost, nothing trained twice."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

HERE = Path(__file__).parent


@dataclass
class Victims:
    """Processes by role. Whoever is killed starts again at once."""

    commands: dict[str, list[str]]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, role: str) -> None:
        self.processes[role] = subprocess.Popen([sys.executable, *self.commands[role]], cwd=HERE)

    def kill(self, role: str) -> None:
        self.processes[role].send_signal(signal.SIGKILL)
        assert self.processes[role].wait() == -signal.SIGKILL, f"{role} had ended by itself"
        self.start(role)


@contextmanager
def running(victims: Victims) -> Iterator[None]:
    for role in victims.commands:
        victims.start(role)
    try:
        yield
    finally:
        for process in victims.processes.values():
            process.kill()
            process.wait()


def commands(store_url: str, folder: Path, port: int) -> dict[str, list[str]]:
    url = f"http://127.0.0.1:{port}"
    producers = {
        name: [str(HERE / "fault_producer.py"), url, str(folder / f"{name}.log"), name] for name in ("left", "right")
    }
    learner = [str(HERE / "fault_consumer.py"), url, str(folder)]
    return {"hub": [str(HERE / "fault_hub.py"), store_url, str(port)], **producers, "learner": learner}


def trained(folder: Path) -> list[str]:
    return [id for file in folder.glob("*.checkpoint") for id in json.loads(file.read_text())["trained"]]


def confirmed(folder: Path) -> list[str]:
    return [line for file in folder.glob("*.log") for line in file.read_text().split("\n")[:-1]]


def wait_until_confirmed(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(confirmed(folder)) < count:
        assert time.monotonic() < deadline, f"{len(confirmed(folder))} of {count} attempts got through"
        time.sleep(0.05)


def wait_until_drained(folder: Path, victims: Victims) -> None:
    """Producers stop after a whole group, so everything they had confirmed can be trained."""
    (folder / "stop").touch()
    for name in ("left", "right"):
        assert victims.processes[name].wait(60) == 0
    deadline = time.monotonic() + 60
    while set(confirmed(folder)) - set(trained(folder)):
        assert time.monotonic() < deadline, f"lost: {sorted(set(confirmed(folder)) - set(trained(folder)))[:5]}"
        time.sleep(0.05)
    (folder / "drained").touch()
    assert victims.processes["learner"].wait(60) == 0


def kill_often(store_url: str, folder: Path, port: int, *, kills: int) -> None:
    rng = random.Random(kills)
    victims = Victims(commands(store_url, folder, port))
    started = time.monotonic()
    with running(victims):
        wait_until_confirmed(folder, 1)
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, 0.9))
            victims.kill(rng.choice(list(victims.commands)))
        wait_until_confirmed(folder, kills + 1)
        wait_until_drained(folder, victims)
    told, learnt = confirmed(folder), trained(folder)
    assert len(told) == len(set(told)) > kills
    assert len(learnt) == len(set(learnt)), "trained twice"
    assert set(learnt) == set(told)
    print(f"kills={kills} appended={len(told)} trained={len(learnt)} seconds={time.monotonic() - started:.0f}")


def test_nothing_is_lost_or_trained_twice_under_a_few_kills(
    store_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    kill_often(store_url, tmp_path, unused_tcp_port, kills=6)


@pytest.mark.slow
def test_nothing_is_lost_or_trained_twice_under_a_hundred_kills(
    store_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    kill_often(store_url, tmp_path, unused_tcp_port, kills=100)
