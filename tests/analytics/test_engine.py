"""The engine: a long-lived process keeps its threads and descriptors, and whoever is killed leaves nothing behind."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from loomrl.analytics import engine as module
from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.feeding import Feeding
from loomrl.analytics.question import QueryLimits, open_asking
from loomrl.console.explore import SCREEN, Explorer
from loomrl.errors import AnalyticsError
from tests.analytics.world import World

ENDLESS = "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"
OWNER = f"""
import sys
from pathlib import Path
from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.place import StoreLocation
from loomrl.analytics.question import QueryLimits, open_asking

engine = ChdbEngine()
with open_asking(StoreLocation(folder=Path(sys.argv[1])), QueryLimits(timeout_s=600), engine=engine) as asking:
    print(engine.pid, flush=True)
    asking.ask("{ENDLESS}")
"""


def held() -> int:
    """The threads and descriptors of this process."""
    return sum(len(list(Path(f"/proc/self/{what}").iterdir())) for what in ("task", "fd"))


def is_gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "(zombie)" in status.read_text()


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_rounds_and_questions_leave_nothing_behind(fed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPENINGS", 2)
    explorer = Explorer(fed.url, str(fed.place.folder))
    before, pids = 0, set()
    with closing(explorer), closing(ChdbEngine()) as engine, Feeding(fed.url, fed.place, engine=engine) as feeding:
        for n in range(3):
            fed.serve(1, first=50 + n)
            assert feeding.round(check=False).loaded == {"trajectories": 1}
            assert explorer.ask("SELECT count() FROM trajectories", SCREEN).rows == [(20 + n,)]
            before = before or held()
            pids.add(engine.pid)
        assert held() <= before + 5, "less than one opening leaves behind"
    assert len(pids) == 2, "it is replaced"


def test_a_round_with_nothing_new_does_not_open_the_folder(fed: World) -> None:
    with Feeding(fed.url, fed.place, engine=fed.engine) as feeding:
        assert feeding.round().total == 0
        with open_asking(fed.place):
            assert feeding.round(check=False).total == 0
        fed.judge(["talk-9"], 0.5, round=7)
        assert feeding.round(check=False).loaded == {"rewards": 1}


def test_others_are_told_of_the_process_that_has_the_engine(full: World, engine: ChdbEngine) -> None:
    said = f"is in use by process {os.getpid()}:"
    hasty = QueryLimits(wait_s=0.0)
    with (
        open_asking(full.place, engine=engine),
        pytest.raises(AnalyticsError, match=said),
        open_asking(full.place, hasty),
    ):
        pass


def test_an_engine_that_is_killed_is_said_so_and_replaced(full: World, engine: ChdbEngine) -> None:
    with open_asking(full.place, QueryLimits(timeout_s=600), engine=engine) as asking:
        threading.Timer(0.3, os.kill, (engine.pid, signal.SIGKILL)).start()
        with pytest.raises(AnalyticsError, match="the process of ClickHouse ended with status -9"):
            asking.ask(ENDLESS)
    assert full.value("SELECT count() FROM rewards") == 13
    os.kill(engine.pid, signal.SIGKILL)
    wait_for(lambda: engine.pid is None)
    assert full.value("SELECT count() FROM rewards") == 13, "between two questions nobody notices"


def test_an_answer_that_nobody_waited_for_is_not_the_next_ones(
    full: World, engine: ChdbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with open_asking(full.place, engine=engine) as asking, monkeypatch.context() as patch:
        patch.setattr(pickle, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asking.ask("SELECT 1")
    assert full.value("SELECT 2") == 2


@pytest.mark.system
def test_an_engine_ends_in_the_middle_of_a_question_when_its_owner_is_killed(full: World, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(full.place.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        pid = int(owner.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        owner.kill()
    wait_for(partial(is_gone, pid))
    assert full.value("SELECT count() FROM rewards") == 13
