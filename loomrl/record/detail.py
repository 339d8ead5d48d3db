"""The views of single records, for `loomrl NOUN show ID`, its JSON and the console's page."""

import inspect
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loomrl.errors import StoreError
from loomrl.record.catalogue import (
    AB_TEST_RECORDS,
    DATASET_RECORDS,
    ENDPOINT_RECORDS,
    ENVIRONMENT_RECORDS,
    POLICY_RECORDS,
    RELEASE_RECORDS,
    REWARD_RECORDS,
    RUN_RECORDS,
    TRAINING_RECORDS,
    VERDICT_RECORDS,
    EndpointRow,
    PolicyRow,
    RunRow,
    ab_as_json,
    arms_text,
    environment_row,
    evaluation_summary,
    hashes_text,
    headlines_of,
    training_as_json,
)
from loomrl.record.declaration import Action, Column, Detail, Field, Found, Part, linked, path_to
from loomrl.record.word import compare_plan

if TYPE_CHECKING:
    from loomrl.coordinator.job import TrainingJob
    from loomrl.store import LoomDB
    from loomrl.store.observations import Observation
    from loomrl.store.policies import Evaluation

OBSERVED = 500
"""Latest rows of observations that an endpoint's outcomes are computed from."""
WHY = "Reason, kept on record."
FEW = 20
"""Other records on a page."""
EVALUATIONS_OF_IT = Part(
    name="evaluations",
    title="Evaluations",
    columns=(
        Column("policy", to=lambda row: version_page(row["policy"])),
        Column("what"),
        Column("mean", "texts.mean", "amount"),
        Column("interval", form="interval"),
        Column("from", "texts.low", "amount"),
        Column("to", "texts.high", "amount"),
        Column("attempts", "count", "count"),
        Column("when", "at", "time"),
    ),
    none="No evaluation is on record.",
)


def version_page(policy: str) -> str | None:
    """The page of a version on record; folders have none."""
    return path_to("policies", policy) if "/" in policy and not policy.startswith("/") else None


def find_run(db: "LoomDB", id: str) -> Found:
    """A run with what became of it."""
    from loomrl.store.policies import EVALUATIONS
    from loomrl.store.runs import POLICIES, RUNS, changed_in_fork, machine_of, pinned_model

    run = RUNS.require(db, id)
    return {
        "run": RunRow(run, headlines_of(db, [id]).get(id)),
        "changed": changed_in_fork(db, id),
        "machine": machine_of(db, id),
        "model": pinned_model(db, id),
        "evaluations": [evaluation_summary(each) for each in EVALUATIONS.latest(db, run=id, limit=FEW)],
        "versions": [PolicyRow(each, None) for each in POLICIES.latest(db, run=id, limit=12)],
        "plan": compare_plan(planned) if (planned := run.result.get("planned")) else None,
        "results": {name: value for name, value in run.result.items() if not isinstance(value, list | dict)},
    }


def _stop_run(db: "LoomDB", id: str, said: Mapping[str, str]) -> RunRow:
    from loomrl.store.runs import RUNS, ask_to_stop

    ask_to_stop(db, id, who=said["who"], why=said["why"], at=time.time())
    return RunRow(RUNS.require(db, id), None)


