import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

import loomrl
from loomrl.config import Experiment
from loomrl.errors import RunTaken, StoreError
from loomrl.load import dump
from loomrl.store import LoomDB
from loomrl.store.deployments import Deployment, deploy
from loomrl.store.events import EVENTS
from loomrl.store.policies import Evaluation, lineage, move_policy, record_evaluation, record_policy
from loomrl.store.runs import POLICIES, RUNS, Run, RunStatus, code_revision, finish_run, hold, start_run
from loomrl.types import PolicyVersion, Stage, Verdict

RUN = Run(
    id="run-1",
    name="math",
    kind="train",
    experiment="e" * 64,
    resolved="algorithm: {kind: grpo}\n",
    code="abc-dirty",
    environments={"Math@1.0.0": "5" * 64},
    started_at=10.0,
)


def policy(number: int, parent: str | None = None, **changes: Any) -> PolicyVersion:
    values: dict[str, Any] = {
        "id": f"p{number}",
        "number": number,
        "url": f"file:///p{number}",
        "run": "run-1",
        "algorithm": "grpo",
        "experiment": "e" * 64,
        "parent": parent,
        "data": {"leases": [f"lease-{number}"]},
        "code": "abc-dirty",
        "created_at": 20.0 + number,
    }
    return PolicyVersion(**(values | changes))


def test_a_run_is_what_was_started_until_it_is_finished(store: LoomDB) -> None:
    start_run(store, RUN)
    assert RUNS.require(store, "run-1") == RUN
    with pytest.raises(StoreError, match=r"'rum-1'.*Did you mean 'run-1'"):
        finish_run(store, "rum-1", status=RunStatus.FINISHED, finished_at=99.0)
    finish_run(store, "run-1", status=RunStatus.FINISHED, finished_at=99.0, result={"reward": 0.5})
    ended = replace(RUN, status=RunStatus.FINISHED, finished_at=99.0, result={"reward": 0.5})
    assert RUNS.require(store, "run-1") == ended
    assert [event.kind for _, event in EVENTS.read(store, subject="run-1")] == ["run.started", "run.finished"]


def test_a_resumed_run_keeps_its_beginning(store: LoomDB) -> None:
    start_run(store, RUN)
    finish_run(store, "run-1", status=RunStatus.FAILED, finished_at=50.0)
    start_run(store, replace(RUN, code="def", started_at=60.0))
    resumed = RUNS.require(store, "run-1")
    assert (resumed.status, resumed.code) == (RunStatus.RUNNING, "def")
    assert (resumed.started_at, resumed.finished_at) == (10.0, None)
    kinds = [event.kind for _, event in EVENTS.read(store, subject="run-1")]
    assert kinds == ["run.started", "run.failed", "run.resumed"]


def test_who_resumed_a_run_last_leads_it_and_who_led_it_before_writes_nothing_more(store: LoomDB) -> None:
    first = start_run(store, RUN)
    hold(store, first)
    record_policy(store, policy(1), claim=first)
    second = start_run(store, replace(RUN, started_at=60.0))
    hold(store, second)
    for write in (
        lambda: hold(store, first),
        lambda: record_policy(store, policy(2), claim=first),
        lambda: finish_run(store, "run-1", status=RunStatus.FAILED, finished_at=70.0, claim=first),
    ):
        with pytest.raises(RunTaken, match=r"run 'run-1': was resumed on .* at Thu Jan  1 00:01:00 1970"):
            write()
    assert [version.id for version in POLICIES.latest(store)] == ["p1"]
    assert RUNS.require(store, "run-1").status is RunStatus.RUNNING
    record_policy(store, policy(2), claim=second)
    finish_run(store, "run-1", status=RunStatus.FINISHED, finished_at=80.0, claim=second)
    hold(store, second)


def test_a_run_is_not_resumed_with_another_experiment(store: LoomDB) -> None:
    plain = Experiment(name="sums")
    begun = replace(RUN, experiment=plain.sha256, resolved=dump(plain))
    other = plain.override({"seed": 5})
    start_run(store, begun)
    with pytest.raises(StoreError, match=rf"{plain.sha256}, now {other.sha256}: seed=5, which was 0.*Start a new run"):
        start_run(store, replace(begun, experiment=other.sha256, resolved=dump(other)))


