"""The gate asks where a version comes from: a planted fault for each rule, and nothing moves."""

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from loomrl.config import ControlExperiment
from loomrl.config.suite import ControlSuite, LanguageSuite
from loomrl.control.environment import snapshot
from loomrl.control.policy import ControlPolicy
from loomrl.experiments.gate.judge import judge_version
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome
from tests.release.recorded import RecordedRun
from tests.release.test_gate_control import GOOD, export
from tests.serving.service_support import record, start

CARTPOLE = {"environment": {"id": "CartPole-v1"}, "episodes": 1, "low": 0, "high": 500}
SUM = {"environment": {"id": "Math", "families": ["arithmetic.sum"]}, "episodes": 1, "levels": [1]}


def suite(**provenance: Any) -> ControlSuite:
    tree = {"name": "origin", "version": "1.0.0", "kind": "control", "benchmarks": [CARTPOLE]}
    return ControlSuite.parse({**tree, "provenance": provenance})


@pytest.fixture
def good(tmp_path: Path) -> ControlPolicy:
    return ControlPolicy.load(Path(export(tmp_path / "good", GOOD)))


def refused(verdict: StoredVerdict) -> str:
    """The reason for the refusal, which is of this check alone."""
    assert verdict.outcome is VerdictOutcome.REFUSED
    (check,) = [check for check in verdict.report["checks"] if check["state"] == "failed"]
    assert check["name"] == "provenance"
    return str(check["reason"])


def test_version_of_a_recorded_run_with_clean_code_passes(tmp_path: Path, db: LoomDB, good: ControlPolicy) -> None:
    run = RecordedRun(db, tmp_path)
    last = run.record(good, 1, parent=run.record(good, 0))
    verdict = judge_version(last, None, suite(environments=["CartPole-v1@*"]), db)
    assert verdict.outcome is VerdictOutcome.ALLOWED
    (check,) = [check for check in verdict.report["checks"] if check["name"] == "provenance"]
    assert check["figures"]["versions"] == ["run/1", "run/0"]


@pytest.mark.parametrize(
    ("codes", "rules", "said"),
    [
        (("c", "c-dirty"), {}, r"run/1: made by changed code \(c-dirty\)"),
        (("c-dirty", "c"), {}, r"run/0: made by changed code"),
        (("c", ""), {}, r"run/1: the code that made it is unknown"),
        (("c", "c"), {"environments": ["Pendulum*"]}, r"run/1: trained on CartPole-v1@.*, allowed are Pendulum\*"),
    ],
)
def test_planted_fault_of_an_origin_is_refused_by_name(
    codes: tuple[str, str], rules: dict[str, Any], said: str, tmp_path: Path, db: LoomDB, good: ControlPolicy
) -> None:
    run = RecordedRun(db, tmp_path)
    last = run.record(good, 1, parent=run.record(good, 0, code=codes[0]), code=codes[1])
    reason = refused(judge_version(last, None, suite(**rules), db))
    assert re.search(said, reason), reason


def test_lineage_with_a_gap_is_refused(tmp_path: Path, db: LoomDB, good: ControlPolicy) -> None:
    run = RecordedRun(db, tmp_path)
    last = run.record(good, 1, parent=run.record(good, 0))
    with db.write() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.execute(delete(POLICIES.table).where(POLICIES.c.id == "run/0"))
    assert "run/1: its parent run/0 is not on record" in refused(judge_version(last, None, suite(), db))


def test_policy_that_no_run_made_is_refused_where_the_suite_says_so(tmp_path: Path, db: LoomDB) -> None:
    assert "no recorded run made it" in refused(judge_version(export(tmp_path / "it", GOOD), None, suite(), db))


@pytest.mark.parametrize("recorded", ["CartPole-v1@0.0.1", ""])
def test_control_version_whose_environment_is_not_as_it_was_is_refused(
    recorded: str, tmp_path: Path, db: LoomDB, good: ControlPolicy
) -> None:
    (now,) = snapshot(ControlExperiment.parse({"kind": "control", "name": "x"}).environment)
    gone = recorded or now
    run = RecordedRun(db, tmp_path, environments={gone: "another hash"})
    reason = refused(judge_version(run.record(good, 1), None, suite(), db))
    assert reason == f"environment {gone} no longer exists as it was"


def test_language_version_whose_environment_version_is_gone_is_refused(tmp_path: Path, db: LoomDB) -> None:
    record(db, start(db, tmp_path, environments={"Math@0.0.1": "a hash"}), 1)
    tree = {"name": "origin", "version": "1.0.0", "benchmarks": [SUM], "max_tokens": 1, "provenance": {}}
    reason = refused(judge_version("run/1", None, LanguageSuite.parse(tree), db))
    assert reason == "environment Math@0.0.1 no longer exists as it was"