RUN = Detail(
    record=RUN_RECORDS,
    about="Show a run: its state, its result, where it came from.",
    id="RUN",
    find=find_run,
    facts=(
        Column("from", "run.run.parent_policy", to="policies"),
        Column(
            "forked with", lambda found: found["changed"] and ", ".join(f"{p}={v}" for p, v in found["changed"].items())
        ),
        Column("machine"),
        Column("first weights", "model.file"),
        Column("their hash", "model.sha256", "hash"),
        Column("experiment's hash", "run.run.experiment", "hash"),
        Column("code", "run.run.code", "hash"),
        Column("environments", lambda found: hashes_text(found["run"].run.environments)),
        Column("plan", form="words"),
        Column("ended", "results.stopped", "words"),
        Column("error", "results.error", "words"),
        Column(
            "result",
            lambda found: ", ".join(
                f"{name} {value}" for name, value in found["results"].items() if name not in ("stopped", "error")
            ),
            "words",
        ),
    ),
    parts=(
        EVALUATIONS_OF_IT,
        Part(
            name="versions",
            title="Versions",
            columns=[each for each in POLICY_RECORDS.columns if each.name != "evaluation"],
            none="No version of a policy came of this run.",
        ),
    ),
    texts=(Column("Resolved settings", "run.run.resolved"),),
    actions=(
        Action(
            word="stop",
            about="Ask a run to end after its present update, with a checkpoint. `loomrl train --resume --run RUN` "
            "goes on.",
            fields=(Field(name="why", about=WHY, default="no reason given", is_needed=True),),
            can=lambda found: found["run"].run.kind == "train" and found["run"].run.status == "running",
            do=_stop_run,
        ),
    ),
    as_json=lambda found: asdict(found["run"].run),
)


def find_policy(db: "LoomDB", id: str) -> Found:
    """A version, of `RUN` the last one, with how it was judged and where it was served."""
    from loomrl.run.version import find_version
    from loomrl.store.deployments import DEPLOYMENTS
    from loomrl.store.policies import EVALUATIONS
    from loomrl.store.runs import POLICIES, RUNS
    from loomrl.store.verdicts import VERDICTS

    version = find_version(id, db) or POLICIES.require(db, id)
    evaluations = EVALUATIONS.latest(db, policy=version.id, limit=FEW)
    run = RUNS.find(db, version.run)
    return {
        "policy": PolicyRow(version, next(iter(evaluations), None)),
        "environments": {} if run is None else run.environments,
        "evaluations": [evaluation_summary(each) for each in evaluations],
        "deployments": DEPLOYMENTS.latest(db, policy=version.id, limit=FEW),
        "verdicts": VERDICTS.latest(db, policy=version.id, limit=FEW),
        "data": version.data,
    }


POLICY = Detail(
    record=POLICY_RECORDS,
    about="Show a version's origins, back to the first, its descendants and, if it was trained in a league, the "
    "ratings.",
    id="POLICY",
    find=find_policy,
    facts=(
        Column("run", "policy.version.run", to="runs"),
        Column("number", "policy.version.number", "count"),
        Column("files", "policy.version.url"),
        Column("experiment", "policy.version.experiment", "hash"),
        Column("code", "policy.version.code", "hash"),
        Column("environments", lambda found: hashes_text(found["environments"])),
        Column("trained on", lambda found: data_text(found["data"]), "words"),
    ),
    parts=(
        EVALUATIONS_OF_IT,
        Part(
            name="deployments",
            title="Deployments",
            columns=(
                Column("deployment", "id"),
                Column("stage", form="status"),
                Column("endpoint", to="endpoints"),
                Column("share", form="share"),
                Column("when", "created_at", "time"),
            ),
            none="It was not deployed.",
        ),
        linked("verdicts", "Verdicts of the gate", VERDICT_RECORDS, none="The gate has not judged it."),
    ),
    texts=(Column("Training data", lambda found: found["data"] and json.dumps(found["data"], indent=1, default=str)),),
)


def data_text(data: Mapping[str, Any]) -> str:
    """The data that a version was trained on: counts before their nouns, long lists as their length."""
    parts = []
    for name, value in data.items():
        if isinstance(value, Mapping):
            parts.append(f"{name} ({data_text(value)})")
        elif isinstance(value, list | tuple):
            parts.append(f"{len(value):,} {name}")
        elif isinstance(value, int | float):
            parts.append(f"{value:,} {name}" if name.endswith("s") else f"{name} {value:,}")
        elif value:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def outcomes_of(observed: "Sequence[Observation]") -> list[dict[str, Any]]:
    """Mean and number of each metric by arm."""
    values: dict[tuple[str, str], list[float]] = {}
    for each in observed:
        values.setdefault((each.metric, each.arm), []).append(each.value)
    return [
        {"metric": metric, "arm": arm, "mean": sum(found) / len(found), "count": len(found)}
        for (metric, arm), found in sorted(values.items())
    ]


