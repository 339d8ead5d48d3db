"""The groups of a frozen data set, update by update, in the place of rollouts.

The batch of an update follows from the data set, the seed and the update's number. So a run that was killed makes its
next update from the same trajectories, and a pass trains none twice: how far it is, the checkpoint that counts says.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from typing_extensions import override

from loomrl.algorithms.language.lesson import Lesson, lesson_of
from loomrl.algorithms.language.measure import measure, staleness
from loomrl.algorithms.language.passes import DataPasses, place_in_pass
from loomrl.algorithms.language.resolved import Algorithms, Resolved
from loomrl.algorithms.language.served.item import ServedItem, batches, items_of
from loomrl.algorithms.language.served.lesson import Teacher
from loomrl.algorithms.timing import Phases
from loomrl.config import DPO, KTO, RAFT, Experiment, LanguagePolicy
from loomrl.errors import ConfigError, DataError
from loomrl.feedback.content import Contents
from loomrl.gym.task_mixture import TaskMixture
from loomrl.store import LoomDB
from loomrl.store.datasets import Dataset, DatasetRow, find_dataset, read_rows
from loomrl.store.feedback import feedback_of
from loomrl.store.forgettings import list_replaced
from loomrl.store.policies import lineage
from loomrl.telemetry.metric import Metric
from loomrl.types import NO_VERSION, Failure, Feedback, Group, Reward, Tokens, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The runs behind a policy: `ages[run]` is the age of that run's version 0.

    A run that was made again without people stands for the one that it replaced, which answered at the time.
    """

    ages: dict[str, int]
    newest: dict[str, int]
    """Run → its last version that is an ancestor."""

    @staticmethod
    def of(db: LoomDB, parent: str | None, path: str | None) -> "Ancestry":
        """The ancestry of the version with this id, or of a model's folder."""
        if parent is None:
            name = Path(path or "").name
            return Ancestry({name: 0}, {name: 0})
        tree = lineage(db, parent)
        ages: dict[str, int] = {}
        newest: dict[str, int] = {}
        behind = 0
        for version in (tree, *tree["ancestors"]):
            run = version["made_from"]["run"]["id"]
            number = version["number"]
            if run not in ages:
                behind += number
                ages[run] = behind
                newest[run] = number
        for run, into, last in list_replaced(db):
            if into in ages:
                ages.setdefault(run, ages[into])
                newest.setdefault(run, last)
        return Ancestry(ages, newest)

    def age(self, versions: Iterable[str]) -> int | None:
        """The age of the oldest of these policies; None if one is not an ancestor."""
        ages = [self._age(*_split(version)) for version in versions]
        return None if not ages or None in ages else max(age for age in ages if age is not None)

    def date_tokens(self, tokens: Tokens, versions: Iterable[str]) -> Tokens:
        """The tokens with versions as the training counts them: 0 is its first, older ones are negative.

        `versions` are the policies that answered. Where their numbers leave a choice, a token counts as the older one.
        """
        runs = {_split(version)[0] for version in versions} & self.ages.keys()
        versions_T = np.full(len(tokens), NO_VERSION, np.int32)
        for number in np.unique(tokens.versions_T[tokens.mask_T]):
            ages = [age for run in runs if (age := self._age(run, int(number))) is not None]
            versions_T[tokens.mask_T & (tokens.versions_T == number)] = -max(ages, default=0)
        return replace(tokens, versions_T=versions_T)

    def _age(self, run: str, number: int) -> int | None:
        return max(0, self.ages[run] - number) if number <= self.newest.get(run, -1) else None


def _split(version: str) -> tuple[str, int]:
    run, _, number = version.rpartition("/")
    return (run, int(number)) if run and number.isdecimal() else (version, 0)


_log = logging.getLogger(__name__)

UNKNOWN = (Metric.SUCCESS.value, Metric.LEVEL.value)
TOGETHER = 500
"""Trajectories whose feedback is asked for at once."""
GONE = Failure("data", "Gone", "the trajectory was deleted after the data set was frozen")
LATE = Failure("staleness", "Late", "sampled by a version that is too old: raise hub.max_staleness")


