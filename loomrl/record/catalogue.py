"""Every kind of record that people list: what stands in its columns, and what it is filtered by.

Rows are read by functions that import what they need when they run: `loomrl --help` knows the filters at once.
"""

import base64
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from loomrl.errors import ConfigError
from loomrl.record import word
from loomrl.record.declaration import Column, Field, Page, Query, Record, path_to
from loomrl.types import End, Feedback, PolicyVersion, Source, Stage

if TYPE_CHECKING:
    from loomrl.coordinator.job import TrainingJob
    from loomrl.serving.monitor.ledger import CountedHits, MonitorHit
    from loomrl.store import LoomDB
    from loomrl.store.ab_tests import AbTest
    from loomrl.store.archives import ArchiveFile
    from loomrl.store.datasets import Dataset
    from loomrl.store.endpoints import Arm, Endpoint
    from loomrl.store.environments import EnvironmentVersion
    from loomrl.store.events import Event
    from loomrl.store.judgements import Judgement
    from loomrl.store.keys import Key
    from loomrl.store.policies import Evaluation
    from loomrl.store.releases import ReleaseRow
    from loomrl.store.rewards import StoredReward
    from loomrl.store.runs import Run
    from loomrl.store.sessions import OptOut, Quarantine
    from loomrl.store.verdicts import StoredVerdict
    from loomrl.store.view.run_list import ListedRun
    from loomrl.store.view.trajectory_index import Indexed


def encode_place(place: tuple[Any, str]) -> str:
    """A place in a sorted list, which is a sorted value and an id, as a parameter."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def decode_place(text: str) -> tuple[Any, str] | None:
    """The place in a parameter; a ConfigError for one that this program did not make."""
    if not text:
        return None
    try:
        value, id = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError):
        raise ConfigError("after= is not a place in this list. Begin with the first page.") from None
    if not isinstance(id, str) or not isinstance(value, str | int | float):
        raise ConfigError("after= is not a place in this list. Begin with the first page.")
    return value, id


def _position(text: str) -> int | None:
    """The position in a parameter."""
    if text and not (text.isdecimal() and int(text) < 2**62):
        raise ConfigError(f"after={text[:80]!r} is not a position. Begin with the first page.")
    return int(text) if text else None


def _names_of_endpoints(db: "LoomDB") -> list[str]:
    from loomrl.store.endpoints import list_endpoints

    return [each.name for each in list_endpoints(db)]


OF_ENDPOINT = Field(name="endpoint", about="Only this endpoint.", choices=_names_of_endpoints)
AT_ENDPOINT = Field(name="endpoint", about="The endpoint.", choices=_names_of_endpoints, default="policy")


@dataclass(frozen=True, slots=True)
class Headline:
    """The latest value of the metric that stands for a run."""

    title: str
    """`Success`, `Return` and the like."""
    value: float
    is_share: bool

    @property
    def text(self) -> str:
        """The value with its unit: `78.6 %` of a share, else a number."""
        return word.percent(self.value) if self.is_share else word.number(self.value)

    def __str__(self) -> str:
        return f"{self.title} {self.text}"


def headlines_of(db: "LoomDB", ids: Sequence[str]) -> dict[str, Headline]:
    """The headlines of runs; those without metrics have none."""
    from loomrl.store.view.metrics import last_headlined
    from loomrl.telemetry.panel import SHARES, TITLES
    from loomrl.telemetry.sink import headline_in

    found = {}
    for id, row in last_headlined(db, ids).items():
        metric = headline_in(row.values)
        if metric is not None:
            found[id] = Headline(TITLES[metric], float(row.values[metric] or 0.0), metric in SHARES)
    return found


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run with its headline."""

    run: "ListedRun | Run"
    headline: Headline | None

    @property
    def took(self) -> float | None:
        """Seconds from start to end."""
        return None if self.run.finished_at is None else self.run.finished_at - self.run.started_at


def _read_runs(db: "LoomDB", query: Query) -> Page[RunRow]:
    from loomrl.store.view.run_list import SORTS, RunFilter, page_of_runs

    wanted = RunFilter(
        kind=query.get("kind") or "",
        status=query.get("status") or "",
        text=query.get("text") or "",
        sort=query.sort or SORTS[0],
        down=query.down,
    )
    page = page_of_runs(db, wanted, after=decode_place(query.after), limit=query.limit)
    headlines = headlines_of(db, [run.id for run in page.runs])
    rows = [RunRow(run, headlines.get(run.id)) for run in page.runs]
    return Page(rows, None if page.next is None else encode_place(page.next))