def find_endpoint(db: "LoomDB", name: str) -> Found:
    """An endpoint, possibly a deleted one, with its past and what it serves."""
    from loomrl.store.ab_tests import list_tests
    from loomrl.store.endpoints import ENDPOINTS, show_endpoint
    from loomrl.store.observations import latest_observations
    from loomrl.store.releases import list_releases
    from loomrl.store.replicas import live_replicas

    past = ENDPOINTS.latest(db, name=name, limit=FEW)
    endpoint = past[0] if past else show_endpoint(db, name)
    replicas = live_replicas(db, endpoint=name)
    up = Counter(str(each.role) for each in replicas if each.is_up)
    return {
        "endpoint": EndpointRow(endpoint, up["policy"], up["gateway"]),
        "arms": endpoint.arms,
        "outcomes": outcomes_of(latest_observations(db, name, rows=OBSERVED)),
        "releases": list_releases(db, endpoint=name, limit=10),
        "tests": [each for each in list_tests(db) if each.endpoint == name],
        "replicas": replicas,
        "history": past,
    }


ENDPOINT = Detail(
    record=ENDPOINT_RECORDS,
    about="Show an endpoint: its arms, the replicas behind it, and its latest revisions.",
    id="ENDPOINT",
    find=find_endpoint,
    parts=(
        Part(
            name="arms",
            title="Arms",
            columns=(
                Column("arm", "name"),
                Column("role"),
                Column("share", form="share"),
                Column("policy", to=lambda arm: version_page(arm.policy)),
            ),
        ),
        Part(
            name="outcomes",
            title="Outcomes",
            columns=(
                Column("outcome", "metric"),
                Column("arm"),
                Column("mean", form="number"),
                Column("of", "count", "count"),
            ),
            none="No outcome of a call is on record.",
        ),
        linked("releases", "Releases", RELEASE_RECORDS),
        linked("tests", "A/B tests", AB_TEST_RECORDS),
        Part(
            name="replicas",
            title="Replicas",
            columns=(
                Column("replica", "role"),
                Column("state", form="status"),
                Column("version", lambda row: row.version or row.policy),
                Column("address"),
                Column("node"),
                Column("pid"),
                Column("since", "started_at", "time"),
                Column("error", form="words"),
            ),
            none="No replica is up.",
        ),
        Part(
            name="history",
            title="Revisions",
            columns=(
                Column("revision", form="count"),
                Column("state", form="status"),
                Column("arms", lambda row: arms_text(row.arms), "words"),
                Column("reason", form="words"),
                Column("at", "created_at", "time"),
            ),
        ),
    ),
)


def find_release(db: "LoomDB", name: str) -> Found:
    """A release with every row of its log, the latest first."""
    from loomrl.release.ledger import Release
    from loomrl.store.releases import read_release
    from loomrl.store.verdicts import VERDICTS

    rows = read_release(db, name)
    if not rows:
        raise StoreError(f"there is no release {name!r:.100}. `loomrl release list` shows those there are.")
    release = Release.of(rows[-1])
    named = [each.removeprefix("verdict ") for each in release.verdict.reasons if each.startswith("verdict ")]
    return {
        "release": rows[-1],
        "history": rows[::-1],
        "verdict": next((id for id in named if VERDICTS.find(db, id) is not None), None),
        "plan": release.plan.model_dump_json(indent=1),
    }


RELEASE = Detail(
    record=RELEASE_RECORDS,
    about="Show a release: where it stands, and how it came there.",
    id="RELEASE",
    find=find_release,
    facts=(Column("verdict", to="verdicts"),),
    parts=(
        Part(
            name="history",
            title="History",
            columns=(
                Column("row", "number", "count"),
                Column("state", form="status"),
                Column("why", "reason", "words"),
                Column("who", lambda row: row.who or "the release"),
                Column("when", "created_at", "time"),
            ),
        ),
    ),
    texts=(Column("Plan", "plan"),),
)


