"""Training lets checkpoints go, but none that an endpoint serves or may go back to."""

from pathlib import Path

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.run.ledger import Ledger
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.policies import move_policy
from loomrl.types import Stage
from tests.release.recorded import RecordedRun


def test_training_keeps_what_is_served_and_what_was_released(store: LoomDB, tmp_path: Path) -> None:
    run = RecordedRun(store, tmp_path)
    ledger = Ledger(
        experiment=run.experiment,
        run=run.id,
        db=store,
        checkpoints=Checkpoints(open_artifacts(run.experiment.artifact_url), run.id),
        clock=lambda: 1.0,
        code="c",
        file="course.json",
        data=lambda state: {},
    )

    def commit(number: int) -> None:
        folder = tmp_path / f"made-{number}"
        folder.mkdir()
        ledger.offer(number, -number)
        ledger.commit(number, folder, {})

    commit(0)
    commit(1)
    set_endpoint(store, "e", [Arm(name="stable", policy="run/1")], at=1.0)
    set_endpoint(store, "f", [Arm(name="stable", policy="another-run/3")], at=1.0)
    commit(2)
    move_policy(store, "run/2", stage=Stage.RETIRED, moved_at=1.0, reason="released, and rolled back")
    for number in (3, 4, 5):
        commit(number)
    assert ledger.kept == {"best": 0, "last": 5}
    assert ledger.checkpoints.numbers() == [0, 1, 2, 5]
