"""Runs that are started, stopped and resumed at the console."""

import getpass
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loomrl.experiments.coordinate.work import LocalLauncher
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.runs import RUNS, RunStatus, asked_to_stop, finish_run, start_run
from tests.console.console_samples import new_run
from tests.console.console_support import Browser, console, key

POLE = "control/cartpole"


def ended(db: LoomDB, id: str, stopped: str) -> None:
    start_run(db, new_run(id))
    finish_run(db, id, status=RunStatus.FINISHED, finished_at=time.time(), result={"stopped": stopped})


def test_operators_stop_a_run_with_a_reason_and_others_may_not(tmp_path: Path) -> None:
    with console(f"sqlite:///{tmp_path}/loom.db") as (source, app):
        start_run(source.db, new_run("r"))
        start_run(source.db, new_run("s", kind="sweep"))
        plain, _ = key(source, "view")
        boss, _ = key(source, "operate")
        viewer, operator = Browser(app), Browser(app)
        viewer.sign_in(plain)
        operator.sign_in(boss)
        assert "/runs/r/stop" not in viewer.get("/runs/r").text
        assert viewer.submit("/runs/r/stop", page="/runs", why="x").status_code == 403
        assert "Say why" in operator.submit("/runs/r/stop", page="/runs/r", why=" ").text
        assert operator.submit("/runs/s/stop", page="/runs", why="x").status_code == 400
        assert operator.submit("/runs/none/stop", page="/runs", why="x").status_code == 404
        assert asked_to_stop(source.db, "r") is None
        assert operator.submit("/runs/r/stop", page="/runs/r", why="<b>diverged</b>").status_code == 303
        wish = asked_to_stop(source.db, "r")
        assert wish is not None
        assert wish.data == {"by": "ann", "why": "<b>diverged</b>"}
        page = operator.get("/runs/r").text
        assert "ann asked it to stop" in page
        assert "&lt;b&gt;diverged" in page
        assert "/runs/r/stop" not in page
        start_run(source.db, new_run("r"))
        assert asked_to_stop(source.db, "r") is None, "a wish from before it was resumed"


def test_without_a_launcher_nothing_is_started_here(tmp_path: Path) -> None:
    with console(f"sqlite:///{tmp_path}/loom.db") as (source, app):
        ended(source.db, "r", "stopped by ann: lunch")
        browser = Browser(app)
        assert "/launch" not in browser.get("/runs").text
        assert "Resume" not in browser.get("/runs/r").text
        assert browser.get("/launch").status_code == 404
        assert browser.post("/runs/r/resume").status_code in (404, 405)


def test_what_cannot_be_started_is_said_on_the_form_and_nothing_is_left(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path}/loom.db", tmp_path / "launched"
    with console(url, launcher=LocalLauncher(url, folder)) as (source, app):
        ended(source.db, "over", "all 8 steps done")
        start_run(source.db, new_run("there"))
        browser = Browser(app)
        assert POLE in browser.get("/launch").text
        for overrides, name, said in [
            ("train.stepz=3", "", "Did you mean"),
            ("only words", "", "is no setting"),
            ("", "there", "is there already"),
            ("", "../../up", "an id has"),
        ]:
            answer = browser.submit("/launch", page="/launch", experiment=POLE, overrides=overrides, run=name)
            assert answer.status_code == 400
            assert said in answer.text
            assert overrides in answer.text
        assert "all 8 steps done" in browser.submit("/runs/over/resume", page="/launch").text
        assert browser.get("/launched/never").status_code == 404
        assert browser.get("/launched/..%2F..%2Fetc").status_code in (400, 404)
        assert not folder.exists()


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_is_started_stopped_and_resumed_in_the_browser(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loom.db"
    settings = ("train.steps=200000", f"train.folder={tmp_path}/runs", f"artifact_url={tmp_path}/artifacts")
    with console(url, launcher=LocalLauncher(url, tmp_path / "launched")) as (source, app):
        browser = Browser(app)

        def until(is_so: Callable[[], bool]) -> None:
            deadline = time.monotonic() + 240
            while not is_so():
                assert time.monotonic() < deadline, browser.get("/launched/pole").text
                time.sleep(0.1)

        def events(kind: str) -> int:
            return len(EVENTS.read(source.db, kind=kind, subject="pole"))

        def result() -> str:
            return str(RUNS.require(source.db, "pole").result["stopped"])

        sent = {"experiment": POLE, "overrides": "\n".join(settings), "run": "pole"}
        assert browser.submit("/launch", page="/launch", **sent).headers["location"] == "/launched/pole"
        until(lambda: events("run.started") == 1)
        assert browser.submit("/launch", page="/launch", **sent).status_code == 400, "it is running"
        browser.submit("/runs/pole/stop", page="/runs/pole", why="lunch")
        until(lambda: events("run.finished") == 1)
        assert result() == f"stopped by {getpass.getuser()}: lunch"
        while (answer := browser.submit("/runs/pole/resume", page="/runs/pole")).status_code == 400:
            assert "is being trained by a process" in answer.text  # which still ends its Ray
            time.sleep(0.2)
        assert answer.status_code == 303
        until(lambda: events("run.finished") == 2)
        assert not result().startswith("stopped by")
        assert "after" in browser.get("/launched/pole").text
        kinds = [event.kind for _, event in EVENTS.read(source.db, subject="pole")]
        assert [kind for kind in kinds if kind.endswith("_asked")] == [
            "run.start_asked",
            "run.stop_asked",
            "run.resume_asked",
        ]