def find_verdict(db: "LoomDB", id: str) -> Found:
    """A verdict with its evidence."""
    from loomrl.store.verdicts import VERDICTS

    return verdict_found(VERDICTS.require(db, id))


def verdict_found(verdict: Any) -> Found:
    """A verdict that was just made, as it is shown."""
    checks = verdict.report.get("checks", [])
    failed = [each for each in checks if each["state"] == "failed"]
    examples = [{"check": each["name"], **example} for each in failed for example in each.get("examples", ())]
    return {"verdict": verdict, "checks": checks, "examples": examples}


def _advice(found: Found) -> str:
    """The next step for a person."""
    verdict = found["verdict"]
    if verdict.outcome == "waiting" and not verdict.approved_by:
        return f"`loomrl gate approve {verdict.id} --who NAME`, by {', '.join(verdict.report['approvers'])}"
    strategy = verdict.report.get("strategy")
    return f"release it as {strategy['name']} from {strategy['share']:.0%}" if verdict.is_allowed and strategy else ""


def _approve(db: "LoomDB", id: str, said: Mapping[str, str]) -> Any:
    from loomrl.store.verdicts import approve_verdict

    return approve_verdict(db, id, who=said["who"], at=time.time(), comment=said["comment"])


VERDICT = Detail(
    record=VERDICT_RECORDS,
    about="Show a verdict with its evidence.",
    id="VERDICT",
    find=find_verdict,
    facts=(
        Column("improvement", "verdict.report.improvement", "signed"),
        Column("next", _advice),
        Column("seed", "verdict.report.seed"),
        Column("took", "verdict.report.seconds", "lasting"),
        Column("code", "verdict.report.code"),
        Column("hash of the suite", "verdict.suite_hash", "hash"),
    ),
    parts=(
        Part(
            name="checks",
            title="Checks",
            columns=(
                Column("check", "name"),
                Column("state", form="status"),
                Column("evidence", lambda row: row.get("evidence") or row.get("reason"), "words"),
            ),
            none="The report has no checks.",
        ),
        Part(
            name="examples",
            title="Examples of failed checks",
            columns=(
                Column("check"),
                Column("reason", form="words"),
                Column("prompt", form="words"),
                Column("answer", form="words"),
            ),
        ),
    ),
    texts=(Column("The whole report", lambda found: json.dumps(found["verdict"].report, indent=1, default=str)),),
    actions=(
        Action(
            word="approve",
            about="Approve a verdict that waits for a person, whom its suite names.",
            fields=(Field(name="comment", about=WHY),),
            can=lambda found: found["verdict"].outcome == "waiting" and not found["verdict"].approved_by,
            do=_approve,
        ),
    ),
    as_json=lambda found: VERDICT_RECORDS.as_json(found["verdict"]),
)


def find_ab_test(db: "LoomDB", name: str, *, most: int | None = None) -> Found:
    """A test with its result so far, of the first `most` rows of observations if there are more."""
    from loomrl.release.ab import AbReading
    from loomrl.store.ab_tests import show_test
    from loomrl.store.observations import read_observations

    test = show_test(db, name)
    reading = AbReading(test)
    after = 0
    rows = 0
    while (most is None or rows < most) and (batch := read_observations(db, test.endpoint, after=after)):
        reading.observe(each for _, each in batch if test.until is None or each.at <= test.until)
        after = batch[-1][0]
        rows += len({position for position, _ in batch})
    result = reading.result()
    arms = [
        {
            "arm": arm.name,
            "share": arm.share,
            "units": arm.units,
            "finding": finding,
            "said": "worse" if finding.is_worse else "better" if arm.is_better and not number else "",
        }
        for arm in result.arms
        for number, finding in enumerate(arm.findings)
    ]
    baseline = result.arms[0]
    first = {"arm": baseline.name, "share": baseline.share, "units": baseline.units, "finding": {}, "said": "baseline"}
    return {"test": test, "arms": [first, *arms], "result": result, "is_whole": most is None or rows < most}


