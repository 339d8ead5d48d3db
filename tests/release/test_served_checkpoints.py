"""Training lets checkpoints go, but none that an endpoint serves, may go back to, or that another process made."""

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from loomrl.errors import RunTaken
from loomrl.experiments.cli import app
from loomrl.run.ledger import VersionLedger
from loomrl.run.version import copied
from loomrl.serving.retention.checkpoint import DELETED, age_checkpoints
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.events import EVENTS
from loomrl.store.policies import move_policy
from loomrl.store.runs import POLICIES, RUNS, Claim, RunStatus, finish_run, start_run
from loomrl.types import Stage
from tests.release.recorded import RecordedRun


def a_ledger(run: RecordedRun, db: LoomDB, claim: Claim, **more: Any) -> VersionLedger:
    return VersionLedger(
        experiment=run.experiment,
        db=db,
        clock=lambda: 1.0,
        claim=claim,
        file="course.json",
        data=lambda state: {},
        **more,
    )


def commit(ledger: VersionLedger, folder: Path, scores: Mapping[int, float]) -> None:
    """A checkpoint for each of these numbers."""
    for number, score in scores.items():
        ledger.offer(number, score)
        ledger.commit(number, a_folder(folder, "made"), {})


def retire(db: LoomDB, version: str) -> None:
    with db.write() as connection:
        move_policy(connection, version, stage=Stage.RETIRED, moved_at=1.0, reason="released, and rolled back")


def a_folder(into: Path, text: str) -> Path:
    """With a file of this text."""
    folder = into / uuid.uuid4().hex
    folder.mkdir()
    (folder / "weights").write_text(text)
    return folder


def test_training_keeps_what_is_served_and_what_was_released(store: LoomDB, tmp_path: Path) -> None:
    run = RecordedRun(store, tmp_path)
    ledger = a_ledger(run, store, run.claim)
    commit(ledger, tmp_path, {0: 0, 1: -1})
    set_endpoint(store, "e", [Arm(name="stable", policy="run/1")], at=1.0)
    set_endpoint(store, "f", [Arm(name="stable", policy="another-run/3")], at=1.0)
    commit(ledger, tmp_path, {2: -2})
    retire(store, "run/2")
    commit(ledger, tmp_path, {3: -3, 4: -4, 5: -5})
    assert ledger.kept == {"best": 0, "last": 5}
    assert ledger.checkpoints.numbers() == [0, 1, 2, 5]


def test_of_equally_good_versions_the_last_is_the_best(store: LoomDB, tmp_path: Path) -> None:
    run = RecordedRun(store, tmp_path)
    ledger = a_ledger(run, store, run.claim)
    for number, score in enumerate([None, 9.0, 500.0, 500.0, 12.0, None]):
        ledger.offer(number, score)
        ledger.commit(number, a_folder(tmp_path, "made"), {})
    assert ledger.kept == {"best": 3, "last": 5}


def aged(db: LoomDB, *, at: float, is_dry: bool = False) -> list[str]:
    pruned = age_checkpoints(db, days=90, now=at, is_dry=is_dry)
    assert pruned.failed == {}
    return pruned.deleted


def test_ageing_keeps_the_best_the_last_and_what_was_released_or_begun_from(store: LoomDB, tmp_path: Path) -> None:
    scores = {0: 0.1, 1: 0.9, 2: 0.5, 3: 0.4, 4: 0.2}
    run = RecordedRun(store, tmp_path)
    ledger = a_ledger(run, store, run.claim, held=lambda state: scores)
    commit(ledger, tmp_path, scores)
    retire(store, "run/2")
    child = RecordedRun(store, tmp_path, id="child")
    begun = a_ledger(child, store, child.claim, parent="run/3")
    begun.commit(0, a_folder(tmp_path, "made"), {})
    day = 86_400.0
    assert aged(store, at=1000 * day) == []  # it still RUNS
    finish_run(store, run.id, status=RunStatus.FINISHED, finished_at=10 * day)
    assert aged(store, at=99 * day) == []
    assert aged(store, at=101 * day, is_dry=True) == ["run/0"]
    assert ledger.checkpoints.numbers() == [0, 1, 2, 3, 4]
    assert aged(store, at=101 * day) == ["run/0"]
    assert ledger.checkpoints.numbers() == [1, 2, 3, 4]
    assert begun.checkpoints.numbers() == [0]
    assert aged(store, at=102 * day) == []
    assert POLICIES.require(store, "run/0").number == 0
    assert [event.subject for _, event in EVENTS.read(store, kind=DELETED)] == ["run/0"]


