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
from urllib.parse import quote, urlencode

from loomrl.errors import ConfigError
from loomrl.record import word
from loomrl.record.declaration import Column, Filter, Form, Page, Query, Record
from loomrl.types import End, Feedback, PolicyVersion, Source, Stage

if TYPE_CHECKING:
    from loomrl.coordinator.job import TrainingJob
    from loomrl.serving.monitor.ledger import MonitorHit
    from loomrl.store import LoomDB
    from loomrl.store.ab_tests import AbTest
    from loomrl.store.archives import ArchiveFile
    from loomrl.store.datasets import Dataset
    from loomrl.store.endpoints import Arm, Endpoint
    from loomrl.store.events import Event
    from loomrl.store.judgements import Judgement
    from loomrl.store.keys import Key
    from loomrl.store.policies import Evaluation
    from loomrl.store.releases import ReleaseRow
    from loomrl.store.rewards import StoredReward
    from loomrl.store.sessions import OptOut, Quarantine
    from loomrl.store.verdicts import StoredVerdict
    from loomrl.store.view.run_list import ListedRun
    from loomrl.store.view.trajectory_index import Indexed


def path_to(*parts: str) -> str:
    """An address of the console; ids may contain slashes."""
    return "/" + "/".join(quote(part, safe="/@=+:,~") for part in parts)


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