class ServedCollector(DataPasses):
    """The groups of one run from a data set."""

    def __init__(self, resolved: Resolved, run: str, mixture: TaskMixture, *, contents: Contents, db: LoomDB) -> None:
        dataset = dataset_of(resolved.experiment, db)
        super().__init__(resolved.experiment, run, mixture, about={"dataset": dataset.id, "sha256": dataset.sha256})
        self._contents = contents
        self._teacher = Teacher(resolved)
        self._compares = not isinstance(resolved.algorithm, KTO | DPO | RAFT)
        parent = self.experiment.parent
        self._ancestry = Ancestry.of(db, parent, resolved.algorithm.model.path)
        rows = read_rows(db, dataset.id, part="train")
        items = items_of(resolved.algorithm, rows, read_feedback(db, rows))
        if self._compares:
            items = _of_ancestors(items, self._ancestry, parent or resolved.algorithm.model.path)
        self._plan = [batch for epoch in range(self._settings.epochs) for batch in self._pass(items, epoch)]
        self._refuse_stale()

    @property
    @override
    def planned(self) -> int:
        return len(self._plan)

    @override
    def learnt_in(self, update: int) -> Sequence[object]:
        return self._plan[update]

    def collect(self, policy: LanguagePolicy, clock: Phases) -> tuple[list[Group], dict[str, float]]:
        """The trajectories of this update by domain, with their frozen rewards, and their metrics.

        Success is not among these: it is another policy's, and seldom known.
        """
        self._ended = None
        domains: dict[str, list[Trajectory]] = {}
        failures: list[Failure] = []
        for row in {row.trajectory: row for item in self._batch() for row in item.rows}.values():
            if self._compares and self._age(row) + self.done > self.experiment.hub.max_staleness:
                failures.append(LATE)
            elif (attempt := self._contents.read(row)) is None:
                failures.append(GONE)
            else:
                domains.setdefault(row.domain, []).append(self._reward_attempt(attempt, row))
        groups = [Group(f"{self.run}/{self.done}/{name}", tuple(domains[name])) for name in sorted(domains)]
        found = measure(groups, failures, family_of=lambda task: "") | staleness(groups, self.done)
        return groups, {name: value for name, value in found.items() if not name.startswith(UNKNOWN)}

    def lesson(self, groups: Sequence[Group], algorithm: Algorithms) -> Lesson:
        """The samples of this update, from the trajectories of its groups."""
        if self._compares:
            return lesson_of(algorithm, groups, version=self.done)
        return self._teacher.lesson(self._batch(), {t.id: t for group in groups for t in group.trajectories})

    def score(self, mean: float | None) -> float | None:
        """None: what earlier answers earned says nothing about the policy that learns from them."""
        return None

    def _batch(self) -> list[ServedItem]:
        return self._plan[self.done]

    def _pass(self, items: Sequence[ServedItem], epoch: int) -> list[list[ServedItem]]:
        """The batches of one pass over the items."""
        group = self.experiment.rollout.group_size if self._compares else 1

        def age(item: ServedItem) -> int:
            return self._age(item.answers[0].row) if self._compares else 0

        def place(item: ServedItem) -> bytes:
            return place_in_pass(self.experiment.seed, epoch, item.key)

        return batches(items, size=self._settings.batch, group=group, place=place, age=age)

    def _age(self, row: DatasetRow) -> int:
        age = self._ancestry.age(row.versions)
        assert age is not None, "others were left out"
        return age

    def _reward_attempt(self, attempt: Trajectory, row: DatasetRow) -> Trajectory:
        """The trajectory with its frozen reward, on the last turn, and its tokens dated as this run counts."""

        def date_turns(turns: Sequence[Turn]) -> list[Turn]:
            tokens = [turn.tokens and self._ancestry.date_tokens(turn.tokens, row.versions) for turn in turns]
            return [replace(turn, reward=Reward(), tokens=each) for turn, each in zip(turns, tokens, strict=True)]

        reward = Reward(row.reward or 0.0, {}, attempt.reward.success)
        *before, last = date_turns(attempt.turns)
        further = tuple(tuple(date_turns(turns)) for turns in attempt.threads)
        return replace(attempt, reward=reward, turns=(*before, replace(last, reward=reward)), threads=further)

    def _refuse_stale(self) -> None:
        """A ConfigError if later updates would have to learn from tokens older than the promise."""
        most = self.experiment.hub.max_staleness
        last = self.limit - 1
        if self._compares and last > most:
            raise ConfigError(
                f"hub.max_staleness={most}: the run makes {self.limit} updates, and the last one learns from tokens "
                f"that are {last} versions old or more. Set hub.max_staleness={last}, a larger data.batch than "
                f"{self._settings.batch}, or fewer train.updates."
            )


def dataset_of(experiment: Experiment, db: LoomDB) -> Dataset:
    """The data set of an experiment's `data`."""
    data = experiment.data
    assert data is not None, "else there are rollouts"
    if data.dataset is None:
        raise ConfigError(f"{data.origin}: only algorithm.kind=sft reads a file. Name a data set, data.dataset=ID.")
    return find_dataset(db, data.dataset)


def read_feedback(db: LoomDB, rows: Sequence[DatasetRow]) -> dict[str, list[Feedback]]:
    """The frozen feedback by trajectory; what was given since is left out."""
    said: dict[str, list[Feedback]] = {}
    for first in range(0, len(rows), TOGETHER):
        known = {row.trajectory: {*row.feedback} for row in rows[first : first + TOGETHER] if row.feedback}
        for one in feedback_of(db, list(known)):
            if one.id in known[one.trajectory]:
                said.setdefault(one.trajectory, []).append(one)
    return said


def _of_ancestors(items: Sequence[ServedItem], ancestry: Ancestry, parent: str | None) -> list[ServedItem]:
    """The items that the policy or its ancestors answered: the age of others is unknown."""
    kept = [item for item in items if ancestry.age(item.answers[0].row.versions) is not None]
    if not kept:
        found = sorted({version for item in items for version in item.answers[0].row.versions})
        raise DataError(
            f"none of {len(items)} trajectories was answered by {parent} or an ancestor, but by "
            f"{', '.join(found[:5])}. Begin with one of these (parent), or learn with kto, dpo or raft."
        )
    if len(kept) < len(items):
        _log.warning(
            "%d of %d trajectories are not learnt from: neither %s nor an ancestor answered in them.",
            len(items) - len(kept),
            len(items),
            parent,
        )
    return kept