def _ab_notes(found: Found) -> str:
    """Why the figures may mislead."""
    silent = [f"No value of {metric} has been reported yet." for metric in found["result"].silent]
    part = [] if found["is_whole"] else ["This page reads a part of the observations; `loomrl ab show` reads all."]
    return " ".join([*silent, *part])


def _ab_json(found: Found) -> Mapping[str, Any]:
    from loomrl.release.ab import as_json

    return {**ab_as_json(found["test"]), **as_json(found["result"])}


def _end_test(db: "LoomDB", name: str, said: Mapping[str, str]) -> Any:
    from loomrl.store.ab_tests import stop_test

    reason = f"{said['reason']} ({said['who']})" if said["reason"] else ""
    return stop_test(db, name, at=time.time(), keep=said["keep"], reason=reason)


AB_TEST = Detail(
    record=AB_TEST_RECORDS,
    about="Show a test's result up to now. It may be looked at any time.",
    id="TEST",
    find=find_ab_test,
    facts=(
        Column("so far", "result.decision", "words"),
        Column("better", lambda found: f"{found['test'].better} {found['test'].metric}"),
        Column("until", "test.until", "time"),
        Column("ended", "test.reason", "words"),
        Column("note", _ab_notes, "words"),
    ),
    parts=(
        Part(
            name="arms",
            title="Arms",
            columns=(
                Column("arm"),
                Column("share", form="share"),
                Column("units", form="count"),
                Column("metric", "finding.guard.metric"),
                Column("value", "finding.challenger.value", "number"),
                Column("baseline", "finding.baseline.value", "number"),
                Column("difference", "finding.difference", "signed"),
                Column("from", "finding.low", "signed"),
                Column("to", "finding.high", "signed"),
                Column("verdict", "said", "status"),
            ),
        ),
    ),
    actions=(
        Action(
            word="stop",
            about="End a test. Its users follow the endpoint's shares again, and the arms that came with it go.",
            fields=(
                Field(name="reason", about=WHY, is_needed=True),
                Field(
                    name="keep",
                    about="The arm that gets all of the traffic.",
                    choices=lambda found: [*found["test"].shares],
                ),
            ),
            can=lambda found: found["test"].phase != "stopped",
            do=_end_test,
        ),
    ),
    as_json=_ab_json,
)


def find_data(db: "LoomDB", id: str) -> Found:
    """A data set, of a name the newest, with its rows by kind and the versions that were trained on it."""
    from loomrl.config import DataSelection
    from loomrl.feedback.dataset import main_filter
    from loomrl.store.datasets import find_dataset, list_policies_trained_on, read_rows
    from loomrl.store.feedback import feedback_of

    found = find_dataset(db, id)
    rows = read_rows(db, found.id)
    said: Counter[str] = Counter()
    for first in range(0, len(rows), OBSERVED):
        known = {row.trajectory: {*row.feedback} for row in rows[first : first + OBSERVED]}
        said.update(one.kind for one in feedback_of(db, list(known)) if one.id in known[one.trajectory])
    domains = Counter((row.domain, row.part) for row in rows)
    return {
        "dataset": found,
        "domains": {name: {part: domains[name, part] for part in ("train", "holdout")} for name, _ in sorted(domains)},
        "with_reward": sum(row.reward is not None for row in rows),
        "with_ids": sum(row.tokens > 0 for row in rows),
        "feedback": dict(said.most_common()),
        "versions": list_policies_trained_on(db, found.id),
        "advice": main_filter(found.content["counts"], DataSelection.parse(found.content["selection"])),
    }


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