def _run_as_json(row: RunRow) -> Mapping[str, Any]:
    latest = None if row.headline is None else {"title": row.headline.title, "value": row.headline.value}
    return {**asdict(row.run), "headline": latest}


def _kinds_of_runs(db: "LoomDB") -> list[str]:
    from loomrl.store.view.run_list import list_run_kinds

    return list_run_kinds(db)


def _statuses(_: "LoomDB") -> list[str]:
    from loomrl.store.runs import RunStatus

    return [status.value for status in RunStatus]


RUN_RECORDS = Record[RunRow](
    name="run",
    plural="runs",
    about="List runs, with what they measured last.",
    columns=(
        Column("run", "run.id", to="runs", sort="name"),
        Column("experiment", "run.name"),
        Column("kind", "run.kind", sort="kind"),
        Column("status", "run.status", "status", sort="status"),
        Column("latest", "headline", sort="headline"),
        Column("started", "run.started_at", "time", sort="started"),
        Column("took", form="lasting"),
    ),
    filters=(
        Field(name="text", about="Part of an id or a name."),
        Field(name="kind", about="train, evaluate, sweep or serve.", choices=_kinds_of_runs),
        Field(
            name="status",
            about="running, finished or failed.",
            choices=_statuses,
            is_closed=True,
        ),
    ),
    read=_read_runs,
    as_json=_run_as_json,
    none="No runs. `loomrl train` makes one.",
    sort="started",
)


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy version with its latest evaluation."""

    version: PolicyVersion
    evaluation: "Evaluation | None"


def _read_policies(db: "LoomDB", query: Query) -> Page[PolicyRow]:
    from loomrl.store.view.policy_list import evaluations_of, page_of_policies

    after = decode_place(query.after)
    if after is not None and not isinstance(after[0], int | float):
        raise ConfigError("after= is not a place in this list. Begin with the first page.")
    page = page_of_policies(
        db, run=query.get("run") or "", stage=query.get("stage") or "", after=after, limit=query.limit
    )
    evaluations = evaluations_of(db, [version.id for version in page.policies])
    rows = [PolicyRow(version, evaluations.get(version.id)) for version in page.policies]
    return Page(rows, None if page.next is None else encode_place(page.next))


def evaluation_summary(evaluation: "Evaluation") -> dict[str, Any]:
    """An evaluation as one row: the success of a language policy, the return of a control policy."""
    overall = evaluation.report.get("overall", {})
    is_share = isinstance(overall.get("success"), dict)
    told = overall.get("success" if is_share else "reward")
    bounds = {name: told.get(name) if isinstance(told, dict) else None for name in ("mean", "low", "high", "count")}
    show = word.percent if is_share else word.number
    least, most = (0.0, 1.0) if is_share else (bounds["low"] or 0.0, bounds["high"] or 1.0)
    return {
        "id": evaluation.id,
        "policy": evaluation.policy or evaluation.report.get("policy", ""),
        "at": evaluation.created_at,
        "what": "success" if is_share else "return",
        **bounds,
        "texts": {name: show(bounds[name]) for name in ("mean", "low", "high")},
        "interval": {**bounds, "least": least, "most": most},
    }


def evaluation_text(row: PolicyRow) -> str:
    """The mean of the latest evaluation."""
    if row.evaluation is None:
        return ""
    found = evaluation_summary(row.evaluation)
    return f"{found['what']} {found['texts']['mean']}"


POLICY_RECORDS = Record[PolicyRow](
    name="policy",
    plural="policies",
    about="List policy versions, newest first.",
    columns=(
        Column("version", "version.id", to="policies"),
        Column("stage", "version.stage", "status"),
        Column("algorithm", "version.algorithm"),
        Column("made from", "version.parent"),
        Column("evaluation", evaluation_text),
        Column("made", "version.created_at", "time"),
    ),
    filters=(
        Field(name="run", about="Only versions of this run."),
        Field(
            name="stage",
            about="candidate, canary, production or retired.",
            choices=lambda _: [stage.value for stage in Stage],
            is_closed=True,
        ),
    ),
    read=_read_policies,
    as_json=lambda row: asdict(row.version),
    none="No policy versions. `loomrl train` makes them.",
)


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An endpoint with the number of processes that serve it."""

    endpoint: "Endpoint"
    policies: int
    gateways: int


