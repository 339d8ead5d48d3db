"""Releases with the command line alone, on a service that `loomrl serve` runs."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loomrl.store import open_store
from loomrl.store.endpoints import show_endpoint
from tests.needs import needs
from tests.serving.control_support import control_policy
from tests.serving.releasing import Load, Manner, rollback_s

pytestmark = [needs("HAProxy"), pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(600)]
STEPS = [{"share": share, "minutes": 0.05, "units": 60} for share in (0.1, 0.25, 0.5)]
PLAN = {
    "steps": [*STEPS, {"share": 1.0, "minutes": 0.05, "units": 0}],
    "guards": [
        {"metric": "error", "better": "lower", "margin": 0.05, "limit": 0.05, "waits": "always"},
        {"metric": "reward", "better": "higher", "margin": 0.05, "waits": "always"},
    ],
}
REWARDS = {"old": 0.7, "worse": 0.4, "better": 0.8}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of `loomrl serve old`."""
    command = [sys.executable, "-m", "loomrl", "serve", "serving/control", "arms.0.what=old", "--port", "0", "--json"]
    with (folder / "err").open("w") as err:
        server = subprocess.Popen(
            [*command, "--endpoint", "cart"], stdout=subprocess.PIPE, stderr=err, text=True, cwd=folder
        )
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline() or f'"{(folder / "err").read_text()[-2000:]}"')
        yield told["url"]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)


def typed(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of `loomrl release WORDS`."""
    command = [sys.executable, "-m", "loomrl", "release", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=240, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


async def test_a_worse_version_comes_back_and_a_better_one_gets_all_of_the_traffic(tmp_path: Path) -> None:
    assert "LOOMRL_STORE" not in os.environ
    for seed, name in enumerate(REWARDS):
        control_policy(seed=seed).save(tmp_path / name)
    (tmp_path / "plan.yaml").write_text(json.dumps(PLAN))
    how = ("--to", "cart", "--plan", "plan.yaml", "--no-gate", "a test", "--watch")
    with serving(tmp_path) as url, open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        load = Load(url, {name: Manner(reward=reward) for name, reward in REWARDS.items()}, model="cart")
        calls = asyncio.create_task(load.run(callers=4))
        status, worse = await asyncio.to_thread(typed, tmp_path, "worse", *how)
        assert (status, worse["state"]) == (1, "rolled_back")
        assert "worse: reward" in worse["reason"]
        assert show_endpoint(db, "cart").stable.policy == str(tmp_path / "old")
        await asyncio.sleep(1.0)
        print(f"rollback_s {rollback_s(load, db, 'cart'):.3f}; {worse['reason']}")
        assert rollback_s(load, db, "cart") < 2.0
        await asyncio.to_thread(typed, tmp_path, "show", "cart", "--picture", "worse.svg")
        status, better = await asyncio.to_thread(typed, tmp_path, "better", *how)
        assert (status, better["state"]) == (0, "done"), better["reason"]
        assert show_endpoint(db, "cart").stable.policy == str(tmp_path / "better")
        await asyncio.to_thread(typed, tmp_path, "show", "cart", "--picture", "better.svg")
        print([(row["at"] - better["history"][0]["at"], row["reason"]) for row in better["history"]])
        load.is_over = True
        await calls
    assert {answer.status for answer in load.answers} == {200}
    for picture, said in (("worse.svg", "rolled back"), ("better.svg", "100 %")):
        assert said in (tmp_path / picture).read_text()