def test_a_policy_is_stored_once(store: LoomDB) -> None:
    start_run(store, RUN)
    record_policy(store, policy(1))
    record_policy(store, policy(1))
    assert POLICIES.require(store, "p1") == policy(1)
    assert len(EVENTS.read(store, kind="policy.made")) == 1
    with pytest.raises(StoreError, match="url="):
        record_policy(store, policy(1, url="file:///other"))
    with pytest.raises(StoreError, match="taken by 'p1'"):
        record_policy(store, policy(1, id="q1"))
    assert POLICIES.require(store, "p1") == policy(1)
    with store.write() as connection:
        move_policy(connection, "p1", stage=Stage.CANARY, moved_at=30.0, reason="gate passed")
    record_policy(store, policy(1))
    assert POLICIES.require(store, "p1").stage is Stage.CANARY, "a repeat after a move is still a repeat"
    (_, moved), *_ = EVENTS.read(store, kind="policy.moved")
    assert moved.data == {"from": "candidate", "to": "canary", "reason": "gate passed"}


def test_a_policy_needs_its_run_and_its_parent(store: LoomDB) -> None:
    with pytest.raises(StoreError, match="runs has no id 'run-1'"):
        record_policy(store, policy(1))
    start_run(store, RUN)
    with pytest.raises(StoreError, match="policies has no id 'p0'"):
        record_policy(store, policy(1, parent="p0"))
    with pytest.raises(StoreError, match="policies has no id 'p0'"):
        lineage(store, "p0")
    assert POLICIES.latest(store) == []


def test_lineage_says_what_each_ancestor_was_made_from(store: LoomDB) -> None:
    start_run(store, RUN)
    record_policy(store, policy(1))
    record_policy(store, policy(2, "p1"))
    tuned = replace(RUN, id="run-2", name="tune", experiment="f" * 64, parent_policy="p2", environments={})
    start_run(store, tuned)
    record_policy(store, policy(3, "p2", run="run-2", experiment="f" * 64))
    record_policy(store, policy(4, "p3", run="run-2", experiment="f" * 64))
    judged = Evaluation(id="e1", policy="p3", report={"success": 0.9}, created_at=1.0)
    for _ in range(2):
        record_evaluation(store, judged)
    with pytest.raises(StoreError, match="Use null"):
        record_evaluation(store, replace(judged, id="e2", report={"success": float("nan")}))
    with store.write() as connection:
        for id in ("d1", "d2", "d1"):
            fields = {"stage": Stage.CANARY, "endpoint": "math", "share": 0.5, "verdict": Verdict(True)}
            deploy(connection, Deployment(id=id, policy="p3", created_at=1.0, **fields))
    tree = json.loads(json.dumps(lineage(store, "p3")))
    assert tree["id"] == "p3"
    assert [ancestor["id"] for ancestor in tree["ancestors"]] == ["p2", "p1"]
    assert tree["children"] == ["p4"]
    assert (tree["evaluations"], tree["deployments"]) == (["e1"], ["d1", "d2"])
    assert tree["made_from"]["run"] == {"id": "run-2", "name": "tune", "kind": "train", "parent_policy": "p2"}
    assert tree["ancestors"][0]["made_from"] == {
        "run": {"id": "run-1", "name": "math", "kind": "train", "parent_policy": None},
        "experiment": "e" * 64,
        "code": "abc-dirty",
        "data": {"leases": ["lease-2"]},
        "environments": {"Math@1.0.0": "5" * 64},
    }


def test_lineage_of_a_long_run_is_no_deeper(store: LoomDB) -> None:
    start_run(store, RUN)
    with store.write() as connection:
        chain = [policy(n, f"p{n - 1}" if n else None) for n in range(2000)]
        connection.execute(insert(POLICIES.table), [POLICIES.row(p) for p in chain])
    tree = lineage(store, "p1999")
    assert [ancestor["number"] for ancestor in tree["ancestors"]] == list(range(1998, -1, -1))
    assert json.dumps(tree)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    return subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True).stdout


def test_code_revision_is_the_commit_and_whether_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "loomrl" / "__init__.py"
    module.parent.mkdir()
    module.write_text("")
    monkeypatch.setattr(loomrl, "__file__", str(module))
    assert code_revision() == loomrl.__version__
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert code_revision() == commit
    module.write_text("changed = True\n")
    assert code_revision() == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert code_revision() == loomrl.__version__