def arms_text(arms: "Iterable[Arm]") -> str:
    """Arms as `loomrl endpoints set` takes them."""
    return ", ".join(f"{arm.name}={arm.policy}:{arm.share:g}" for arm in arms)


def _read_endpoints(db: "LoomDB", query: Query) -> Page[EndpointRow]:
    from loomrl.store.endpoints import list_endpoints
    from loomrl.store.replicas import live_replicas

    live = Counter((row.endpoint, str(row.role)) for row in live_replicas(db) if row.is_up)
    found = list_endpoints(db)[: query.limit]
    return Page([EndpointRow(each, live[each.name, "policy"], live[each.name, "gateway"]) for each in found])


ENDPOINT_RECORDS = Record[EndpointRow](
    name="endpoint",
    plural="endpoints",
    about="List endpoints, with their arms and the number of replicas that answer.",
    columns=(
        Column("endpoint", "endpoint.name", to="endpoints"),
        Column("state", "endpoint.state", "status"),
        Column("arms", lambda row: arms_text(row.endpoint.arms), "words"),
        Column("policies", form="count"),
        Column("gateways", form="count"),
        Column("revision", "endpoint.revision", "count"),
        Column("changed", "endpoint.created_at", "time"),
    ),
    read=_read_endpoints,
    as_json=lambda row: {**asdict(row.endpoint), "policies": row.policies, "gateways": row.gateways},
    none="No endpoints. `loomrl serve` makes one.",
    limit=1000,
)


def _read_trajectories(index: "LoomDB", query: Query) -> "Page[Indexed]":
    """Rows of the index, which is a LoomDB of its own: see loomrl.console.source."""
    from loomrl.store.view.trajectory_index import EQUAL, TrajectoryFilter, page_of

    wanted = TrajectoryFilter(equal={name: value for name in EQUAL if (value := query.get(name)) is not None})
    rows: list[Indexed] = []
    before = _position(query.after)
    while True:
        page = page_of(index, wanted, before=before, limit=query.limit - len(rows))
        rows += [row for _, row in page.rows]
        before = page.next
        # a page ends where its time is up, however rare the rows that the filter takes
        if before is None or len(rows) >= query.limit:
            return Page(rows, None if before is None else str(before))


TRAJECTORY_RECORDS = Record["Indexed"](
    name="trajectory",
    plural="trajectories",
    about="List trajectories of rollouts, evaluations and endpoints, newest first.",
    columns=(
        Column("trajectory", "id", to="trajectories"),
        Column("environment"),
        Column("family", under="environment"),
        Column("level", form="count"),
        Column("reward", form="number"),
        Column("success", form="number"),
        Column("ending", form="status"),
        Column("length", form="count"),
        Column("version", lambda row: row.version if row.version >= 0 else None, "count", under="length"),
        Column("source", under="ending"),
        Column("stored", "created_at", "time"),
    ),
    filters=(
        Field(name="run", about="Only trajectories of this run."),
        Field(name="environment", about="Only this environment."),
        Field(name="family", about="Only this family of tasks."),
        Field(
            name="source",
            about="rollout, evaluation, production or foreign.",
            choices=lambda _: [source.value for source in Source],
            is_closed=True,
        ),
        Field(
            name="ending",
            about="terminated, truncated or failed.",
            choices=lambda _: [end.value for end in End],
            is_closed=True,
        ),
        Field(name="hub", about="Only this hub, such as endpoint-policy."),
    ),
    read=_read_trajectories,
    none="No trajectories. `loomrl train` makes them.",
)


def release_as_json(row: "ReleaseRow") -> dict[str, Any]:
    """A row of a release's log as one JSON object."""
    content: Mapping[str, Any] = row.content
    return {
        "release": row.release,
        "number": row.number,
        "endpoint": row.endpoint,
        "state": row.state,
        "step": content["passage"]["step"],
        "revision": row.revision,
        "challenger": content["challenger"],
        "reason": row.reason,
        "who": row.who,
        "at": row.created_at,
        "evidence": content["evidence"],
    }


def release_state(row: "ReleaseRow") -> str:
    """`open`, `paused`, `done` or `back`."""
    return "paused" if row.state == "open" and row.content["passage"]["is_paused"] else row.state