def test_prune_names_what_it_would_delete_and_then_deletes_it(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(sqlite_url) as db:
        run = RecordedRun(db, tmp_path)
        ledger = a_ledger(run, db, run.claim)
        commit(ledger, tmp_path, {0: 0, 1: 1, 2: 2})
        finish_run(db, run.id, status=RunStatus.FINISHED, finished_at=1.0)
    for is_dry, left in ((True, [0, 2]), (False, [2])):
        app(["policies", "prune", "--store", sqlite_url, "--json", *["--dry-run"] * is_dry], standalone_mode=False)
        said = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert said == {"deleted": ["run/0"], "failed": {}, "dry_run": is_dry}
        assert ledger.checkpoints.numbers() == left


def test_ageing_leaves_a_run_alone_whose_best_checkpoint_is_not_known(store: LoomDB, tmp_path: Path) -> None:
    run = RecordedRun(store, tmp_path)
    ledger = a_ledger(run, store, run.claim)
    commit(ledger, tmp_path, {0: 0, 1: -1})
    finish_run(store, run.id, status=RunStatus.FINISHED, finished_at=1.0)
    ledger.checkpoints.delete(ledger.checkpoints.url(1))
    assert aged(store, at=1e9) == []
    assert ledger.checkpoints.numbers() == [0]


def test_ageing_names_a_run_that_it_cannot_read_and_goes_on(store: LoomDB, tmp_path: Path) -> None:
    for name in ("run", "other"):
        run = RecordedRun(store, tmp_path, id=name)
        ledger = a_ledger(run, store, run.claim, held=lambda state: (0, 1))
        commit(ledger, tmp_path, {0: 0, 1: 1, 2: 2})
        finish_run(store, run.id, status=RunStatus.FINISHED, finished_at=1.0)
    with store.write() as connection:
        connection.execute(update(RUNS.table).where(RUNS.c.id == "other").values(resolved="kind: unknown"))
    pruned = age_checkpoints(store, days=90, now=1e9)
    assert pruned.deleted == ["run/0", "run/1"]
    assert list(pruned.failed) == ["other"]


class Trainer:
    """A process that leads the run: it resumes, and makes versions whose weights are its name."""

    def __init__(self, run: RecordedRun, db: LoomDB, folder: Path, name: str, claim: Claim) -> None:
        self.name, self._folder = name, folder
        self.pauses: Callable[[], None] = lambda: None
        """Called once between a checkpoint's artifact and its record."""
        self.ledger = a_ledger(run, db, claim, settle=lambda state: self._paused())
        self.begun = self.ledger.resume(a_folder(folder, "copies"))
        if self.begun is not None:
            self.ledger.believe(self.begun[1])

    def commit(self, number: int) -> None:
        self.ledger.commit(number, a_folder(self._folder, self.name), {})

    def _paused(self) -> None:
        pauses, self.pauses = self.pauses, lambda: None
        pauses()


def test_a_trainer_that_was_given_up_for_dead_and_comes_back_changes_nothing(store: LoomDB, tmp_path: Path) -> None:
    """It had stored a checkpoint when it froze; meanwhile another resumed the run and went further."""
    run = RecordedRun(store, tmp_path)
    old = Trainer(run, store, tmp_path, "old", run.claim)
    old.commit(0)
    old.commit(1)
    made: list[Trainer] = []

    def another() -> None:
        new = Trainer(run, store, tmp_path, "new", start_run(store, RUNS.require(store, run.id)))
        assert new.begun[1]["done"] == 2  # the old one's, which it can settle
        new.commit(3)
        new.commit(4)
        made.append(new)

    old.pauses = another
    with pytest.raises(RunTaken):
        old.commit(2)
    with pytest.raises(RunTaken):
        old.commit(3)
    assert sorted(version.number for version in POLICIES.latest(store, run=run.id)) == [0, 1, 2, 3, 4]
    assert (copied(POLICIES.require(store, "run/4"), store) / "weights").read_text() == "new"
    again = Trainer(run, store, tmp_path, "third", start_run(store, RUNS.require(store, run.id)))
    assert (again.begun[0] / "weights").read_text() == "new"


def test_two_trainers_that_make_the_same_version_do_not_touch_each_others(store: LoomDB, tmp_path: Path) -> None:
    run = RecordedRun(store, tmp_path)
    old = Trainer(run, store, tmp_path, "old", run.claim)
    old.commit(0)
    new = Trainer(run, store, tmp_path, "new", start_run(store, RUNS.require(store, run.id)))
    old.ledger.checkpoints.put(1, a_folder(tmp_path, "old"))  # it looked at its claim just before
    new.commit(1)
    assert (copied(POLICIES.require(store, "run/1"), store) / "weights").read_text() == "new"
    for number in (2, 3):
        new.commit(number)
    old.ledger.checkpoints.prune({0, 1})  # it was about to
    assert new.ledger.checkpoints.numbers() == [0, 3]
