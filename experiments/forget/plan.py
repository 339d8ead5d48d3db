"""The plan for removing people from weights: the versions that learnt from them, and the updates to replay."""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loomrl.algorithms.language.begin import ensure_origin
from loomrl.algorithms.language.passes import DataPasses
from loomrl.algorithms.language.source import open_data
from loomrl.algorithms.schedule import open_schedule
from loomrl.config import AnyExperiment, ControlExperiment, Experiment, Remote, RewardModel
from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.feedback.content import Contents
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.run.version import file_of, has_checkpoint
from loomrl.store import LoomDB
from loomrl.store.datasets import DatasetRow, find_dataset, identified, read_rows, record_dataset
from loomrl.store.endpoints import list_endpoints
from loomrl.store.forgettings import FORGETTINGS, MOST, find_learners, find_rows, spoken
from loomrl.store.runs import POLICIES, RUNS, Run, load_experiment, served_version
from loomrl.store.sessions import person_hash
from loomrl.store.view.metrics import read_metrics
from loomrl.telemetry.metric import PHASES
from loomrl.types import PolicyVersion, Stage

SHARE = 0.5
"""Share of a training part that may be left out; more would make another policy, not the present one without them."""
ELSE = "Release a version that did not learn from them (loomrl release VERSION --to ENDPOINT); then it is only retired."
WITHOUT = re.compile(r"-without-[0-9a-f]{8}$")
STATE = "line.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A data set that has their rows, or rows that are gone, and the one without."""

    dataset: str
    without: str
    gone: int
    """Rows of others that were deleted before: they are left out too."""
    before: int
    """Rows of the training part."""
    train: int
    """Those that are left."""
    runs: set[str] = field(default_factory=set)
    """The runs that learn from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A run to make again without the rows, as far as its versions are needed."""

    run: str
    into: str
    start: int
    """The version of the run from which it goes on; 0: from its beginning."""
    parent: str | None
    """The version that the run began with; if it is replayed too, the replayed one takes its place."""
    targets: Mapping[str, int]
    """Version to replace → the number of updates of the one in its place."""
    updates: int
    rows: int
    tokens: int
    seconds: float | None
    """Seconds that the original updates took; None if not on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPlan:
    """All that is known before the record of the people is deleted."""

    trajectories: tuple[str, ...]
    datasets: tuple[LeftOut, ...] = ()
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Data set → hashes of the content of their rows in its training part."""
    untouched: Mapping[str, int] = field(default_factory=dict)
    """Run that has their rows among its data → its last version that had learnt from none of them."""
    versions: tuple[str, ...] = ()
    """The versions that learnt from them, or descend from such."""
    replays: tuple[Replay, ...] = ()
    """In the order in which they can be made."""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """Endpoint → its stable policy, if that learnt from them."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return json.loads(msgspec.json.encode(self))  # type: ignore[no-any-return]

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "WeightPlan":
        """The plan on record."""
        return msgspec.convert(stored, cls)


def plan_forgetting(db: LoomDB, store_url: str, endpoint: str, names: Sequence[str]) -> WeightPlan:
    """The plan for these people of an endpoint; a LoomError says why they cannot be taken out.

    It stores the data sets without their rows.
    """
    trajectories = _find_sessions(db, endpoint, names)
    rows = find_rows(db, trajectories)
    trained = [id for id, each in rows.items() if any(row.part == "train" for row in each)]
    planner = _Planner(db, store_url, trajectories, datasets=trained, id=people_id(endpoint, names))
    untouched = {run.id: planner.untouched(run) for run in _runs_on(db, trained)}
    learnt = {
        id: version for id, version in find_learners(db, untouched).items() if version.stage is not Stage.FORGOTTEN
    }
    served = _served(db, learnt)
    replays = planner.replays(served.values(), learnt, untouched)
    used = {replay.run for replay in replays}
    return WeightPlan(
        trajectories=tuple(sorted(trajectories)),
        datasets=tuple(left for left in planner.left_out.values() if left.runs & used),
        rows={id: tuple(sorted(row.sha256 for row in rows[id] if row.part == "train")) for id in trained},
        untouched=untouched,
        versions=tuple(sorted(learnt)),
        replays=replays,
        endpoints=served,
    )


def _find_sessions(db: LoomDB, endpoint: str, names: Sequence[str]) -> set[str]:
    """The sessions of these people; a ConfigError if one has none, for a misspelt name would get a certificate."""
    found = {name: spoken(db, endpoint, [name]) for name in names}
    known = {person for one in FORGETTINGS.latest(db, endpoint=endpoint, limit=MOST) for person in one.people}
    for name, sessions in found.items():
        if not sessions and person_hash(endpoint, name) not in known:
            raise ConfigError(
                f"no session of {name!r} is on record at endpoint {endpoint!r}. Names are those that callers give in "
                "`user`. If the record was deleted before, what was trained on it cannot be found any more."
            )
    return set().union(*found.values())


def _served(db: LoomDB, learnt: Collection[str]) -> dict[str, str]:
    """Endpoint → the version that is stable there, of those that learnt; a ConfigError if another arm has one."""
    found: dict[str, str] = {}
    for endpoint in list_endpoints(db):
        for arm in endpoint.arms:
            version = served_version(db, arm.policy)
            if version not in learnt:
                continue
            if arm is not endpoint.stable:
                raise ConfigError(
                    f"endpoint {endpoint.name!r}: arm {arm.name!r} has {arm.policy}, which learnt from these people. "
                    f"End its test or release first (loomrl release abort {endpoint.name})."
                )
            found[endpoint.name] = version
    return found


def people_id(endpoint: str, names: Sequence[str]) -> str:
    """Eight digits that stand for these people in the names of runs."""
    return person_hash(endpoint, "\0".join(sorted(names)))[:8]


def substitute(experiment: AnyExperiment, instead: Mapping[str, str]) -> AnyExperiment:
    """The experiment with other texts in the place of these, wherever they are: ids of data sets and versions."""

    def change(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: change(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [change(each) for each in value]
        return instead.get(value, value) if isinstance(value, str) else value

    return type(experiment).parse(change(experiment.plain), origin=experiment.name)


def _runs_on(db: LoomDB, datasets: Sequence[str]) -> list[Run]:
    """The trainings whose experiment names one of these data sets."""
    found: dict[str, Run] = {}
    for id in datasets:
        query = RUNS.select(kind="train").where(RUNS.c.resolved.contains(id, autoescape=True))
        found |= {run.id: run for run in RUNS.fetch(db, query)}
    return list(found.values())


class _Planner:
    """Finds what each run has learnt, and what has to be made again."""

    def __init__(
        self, db: LoomDB, store_url: str, trajectories: Collection[str], *, datasets: Sequence[str], id: str
    ) -> None:
        self._theirs = datasets
        self._db = db
        self._url = store_url
        self._trajectories = trajectories
        self._id = id
        self._limits: dict[str, tuple[int, int]] = {}
        """Run → its updates in all, and those without the rows."""
        self._faults: dict[str, LoomError] = {}
        """Run → why it cannot be made again."""
        self.left_out: dict[str, LeftOut] = {}
        """By data set."""

    # -- what was learnt --------------------------------------------------------------------------------------------

    def untouched(self, run: Run) -> int:
        """The last version of a run that had learnt from none of the rows; 0 where that cannot be known any more."""
        experiment = load_experiment(run)
        if not _is_from_data(experiment) or POLICIES.latest(self._db, run=run.id, stage=Stage.FORGOTTEN, limit=1):
            return 0
        assert isinstance(experiment, Experiment)
        try:
            rest = self._source(self._without(run, experiment))
        except LoomError as error:
            self._faults[run.id] = error
            return 0
        updates = max((version.number for version in POLICIES.latest(self._db, run=run.id, limit=MOST)), default=0)
        self._limits[run.id] = updates, rest.limit
        try:
            whole = self._source(experiment)
        except LoomError:
            return 0
        self._limits[run.id] = whole.limit, rest.limit
        return _count_alike(whole, rest, experiment)

    def _source(self, experiment: Experiment) -> DataPasses:
        resolved = open_algorithm(experiment.override({"store_url": self._url})).resolved
        mixture = open_task_mixture(experiment, self._db)
        ensure_origin(resolved, mixture, self._db)
        with open_data(resolved, "plan", mixture, db=self._db) as passes:
            return passes

    def _without(self, run: Run, experiment: Experiment) -> Experiment:
        """The experiment on its data without the rows; a ConfigError if too little is left."""
        lefts = [self._leave_out(id) for id in self._named(experiment)]
        for left in lefts:
            left.runs.add(run.id)
            if left.train < (1 - SHARE) * left.before:
                raise ConfigError(
                    f"data set {left.dataset}: {left.before - left.train} of its {left.before} training rows would be "
                    f"left out ({left.gone} of them were deleted before); at most {SHARE:.0%} may be, for the rest "
                    "makes another policy."
                )
        changed = substitute(experiment, {left.dataset: left.without for left in lefts})
        assert isinstance(changed, Experiment)
        return changed

    def _named(self, experiment: Experiment) -> list[str]:
        """The data sets to learn from, and those with their rows whose prompts are tasks."""
        data = experiment.data
        own = [] if data is None or data.dataset is None else [data.dataset]
        text = json.dumps(experiment.plain)
        return [*own, *(id for id in self._theirs if id not in own and json.dumps(id) in text)]

    def _leave_out(self, id: str) -> LeftOut:
        """Store the data set without the rows, and without those that are gone."""
        if id in self.left_out:
            return self.left_out[id]
        dataset = find_dataset(self._db, id)
        rows = read_rows(self._db, dataset.id)
        others = [row for row in rows if row.trajectory not in self._trajectories]
        with Contents(self._url) as contents:
            left = [row for row in others if contents.read(row) is not None]
        train = _count_training(left)
        sizes = {"train": train, "holdout": len(left) - train}
        content = {**dataset.content, "sizes": sizes, "without": {"dataset": id, "rows": len(rows) - len(left)}}
        name = f"{WITHOUT.sub('', dataset.name)}-without-{self._id}"
        made = identified(name, content, left, created_at=dataset.created_at)
        if train and len(left) < len(rows):
            record_dataset(self._db, made, left)
        self.left_out[id] = LeftOut(
            dataset=id,
            without=made.id if len(left) < len(rows) else id,
            gone=len(others) - len(left),
            before=_count_training(rows),
            train=train,
        )
        return self.left_out[id]

    # -- what has to be made again ----------------------------------------------------------------------------------

    def replays(
        self, targets: Iterable[str], learnt: Mapping[str, PolicyVersion], untouched: Mapping[str, int]
    ) -> tuple[Replay, ...]:
        """The runs behind these versions as far back as they learnt, ancestors first."""
        needed: dict[str, list[PolicyVersion]] = {}
        waiting = [learnt[id] for id in targets]
        while waiting:
            version = waiting.pop()
            if version in needed.get(version.run, ()):
                continue
            needed.setdefault(version.run, []).append(version)
            parent = RUNS.require(self._db, version.run).parent_policy
            if parent is not None and parent in learnt:
                waiting.append(learnt[parent])
        ordered = sorted(needed, key=lambda run: RUNS.require(self._db, run).started_at)
        return tuple(self._replay(run, needed[run], learnt, untouched) for run in ordered)

    def _replay(
        self, id: str, versions: Sequence[PolicyVersion], learnt: Collection[str], untouched: Mapping[str, int]
    ) -> Replay:
        run = RUNS.require(self._db, id)
        experiment = load_experiment(run)
        refuse_replay(run, experiment)
        assert isinstance(experiment, Experiment)
        try:
            if id in self._faults:
                raise self._faults[id]
            self._without(run, experiment)
        except LoomError as error:
            raise ConfigError(f"run {id!r} cannot be made again without these people: {error} {ELSE}") from None
        whole, rest = self._limits.get(id, (experiment.train.updates, experiment.train.updates))
        start = 0 if run.parent_policy in learnt else self._start(run, untouched.get(id, 0))
        targets = {
            version.id: rest if version.number >= whole else min(rest, version.number)
            for version in sorted(versions, key=lambda version: version.number)
        }
        last = max(targets.values())
        rows, tokens = self._cost(experiment, last - start)
        return Replay(
            run=id,
            into=f"{WITHOUT.sub('', id)}-without-{self._id}",
            start=start,
            parent=run.parent_policy,
            targets=targets,
            updates=last - start,
            rows=rows,
            tokens=tokens,
            seconds=_seconds(self._db, id, after=start, upto=max(version.number for version in versions)),
        )

    def _start(self, run: Run, untouched: int) -> int:
        """The newest version that learnt from none of the rows, and from which the run can go on; 0 without any."""
        made = POLICIES.latest(self._db, run=run.id, limit=MOST)
        for version in sorted(made, key=lambda version: -version.number):
            if 0 < version.number <= untouched and has_checkpoint(version, self._db):
                state = file_of(version, self._db, STATE)
                if state is not None and msgspec.json.decode(state).get("order"):
                    return version.number
        return 0

    def _cost(self, experiment: Experiment, updates: int) -> tuple[int, int]:
        """Rows and tokens of the policy that so many updates learn from; of rollouts, the attempts."""
        data = experiment.data
        if data is None:
            return updates * experiment.rollout.groups_per_update * experiment.rollout.group_size, 0
        rows = updates * data.batch
        if data.dataset is None:
            return rows, 0
        left = self.left_out[data.dataset]
        tokens = [row.tokens for row in read_rows(self._db, left.without, part="train")]
        rows = min(rows, data.epochs * len(tokens))
        return rows, round(rows * math.fsum(tokens) / max(1, len(tokens)))


def refuse_replay(run: Run, experiment: AnyExperiment) -> None:
    """A ConfigError for a run that cannot be made again by its experiment alone."""
    if isinstance(experiment, ControlExperiment) or isinstance(experiment.algorithm, RewardModel | Remote):
        kind = "control" if isinstance(experiment, ControlExperiment) else experiment.algorithm.kind
        raise ConfigError(f"run {run.id!r} is a training of {kind}, which is not made again without people. {ELSE}")
    if run.parent_policy != experiment.parent:
        raise ConfigError(
            f"run {run.id!r} took over the weights of {run.parent_policy} (a trial of a sweep): its experiment alone "
            f"does not make it again. {ELSE}"
        )


def _is_from_data(experiment: AnyExperiment) -> bool:
    """True if the experiment learns from a data set through `data` alone, update by update."""
    if not isinstance(experiment, Experiment) or isinstance(experiment.algorithm, RewardModel | Remote):
        return False
    return experiment.data is not None and experiment.data.dataset is not None


def _count_alike(whole: DataPasses, rest: DataPasses, experiment: Experiment) -> int:
    """The updates from the beginning that are the same in both."""
    optimizer = open_algorithm(experiment).algorithm.optimizer
    rates = [open_schedule(optimizer.learning_rate, optimizer.schedule, each.limit) for each in (whole, rest)]
    for update in range(min(whole.limit, rest.limit)):
        if rates[0].rate(update) != rates[1].rate(update) or whole.learnt_in(update) != rest.learnt_in(update):
            return update
    return min(whole.limit, rest.limit)


def _count_training(rows: Sequence[DatasetRow]) -> int:
    return sum(row.part == "train" for row in rows)


def _seconds(db: LoomDB, run: str, *, after: int, upto: int) -> float | None:
    """Seconds of the run's updates between these, as measured then."""
    rows = [row for row in read_metrics(db, run, limit=MOST) if after < row.step <= upto]
    if not rows:
        return None
    return math.fsum(row.values.get(phase) or 0.0 for row in rows for phase in PHASES)