def _read_releases(db: "LoomDB", query: Query) -> "Page[ReleaseRow]":
    from loomrl.store.releases import list_releases

    return Page(list_releases(db, limit=query.limit, endpoint=query.get("endpoint")))


RELEASE_RECORDS = Record["ReleaseRow"](
    name="release",
    plural="releases",
    about="List releases, latest first.",
    columns=(
        Column("release", to="releases"),
        Column("state", release_state, "status"),
        Column("version", lambda row: row.content["challenger"]),
        Column("against", lambda row: row.content["baseline"]),
        Column("reason", form="words"),
        Column("changed", "created_at", "time"),
    ),
    filters=(OF_ENDPOINT,),
    read=_read_releases,
    as_json=release_as_json,
    none="No releases. `loomrl release VERSION --to ENDPOINT` begins one.",
)


def verdict_as_json(verdict: "StoredVerdict") -> dict[str, Any]:
    """A verdict as one JSON object."""
    return {
        "id": verdict.id,
        "outcome": verdict.outcome.value,
        "allowed": verdict.is_allowed,
        "approved_by": list(verdict.approved_by),
        "policy": verdict.policy,
        "against": verdict.against,
        "suite": verdict.suite,
        "suite_hash": verdict.suite_hash,
        "created_at": verdict.created_at,
        **verdict.report,
    }


def _read_verdicts(db: "LoomDB", query: Query) -> "Page[StoredVerdict]":
    from loomrl.store.verdicts import VERDICTS

    return Page(VERDICTS.latest(db, limit=query.limit, policy=query.get("policy")))


VERDICT_RECORDS = Record["StoredVerdict"](
    name="verdict",
    plural="verdicts",
    about="List the gate's verdicts, latest first.",
    columns=(
        Column("verdict", "id", to="verdicts"),
        Column("outcome", lambda row: "allowed" if row.is_allowed else row.outcome.value, "status"),
        Column("approved by", lambda row: ", ".join(row.approved_by)),
        Column("policy"),
        Column("against"),
        Column("suite"),
        Column("made", "created_at", "time"),
    ),
    filters=(Field(name="policy", about="Only verdicts on this policy."),),
    read=_read_verdicts,
    as_json=verdict_as_json,
    none="The gate has judged nothing yet. `loomrl gate VERSION` does.",
)


def ab_state(test: "AbTest") -> str:
    """`running`, or why it ended."""
    if test.is_running(time.time()):
        return "running"
    return test.reason or "over by time"


def ab_as_json(test: "AbTest") -> dict[str, Any]:
    """An A/B test as one JSON object."""
    return {**asdict(test), "phase": test.phase.value, "running": test.is_running(time.time())}


def _read_ab_tests(db: "LoomDB", query: Query) -> "Page[AbTest]":
    from loomrl.store.ab_tests import list_tests

    found = [each for each in list_tests(db) if each.endpoint == (query.get("endpoint") or each.endpoint)]
    return Page(found[: query.limit])


AB_TEST_RECORDS = Record["AbTest"](
    name="A/B test",
    plural="tests",
    about="List A/B tests.",
    columns=(
        Column("test", "name", to="ab"),
        Column("state", ab_state, "status"),
        Column("endpoint"),
        Column("arms", lambda row: " against ".join(row.shares)),
        Column("metric"),
        Column("layer", lambda row: f"{row.layer} {row.start:g} to {row.end:g}"),
        Column("started", "started_at", "time"),
    ),
    filters=(OF_ENDPOINT,),
    read=_read_ab_tests,
    as_json=ab_as_json,
    none="No A/B tests. `loomrl ab create` begins one.",
    limit=1000,
)


def dataset_as_json(dataset: "Dataset") -> dict[str, Any]:
    """A data set as one JSON object."""
    return {"id": dataset.id, "sha256": dataset.sha256, "created_at": dataset.created_at, **dataset.content}


def _read_datasets(db: "LoomDB", query: Query) -> "Page[Dataset]":
    from loomrl.store.datasets import list_datasets

    return Page(list_datasets(db, limit=query.limit, trajectory=query.get("trajectory")))