OF_ENDPOINT = Filter(name="endpoint", about="Only this endpoint.", choices=_names_of_endpoints)
AT_ENDPOINT = Filter(name="endpoint", about="The endpoint.", choices=_names_of_endpoints, default="policy")


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

    run: "ListedRun"
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
        Column(name="run", value=lambda row: row.run.id, to=lambda row: path_to("runs", row.run.id), sort="name"),
        Column(name="experiment", value=lambda row: row.run.name),
        Column(name="kind", value=lambda row: row.run.kind, sort="kind"),
        Column(name="status", value=lambda row: row.run.status, form=Form.STATUS, sort="status"),
        Column(name="latest", value=lambda row: row.headline, sort="headline"),
        Column(name="started", value=lambda row: row.run.started_at, form=Form.TIME, sort="started"),
        Column(name="took", value=lambda row: row.took, form=Form.LASTING),
    ),
    filters=(
        Filter(name="text", about="Part of an id or a name."),
        Filter(name="kind", about="train, evaluate, sweep or serve.", choices=_kinds_of_runs),
        Filter(
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


def evaluation_text(row: PolicyRow) -> str:
    """The mean of the latest evaluation: success of a language policy, the return of a control policy."""
    overall: Mapping[str, Any] = {} if row.evaluation is None else row.evaluation.report.get("overall", {})
    for name, title, show in (("success", "success", word.percent), ("reward", "return", word.number)):
        if isinstance(overall.get(name), dict):
            return f"{title} {show(overall[name].get('mean'))}"
    return ""


POLICY_RECORDS = Record[PolicyRow](
    name="policy",
    plural="policies",
    about="List policy versions, newest first.",
    columns=(
        Column(name="version", value=lambda row: row.version.id, to=lambda row: path_to("policies", row.version.id)),
        Column(name="stage", value=lambda row: row.version.stage.value, form=Form.STATUS),
        Column(name="algorithm", value=lambda row: row.version.algorithm),
        Column(name="made from", value=lambda row: row.version.parent),
        Column(name="evaluation", value=evaluation_text),
        Column(name="made", value=lambda row: row.version.created_at, form=Form.TIME),
    ),
    filters=(
        Filter(name="run", about="Only versions of this run."),
        Filter(
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

    live = Counter((row.endpoint, str(row.role)) for row in live_replicas(db))
    found = list_endpoints(db)[: query.limit]
    return Page([EndpointRow(each, live[each.name, "policy"], live[each.name, "gateway"]) for each in found])


ENDPOINT_RECORDS = Record[EndpointRow](
    name="endpoint",
    plural="endpoints",
    about="List endpoints, with their arms and the number of replicas that answer.",
    columns=(
        Column(
            name="endpoint",
            value=lambda row: row.endpoint.name,
            to=lambda row: path_to("endpoints", row.endpoint.name),
        ),
        Column(name="state", value=lambda row: row.endpoint.state.value, form=Form.STATUS),
        Column(name="arms", value=lambda row: arms_text(row.endpoint.arms)),
        Column(name="policies", value=lambda row: row.policies, form=Form.COUNT),
        Column(name="gateways", value=lambda row: row.gateways, form=Form.COUNT),
        Column(name="revision", value=lambda row: row.endpoint.revision, form=Form.COUNT),
        Column(name="changed", value=lambda row: row.endpoint.created_at, form=Form.TIME),
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
        Column(name="trajectory", value=lambda row: row.id, to=lambda row: path_to("trajectories", row.id)),
        Column(name="environment", value=lambda row: row.environment),
        Column(name="family", value=lambda row: row.family),
        Column(name="level", value=lambda row: row.level, form=Form.COUNT),
        Column(name="reward", value=lambda row: row.reward, form=Form.NUMBER),
        Column(name="success", value=lambda row: row.success, form=Form.NUMBER),
        Column(name="ending", value=lambda row: row.ending, form=Form.STATUS),
        Column(name="length", value=lambda row: row.length, form=Form.COUNT),
        Column(name="version", value=lambda row: row.version if row.version >= 0 else None, form=Form.COUNT),
        Column(name="source", value=lambda row: row.source),
        Column(name="stored", value=lambda row: row.created_at, form=Form.TIME),
    ),
    filters=(
        Filter(name="run", about="Only trajectories of this run."),
        Filter(name="environment", about="Only this environment."),
        Filter(name="family", about="Only this family of tasks."),
        Filter(
            name="source",
            about="rollout, evaluation, production or foreign.",
            choices=lambda _: [source.value for source in Source],
            is_closed=True,
        ),
        Filter(
            name="ending",
            about="terminated, truncated or failed.",
            choices=lambda _: [end.value for end in End],
            is_closed=True,
        ),
        Filter(name="hub", about="Only this hub, such as endpoint-policy."),
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
        Column(name="release", value=lambda row: row.release, to=lambda row: path_to("releases", row.release)),
        Column(name="state", value=release_state, form=Form.STATUS),
        Column(name="version", value=lambda row: row.content["challenger"]),
        Column(name="against", value=lambda row: row.content["baseline"]),
        Column(name="reason", value=lambda row: row.reason, form=Form.WORDS),
        Column(name="changed", value=lambda row: row.created_at, form=Form.TIME),
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
        Column(name="verdict", value=lambda row: row.id, to=lambda row: path_to("verdicts", row.id)),
        Column(
            name="outcome",
            value=lambda row: "allowed" if row.is_allowed else row.outcome.value,
            form=Form.STATUS,
        ),
        Column(name="approved by", value=lambda row: ", ".join(row.approved_by)),
        Column(name="policy", value=lambda row: row.policy),
        Column(name="against", value=lambda row: row.against),
        Column(name="suite", value=lambda row: row.suite),
        Column(name="made", value=lambda row: row.created_at, form=Form.TIME),
    ),
    filters=(Filter(name="policy", about="Only verdicts on this policy."),),
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

    return Page(list_tests(db)[: query.limit])


AB_TEST_RECORDS = Record["AbTest"](
    name="A/B test",
    plural="tests",
    about="List A/B tests.",
    columns=(
        Column(name="test", value=lambda row: row.name, to=lambda row: path_to("ab", row.name)),
        Column(name="state", value=ab_state, form=Form.STATUS),
        Column(name="endpoint", value=lambda row: row.endpoint),
        Column(name="arms", value=lambda row: " against ".join(row.shares)),
        Column(name="metric", value=lambda row: row.metric),
        Column(name="layer", value=lambda row: f"{row.layer} {row.start:g} to {row.end:g}"),
        Column(name="started", value=lambda row: row.started_at, form=Form.TIME),
    ),
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
        Column(name="data set", value=lambda row: row.id),
        Column(name="train", value=lambda row: row.content["sizes"]["train"], form=Form.COUNT),
        Column(name="holdout", value=lambda row: row.content["sizes"]["holdout"], form=Form.COUNT),
        Column(name="for", value=lambda row: row.parent),
        Column(name="from", value=lambda row: ", ".join(row.content["hubs"])),
        Column(name="made", value=lambda row: row.created_at, form=Form.TIME),
    ),
    filters=(Filter(name="trajectory", about="Only data sets with this trajectory."),),
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
        Column(
            name="trajectory", value=lambda row: row.trajectory, to=lambda row: path_to("trajectories", row.trajectory)
        ),
        Column(name="endpoint", value=lambda row: row.endpoint),
        Column(name="total", value=lambda row: row.total, form=Form.NUMBER),
        Column(name="confidence", value=lambda row: row.confidence, form=Form.NUMBER),
        Column(name="scores", value=scores_text),
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
        Column(
            name="trajectory", value=lambda row: row.trajectory, to=lambda row: path_to("trajectories", row.trajectory)
        ),
        Column(name="call", value=lambda row: row.call),
        Column(name="source", value=lambda row: row.source),
        Column(name="kind", value=lambda row: row.kind),
        Column(name="value", value=lambda row: row.value, form=Form.NUMBER),
        Column(name="words", value=lambda row: row.comment or str(row.data.get("text", "")), form=Form.WORDS),
        Column(name="given", value=lambda row: row.created_at, form=Form.TIME),
    ),
    filters=(Filter(name="trajectory", about="Only feedback on this trajectory, whose id is its session's."),),
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
        Column(name="question", value=lambda row: row.id),
        Column(name="asked", value=lambda row: row.question, form=Form.WORDS),
        Column(name="choices", value=lambda row: " | ".join(row.choices)),
        Column(
            name="about",
            value=lambda row: "\n".join(f"{each.role}: {each.content}" for each in row.conversation),
            form=Form.WORDS,
        ),
        Column(name="waits until", value=lambda row: row.expires_at, form=Form.TIME),
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
        Column(name="job", value=lambda row: row.id[:8]),
        Column(name="endpoint", value=lambda row: row.endpoint),
        Column(name="state", value=lambda row: row.phase.value, form=Form.STATUS),
        Column(name="trigger", value=lambda row: row.trigger.value),
        Column(name="policy", value=lambda row: row.policy or row.run),
        Column(name="changed", value=lambda row: row.at, form=Form.TIME),
        Column(name="reason", value=lambda row: row.reason, form=Form.WORDS),
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
        Column(name="file", value=lambda row: row.id),
        Column(name="state", value=lambda row: row.state, form=Form.STATUS),
        Column(name="trajectories", value=lambda row: row.count, form=Form.COUNT),
        Column(name="first", value=lambda row: row.first_at, form=Form.TIME),
        Column(name="last", value=lambda row: row.last_at, form=Form.TIME),
        Column(name="url", value=lambda row: row.url),
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
    count: int


def _read_hits(db: "LoomDB", query: Query) -> Page[HitRow]:
    from loomrl.serving.monitor.ledger import hits_on_record

    found = hits_on_record(db, endpoint=query.get("endpoint") or "")
    return Page([HitRow(hit, count) for hit, count in found.most_common(query.limit)])


HIT_RECORDS = Record[HitRow](
    name="hit",
    plural="hits",
    about="Count the hits of the monitor's rules by arm and version.",
    columns=(
        Column(name="endpoint", value=lambda row: row.hit.endpoint),
        Column(name="arm", value=lambda row: row.hit.arm),
        Column(name="version", value=lambda row: row.hit.version),
        Column(name="rule", value=lambda row: row.hit.rule),
        Column(name="what", value=lambda row: row.hit.what),
        Column(name="then", value=lambda row: row.hit.then),
        Column(name="count", value=lambda row: row.count, form=Form.COUNT),
    ),
    filters=(OF_ENDPOINT,),
    read=_read_hits,
    as_json=lambda row: {**asdict(row.hit), "count": row.count},
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
        Column(name="session", value=lambda row: row.session),
        Column(name="endpoint", value=lambda row: row.endpoint),
        Column(name="rule", value=lambda row: row.rule),
        Column(name="since", value=lambda row: row.at, form=Form.TIME),
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
        Column(name="key", value=lambda row: row.id),
        Column(name="owner", value=lambda row: row.name),
        Column(name="scopes", value=lambda row: ", ".join(row.scopes)),
        Column(name="rate", value=lambda row: row.rate, form=Form.NUMBER),
        Column(name="state", value=key_state, form=Form.STATUS),
        Column(name="created", value=lambda row: row.created_at, form=Form.TIME),
        Column(name="expires", value=lambda row: row.expires_at, form=Form.TIME),
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
        Column(name="person", value=lambda row: row.person[:16]),
        Column(name="since", value=lambda row: row.created_at, form=Form.TIME),
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
        Column(
            name="kind",
            value=lambda row: row.event.kind,
            to=lambda row: _audit(kind=row.event.kind),
        ),
        Column(
            name="subject",
            value=lambda row: row.event.subject,
            to=lambda row: _audit(subject=row.event.subject),
        ),
        Column(
            name="data",
            value=lambda row: json.dumps(dict(row.event.data), ensure_ascii=False) if row.event.data else "",
            form=Form.WORDS,
        ),
        Column(name="at", value=lambda row: row.event.created_at, form=Form.TIME),
        Column(name="position", value=lambda row: row.position, form=Form.COUNT),
    ),
    filters=(
        Filter(name="kind", about="A kind, such as deployment.made, or its first part.", choices=_kinds_of_events),
        Filter(name="subject", about="Only events about this subject."),
    ),
    read=_read_events,
    as_json=event_as_json,
    none="Nothing is on record yet.",
    limit=50,
)