DATASET = Detail(
    record=DATASET_RECORDS,
    about="Show a data set: what it takes, what it left out, what can be learnt from it, and who was trained on it.",
    id="ID",
    find=find_data,
    facts=(
        Column("read", "dataset.content.read", "count"),
        Column("left out", lambda found: _counts(found["dataset"].content["counts"])),
        Column("advice", form="words"),
        Column("with a reward", "with_reward", "count"),
        Column("with token ids", "with_ids", "count"),
        Column("feedback", lambda found: _counts(found["feedback"])),
        Column("trained on it", lambda found: ", ".join(found["versions"])),
        Column("SHA-256", "dataset.sha256"),
    ),
    parts=(
        Part(
            name="domains",
            title="Domains",
            columns=(Column("domain", "name"), Column("train", form="count"), Column("holdout", form="count")),
        ),
    ),
)


def find_training(db: "LoomDB", id: str) -> Found:
    """A training of the loop, by its id or its first letters, with every row of its log."""
    from loomrl.coordinator.job import TrainingJob
    from loomrl.coordinator.ledger import find_job
    from loomrl.store.trainings import show_log

    rows = [TrainingJob.of(row) for row in show_log(db, find_job(db, id).id)]
    return {"training": rows[-1], "log": rows}


def _cancel(db: "LoomDB", id: str, said: Mapping[str, str]) -> "TrainingJob":
    from loomrl.coordinator import ledger

    return ledger.cancel(db, ledger.find_job(db, id).id, who=said["who"], why=said["why"], at=time.time())


TRAINING = Detail(
    record=TRAINING_RECORDS,
    about="Show a job from its request to its end: every row of its log.",
    id="JOB",
    find=find_training,
    facts=(
        Column("run", "training.run", to="runs"),
        Column("data set", "training.dataset", to="datasets"),
        Column("verdict", "training.verdict", to="verdicts"),
        Column("release", "training.release", to="releases"),
    ),
    parts=(
        Part(
            name="log",
            title="Log",
            columns=(
                Column("at", form="time"),
                Column("state", "phase", "status"),
                Column("done", lambda row: row.tenths / 10, "share"),
                Column("who"),
                Column("reason", form="words"),
            ),
        ),
    ),
    actions=(
        Action(
            word="cancel",
            about="Have a job end: at once if it has not begun, else as soon as its training or its gate has stopped.",
            fields=(Field(name="why", about=WHY, is_needed=True),),
            can=lambda found: found["training"].is_open and not found["training"].is_cancelled,
            do=_cancel,
        ),
    ),
    as_json=lambda found: {
        "job": training_as_json(found["training"]),
        "log": [training_as_json(row) for row in found["log"]],
    },
)


def find_rewards(db: "LoomDB", trajectory: str) -> Found:
    """The rewards of a trajectory, of which the last one holds."""
    from loomrl.store.rewards import rewards_of

    found = rewards_of(db, trajectory)
    if not found:
        raise StoreError(
            f"trajectory {trajectory!r:.100} has no reward. `loomrl rewards list` shows those that were judged; "
            "`loomrl rewards run ENDPOINT` judges what an endpoint's hub has."
        )
    components = [
        {"name": name, "at": each.created_at, "total": each.total, **part}
        for each in reversed(found)
        for name, part in each.content["components"].items()
    ]
    evidence = [each for each in components if each["evidence"]]
    return {"reward": found[-1], "rewards": found, "components": components, "evidence": evidence}


REWARD = Detail(
    record=REWARD_RECORDS,
    about="Show the rewards of a trajectory: every component, its evidence, and why. The last one holds.",
    id="TRAJECTORY",
    find=find_rewards,
    facts=(Column("id", "reward.id"), Column("task", "reward.task")),
    parts=(
        Part(
            name="components",
            title="Components",
            columns=(
                Column("component", "name"),
                Column("score", "value", "number"),
                Column("counts as", "normalized", "number"),
                Column("weight", form="number"),
                Column("source"),
                Column("why", "reasoning", "words"),
                Column("total", form="number"),
            ),
        ),
        Part(
            name="evidence",
            title="Evidence",
            columns=(
                Column("component", "name"),
                Column("evidence", lambda row: str(dict(row["evidence"])), "words"),
                Column("judged", "at", "time"),
            ),
        ),
    ),
    as_json=lambda found: {"trajectory": found["reward"].trajectory, "rewards": [asdict(x) for x in found["rewards"]]},
)