DATASET_RECORDS = Record["Dataset"](
    name="data set",
    plural="datasets",
    about="List data sets, latest first.",
    columns=(
        Column("data set", "id", to="datasets"),
        Column("train", lambda row: row.content["sizes"]["train"], "count"),
        Column("holdout", lambda row: row.content["sizes"]["holdout"], "count"),
        Column("for", "parent"),
        Column("from", lambda row: ", ".join(row.content["hubs"])),
        Column("made", "created_at", "time"),
    ),
    filters=(Field(name="trajectory", about="Only data sets with this trajectory."),),
    read=_read_datasets,
    as_json=dataset_as_json,
    none="No data sets. `loomrl data freeze ENDPOINT` makes one.",
)


def scores_text(reward: "StoredReward") -> str:
    """The components of a reward that have a value."""
    parts: Mapping[str, Any] = reward.content["components"]
    return ", ".join(f"{name} {part['value']:.2f}" for name, part in parts.items() if part["value"] is not None)


def _read_rewards(db: "LoomDB", query: Query) -> "Page[StoredReward]":
    from loomrl.store.rewards import REWARDS

    return Page(REWARDS.latest(db, limit=query.limit, endpoint=query.get("endpoint")))


REWARD_RECORDS = Record["StoredReward"](
    name="reward",
    plural="rewards",
    about="List rewards of served trajectories, newest first.",
    columns=(
        Column("trajectory", to="trajectories"),
        Column("endpoint"),
        Column("total", form="number"),
        Column("confidence", form="number"),
        Column("scores", scores_text, to=lambda row: path_to("rewards", row.trajectory)),
    ),
    filters=(OF_ENDPOINT,),
    read=_read_rewards,
    none="No rewards. `loomrl rewards run ENDPOINT` makes them.",
)


def _read_feedback(db: "LoomDB", query: Query) -> Page[Feedback]:
    from loomrl.store.feedback import FEEDBACK

    before = _position(query.after)
    found = FEEDBACK.recent(db, before=before, limit=query.limit, trajectory=query.get("trajectory"))
    return Page([each for _, each in found], str(found[-1][0]) if len(found) == query.limit else None)


FEEDBACK_RECORDS = Record[Feedback](
    name="feedback",
    plural="feedback",
    about="List feedback on served answers, newest first.",
    columns=(
        Column("trajectory", to="trajectories"),
        Column("call"),
        Column("source"),
        Column("kind"),
        Column("value", form="number"),
        Column("words", lambda row: row.comment or str(row.data.get("text", "")), "words"),
        Column("given", "created_at", "time"),
    ),
    filters=(Field(name="trajectory", about="Only feedback on this trajectory, whose id is its session's."),),
    read=_read_feedback,
    none="No feedback. `loomrl feedback give SESSION --thumb up` gives some.",
)


def _read_questions(db: "LoomDB", query: Query) -> "Page[Judgement]":
    from loomrl.store.judgements import waiting

    return Page(waiting(db, now=time.time(), limit=query.limit))


QUESTION_RECORDS = Record["Judgement"](
    name="question",
    plural="questions",
    about="List the questions that wait for a person's answer, oldest first.",
    columns=(
        Column("question", "id"),
        Column("asked", "question", "words"),
        Column("choices", lambda row: " | ".join(row.choices)),
        Column("about", lambda row: "\n".join(f"{each.role}: {each.content}" for each in row.conversation), "words"),
        Column("waits until", "expires_at", "time"),
    ),
    read=_read_questions,
    none="No question waits for an answer.",
)


def training_as_json(job: "TrainingJob") -> dict[str, Any]:
    """A row of a training's log as one JSON object."""
    row = job.row()
    about = {"id": job.id, "endpoint": job.endpoint, "state": job.phase.value, "run": job.run, "at": job.at}
    return about | {name: value for name, value in row.content.items() if name not in ("experiment", "request")}


def _read_trainings(db: "LoomDB", query: Query) -> "Page[TrainingJob]":
    from loomrl.coordinator.job import TrainingJob
    from loomrl.store.trainings import list_trainings

    found = list_trainings(db, endpoint=query.get("endpoint"), limit=query.limit)
    return Page([TrainingJob.of(row) for row in found])


TRAINING_RECORDS = Record["TrainingJob"](
    name="training",
    plural="jobs",
    about="List the loop's trainings, latest change first.",
    columns=(
        Column("job", lambda row: row.id[:8], to=lambda row: path_to("trainings", row.id)),
        Column("endpoint"),
        Column("state", "phase", "status"),
        Column("trigger"),
        Column("policy", lambda row: row.policy or row.run),
        Column("changed", "at", "time"),
        Column("reason", form="words"),
    ),
    filters=(OF_ENDPOINT,),
    read=_read_trainings,
    as_json=training_as_json,
    none="No trainings. `loomrl loop EXPERIMENT` begins them when they are due.",
)


