"""`loomrl gate`: a policy against a suite and a baseline, with the verdict on record."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from loomrl.config import ControlExperiment
from loomrl.config.suite import LanguageSuite, Suite
from loomrl.control.environment import snapshot
from loomrl.errors import LoomError
from loomrl.experiments.gate.control import play_control
from loomrl.experiments.gate.language import SuiteResult, play_language
from loomrl.experiments.gate.logged import check_logged_sessions
from loomrl.experiments.gate.party import Parties, find_parties
from loomrl.gym.registry import Registry
from loomrl.release.gate.benchmark import BenchmarkScores, benchmark, improvement, regression
from loomrl.release.gate.check import GateCheck, VersionOrigin, improvement_check, outcome_of, provenance, strategy_of
from loomrl.store import LoomDB
from loomrl.store.policies import lineage
from loomrl.store.runs import RUNS, code_revision, load_experiment, run_id
from loomrl.store.verdicts import StoredVerdict, record_verdict

SEEDS = 2**31


def judge_version(
    version: str,
    against: str | None,
    suite: Suite,
    db: LoomDB,
    *,
    logged: str | None = None,
    clock: Callable[[], float] = time.time,
) -> StoredVerdict:
    """Find both policies, play the suite, and record the verdict; `logged` is a data set of the baseline's sessions."""
    return judge(find_parties(version, against, suite, db), suite, db, logged=logged, clock=clock)


def judge(
    parties: Parties,
    suite: Suite,
    db: LoomDB,
    *,
    logged: str | None = None,
    clock: Callable[[], float] = time.time,
) -> StoredVerdict:
    """Play the suite, with fresh seeds unless it fixes one, and record the verdict."""
    began = clock()
    told = [] if logged is None else [check_logged_sessions(logged, parties, suite, db)]
    seed = secrets.randbelow(SEEDS) if suite.seed is None else suite.seed
    play: Any = play_language if isinstance(suite, LanguageSuite) else play_control
    played: SuiteResult = play(suite, parties.challenger, parties.baseline, db, seed=seed)
    found = improvement(played.scores, error_rate=suite.error_rate)
    checks = [
        *checks_of_scores(suite, played.scores),
        *told,
        *played.safety,
        *played.cost,
        *_origin(suite, parties, db),
    ]
    outcome = outcome_of(checks, needs_approval=bool(suite.approvers))
    strategy, share = strategy_of(outcome, found, checks)
    report = {
        "seed": seed,
        "suite": suite.model_dump(mode="json"),
        "checks": [check.as_dict() for check in checks],
        "scores": [scores.as_dict() for scores in played.scores],
        "improvement": None if found is None else found.mean,
        "strategy": {"name": strategy, "share": share},
        "approvers": list(suite.approvers),
        "environments": dict(played.snapshots),
        "code": code_revision(),
        "seconds": round(clock() - began, 3),
    }
    verdict = StoredVerdict(
        id=run_id(None, f"gate-{suite.name}"),
        policy=parties.challenger.key,
        fingerprint=parties.challenger.fingerprint,
        against=parties.baseline.key if parties.baseline else None,
        suite=suite.id,
        suite_hash=suite.sha256,
        outcome=outcome,
        report=report,
        created_at=clock(),
    )
    record_verdict(db, verdict)
    return verdict


def checks_of_scores(suite: Suite, every: Sequence[BenchmarkScores]) -> list[GateCheck]:
    """The checks that follow from the suite and the scores alone."""
    rates = {"error_rate": suite.error_rate, "may_fail": suite.may_fail}
    thresholds = [each.at_least for each in suite.benchmarks]
    checks = [benchmark(scores, at_least, **rates) for scores, at_least in zip(every, thresholds, strict=True)]
    if suite.regression is not None:
        checks.append(regression(every, suite.regression.margin, **rates))
    found = improvement(every, error_rate=suite.error_rate)
    return [*checks, improvement_check(found, least=suite.improvement)]


def _origin(suite: Suite, parties: Parties, db: LoomDB) -> list[GateCheck]:
    """The check of provenance, where the suite has one."""
    if suite.provenance is None:
        return []
    version = parties.challenger.version
    if version is None:
        return [provenance(suite.provenance, VersionOrigin(lineage=None))]
    tree = lineage(db, version)
    return [
        provenance(
            suite.provenance,
            VersionOrigin(lineage=tree, gone=_missing_environments(tree["made_from"]["run"]["id"], db)),
        )
    ]


def _missing_environments(id: str, db: LoomDB) -> list[str]:
    """Environment versions of a run that cannot be opened as they were recorded."""
    run = RUNS.require(db, id)
    experiment = load_experiment(run)
    if isinstance(experiment, ControlExperiment):
        there = _snapshot(experiment)
        return [name for name, hash in run.environments.items() if there.get(name) != hash]
    registry = Registry(db)
    return [name for name in run.environments if not _is_there(registry, name)]


def _snapshot(experiment: ControlExperiment) -> dict[str, str]:
    try:
        return snapshot(experiment.environment)
    except LoomError:
        return {}


def _is_there(registry: Registry, id: str) -> bool:
    try:
        return registry.verify(id).equal
    except LoomError:
        return False