def scores_of(name: str, evaluations: "Iterable[Evaluation]") -> list[dict[str, Any]]:
    """Success by family and level in the newest evaluation that has the environment."""
    for each in evaluations:
        cells = {**each.report.get("by_family", {}), **each.report.get("by_level", {})}
        ours = {cell.partition("/")[2]: score for cell, score in cells.items() if cell.partition("/")[0] == name}
        mine = {cell: score["success"] for cell, score in sorted(ours.items()) if "success" in score}
        if mine:
            policy = each.policy or str(each.report.get("policy", ""))
            return [{"policy": policy, "cell": cell, "interval": told, **told} for cell, told in mine.items()]
    return []


def find_environment(db: "LoomDB", id: str) -> Found:
    """An environment that is installed or on record, with its latest results."""
    from loomrl.errors import RegistryError
    from loomrl.gym.catalogue import find
    from loomrl.gym.registry import snapshot_of
    from loomrl.store.environments import list_environments
    from loomrl.store.policies import EVALUATIONS

    name = id.partition("@")[0]
    recorded = list_environments(db, name=name)
    found: dict[str, Any] = {
        "environment": environment_row(name, recorded),
        "results": scores_of(name, EVALUATIONS.latest(db, limit=50)),
        "versions": recorded,
        "settings": {},
    }
    try:
        known = find(id)
    except RegistryError:
        return found
    cls = known.cls
    return found | {
        "entry_point": known.registration.entry_point,
        "about": inspect.getdoc(cls) or "",
        "snapshot": snapshot_of(known.id).hash,
        "families": list(cls.families),
        "reward_range": list(cls.reward_range),
        "reward_parts": list(cls.reward_parts),
        "ceilings": dict(cls.ceilings),
        "guess_floor": dict(cls.guess_floor),
        "dependencies": list(cls.dependencies),
        "settings": {n: f"{s.annotation} = {s.default}" for n, s in cls.settings_class.model_fields.items()},
    }


def _listed(name: str, title: str = "") -> Column[Found]:
    """Several values as one fact."""

    def text(found: Found) -> str:
        value = found.get(name, ())
        parts = (f"{each} {value[each]}" for each in value) if isinstance(value, Mapping) else map(str, value)
        return ", ".join(parts)

    return Column(title or name.replace("_", " "), text, "words")


ENVIRONMENT = Detail(
    record=ENVIRONMENT_RECORDS,
    about="Show an environment: families, rewards, ceilings, settings, snapshot, and the oracle's episode.",
    id="ID",
    find=find_environment,
    facts=(
        Column("about", lambda found: found.get("about"), "words"),
        Column("code", lambda found: found.get("entry_point")),
        Column("snapshot", lambda found: found.get("snapshot"), "hash"),
        _listed("families"),
        _listed("reward_range"),
        _listed("reward_parts"),
        _listed("ceilings"),
        _listed("guess_floor"),
        _listed("dependencies"),
        _listed("settings"),
    ),
    parts=(
        Part(
            name="results",
            title="Latest evaluation",
            columns=(
                Column("family or level", "cell"),
                Column("success", "mean", "share"),
                Column("interval", form="interval"),
                Column("from", "low", "share"),
                Column("to", "high", "share"),
                Column("attempts", "count", "count"),
                Column("policy", to=lambda row: version_page(row["policy"])),
            ),
            none="None of the latest evaluations has it.",
        ),
        Part(
            name="versions",
            title="Versions on record",
            columns=(
                Column("version"),
                Column("snapshot", form="hash"),
                Column("code", "entry_point"),
                Column("recorded", "created_at", "time"),
            ),
        ),
    ),
)