def _read_archives(db: "LoomDB", query: Query) -> "Page[ArchiveFile]":
    from loomrl.store.archives import list_files

    return Page(list_files(db, query.filters["endpoint"])[: query.limit])


ARCHIVE_RECORDS = Record["ArchiveFile"](
    name="archived file",
    plural="files",
    about="List the archived files of an endpoint, oldest first.",
    columns=(
        Column("file", "id"),
        Column("state", form="status"),
        Column("trajectories", "count", "count"),
        Column("first", "first_at", "time"),
        Column("last", "last_at", "time"),
        Column("url"),
    ),
    filters=(AT_ENDPOINT,),
    read=_read_archives,
    none="Nothing of this endpoint is archived.",
    limit=1000,
)


@dataclass(frozen=True, slots=True)
class HitRow:
    """A finding of the monitor, and how often it was made."""

    hit: "MonitorHit"
    counted: "CountedHits"


def _read_hits(db: "LoomDB", query: Query) -> Page[HitRow]:
    from loomrl.serving.monitor.ledger import hits_on_record

    found = [HitRow(*each) for each in hits_on_record(db, endpoint=query.get("endpoint") or "").items()]
    return Page(found[: query.limit])


HIT_RECORDS = Record[HitRow](
    name="hit",
    plural="hits",
    about="Count the hits of the monitor's rules by arm and version.",
    columns=(
        Column("rule", "hit.rule"),
        Column("then", "hit.then"),
        Column("endpoint", "hit.endpoint", to="endpoints"),
        Column("arm", "hit.arm"),
        Column("version", "hit.version"),
        Column("what", "hit.what"),
        Column("count", "counted.count", "count"),
        Column("latest", "counted.at", "time"),
        Column("sessions", lambda row: ", ".join(row.counted.sessions[:3])),
    ),
    filters=(OF_ENDPOINT,),
    read=_read_hits,
    as_json=lambda row: {**asdict(row.hit), **asdict(row.counted)},
    none="The monitor has found nothing.",
    limit=1000,
)


def _read_quarantine(db: "LoomDB", query: Query) -> "Page[Quarantine]":
    from loomrl.store.sessions import list_quarantined

    return Page(list_quarantined(db, endpoint=query.get("endpoint") or "")[: query.limit])


QUARANTINE_RECORDS = Record["Quarantine"](
    name="session in quarantine",
    plural="quarantined",
    about="List the sessions whose calls are refused, oldest first.",
    columns=(
        Column("session", to="trajectories"),
        Column("endpoint", to="endpoints"),
        Column("rule"),
        Column("since", "at", "time"),
    ),
    filters=(OF_ENDPOINT,),
    read=_read_quarantine,
    none="No session is in quarantine.",
    limit=1000,
)


def key_state(key: "Key") -> str:
    """`valid`, `expired` or `revoked`."""
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.holds(time.time()) else "expired"


def _read_keys(db: "LoomDB", query: Query) -> "Page[Key]":
    from loomrl.store.keys import KEYS

    return Page(KEYS.latest(db, limit=query.limit))


KEY_RECORDS = Record["Key"](
    name="key",
    plural="keys",
    about="List keys, newest first; the keys themselves cannot be shown again.",
    columns=(
        Column("key", "id"),
        Column("owner", "name"),
        Column("scopes", lambda row: ", ".join(row.scopes)),
        Column("rate", form="number"),
        Column("state", key_state, "status"),
        Column("created", "created_at", "time"),
        Column("expires", "expires_at", "time"),
    ),
    read=_read_keys,
    as_json=lambda row: {name: value for name, value in asdict(row).items() if name != "sha256"},
    none="No keys. `loomrl keys create NAME` makes one.",
    limit=200,
)


def _read_people(db: "LoomDB", query: Query) -> "Page[OptOut]":
    from loomrl.store.sessions import list_opt_outs

    return Page(list_opt_outs(db, query.filters["endpoint"])[: query.limit])


PEOPLE_RECORDS = Record["OptOut"](
    name="person who opted out",
    plural="people",
    about="List who opted out, by a hash: LoomDB does not have their names.",
    columns=(
        Column("person", lambda row: row.person[:16]),
        Column("since", "created_at", "time"),
    ),
    filters=(AT_ENDPOINT,),
    read=_read_people,
    none="No person has opted out of this endpoint.",
    limit=1000,
)


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event with its position in the log."""

    position: int
    event: "Event"


def event_as_json(row: EventRow) -> dict[str, Any]:
    """An event as one JSON object."""
    event = row.event
    return {
        "position": row.position,
        "kind": event.kind,
        "subject": event.subject,
        "at": event.created_at,
        "data": event.data,
    }


def _read_events(db: "LoomDB", query: Query) -> Page[EventRow]:
    from loomrl.store.events import EVENTS

    found = EVENTS.recent(
        db, before=_position(query.after), limit=query.limit, kind=query.get("kind"), subject=query.get("subject")
    )
    rows = [EventRow(position, event) for position, event in found]
    return Page(rows, str(found[-1][0]) if len(found) == query.limit else None)


def _kinds_of_events(db: "LoomDB") -> list[str]:
    from loomrl.store.events import EVENTS

    kinds = EVENTS.kinds(db)
    return sorted({*kinds, *(name.partition(".")[0] for name in kinds)})


def _audit(**filters: str) -> str:
    return f"/audit?{urlencode(filters)}"


EVENT_RECORDS = Record[EventRow](
    name="event",
    plural="events",
    about="List what happened, newest first: runs, releases, verdicts, keys, feedback.",
    columns=(
        Column("kind", "event.kind", to=lambda row: _audit(kind=row.event.kind)),
        Column("subject", "event.subject", to=lambda row: _audit(subject=row.event.subject)),
        Column(
            "data",
            lambda row: json.dumps(dict(row.event.data), ensure_ascii=False) if row.event.data else "",
            "words",
        ),
        Column("at", "event.created_at", "time"),
        Column("position", form="count"),
    ),
    filters=(
        Field(name="kind", about="A kind, such as deployment.made, or its first part.", choices=_kinds_of_events),
        Field(name="subject", about="Only events about this subject."),
    ),
    read=_read_events,
    as_json=event_as_json,
    none="Nothing is on record yet.",
    limit=50,
)


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """An environment that is installed, on record, or both."""

    id: str
    """`Name@version` of one that can be opened here, else its name."""
    state: str
    recorded: Mapping[str, str]
    """Version on record → hash of its snapshot."""

    @property
    def name(self) -> str:
        """The name without a version."""
        return self.id.partition("@")[0]


def environment_row(name: str, recorded: "Sequence[EnvironmentVersion]") -> EnvironmentRow:
    """An environment by name, with its versions on record: its number of families, or why it cannot be opened."""
    from loomrl.errors import RegistryError
    from loomrl.gym.catalogue import find, names

    hashes = {each.version: each.snapshot for each in recorded}
    if name not in names():
        return EnvironmentRow(name, "not installed", hashes)
    try:
        found = find(name)
    except RegistryError as error:
        return EnvironmentRow(name, f"broken: {error}", hashes)
    return EnvironmentRow(found.id, f"{len(found.cls.families)} families", hashes)


def _read_environments(db: "LoomDB", query: Query) -> Page[EnvironmentRow]:
    from loomrl.gym.catalogue import names
    from loomrl.store.environments import list_environments

    recorded: dict[str, list[EnvironmentVersion]] = {name: [] for name in names()}
    for each in list_environments(db):
        recorded.setdefault(each.name, []).append(each)
    known = sorted(recorded, key=str.lower)[: query.limit]
    return Page([environment_row(name, recorded[name]) for name in known])


def hashes_text(hashes: Mapping[str, str]) -> str:
    """Names with the beginnings of their hashes."""
    return ", ".join(f"{name} ({hash[:12]})" for name, hash in hashes.items())


ENVIRONMENT_RECORDS = Record[EnvironmentRow](
    name="environment",
    plural="environments",
    about="List the environments that are installed, and the versions in LoomDB.",
    columns=(
        Column("environment", "id", to=lambda row: path_to("environments", row.name)),
        Column("state"),
        Column("recorded as", lambda row: hashes_text(row.recorded)),
    ),
    read=_read_environments,
    none="No environments. `loomrl new env NAME` makes one.",
    limit=1000,
)
