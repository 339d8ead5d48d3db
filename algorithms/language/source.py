"""Where a run's groups come from: rollouts in turns with updates, rollouts that go on meanwhile, or data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from loomrl.algorithms.language.collector import TurnCollector
from loomrl.algorithms.language.conversations import ConversationSource
from loomrl.algorithms.language.lesson import Lesson
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.resolved import Algorithms, Resolved
from loomrl.algorithms.language.runner_group import RunnerGroup
from loomrl.algorithms.language.served.collector import ServedCollector
from loomrl.algorithms.language.steering import open_steering
from loomrl.algorithms.language.stream import StreamCollector
from loomrl.algorithms.language.underway import Underway
from loomrl.algorithms.timing import Pace, Phases
from loomrl.config import SFT, LanguagePolicy
from loomrl.feedback.content import Contents
from loomrl.gym.rewards import open_shaping
from loomrl.gym.task_mixture import TaskMixture
from loomrl.hub import open_hub
from loomrl.run.ledger import VersionLedger
from loomrl.store import RECONNECT_S, LoomDB, beside, open_store
from loomrl.store.notes import Notes
from loomrl.store.runs import Claim
from loomrl.types import Group


class Source(Protocol):
    """The groups of one run, update by update, and how far the run is."""

    run: str
    mixture: TaskMixture
    done: int
    """Updates made: the number of the present version."""

    @property
    def limit(self) -> int:
        """Updates in all."""

    @property
    def over(self) -> str | None:
        """The reason why no update is left; None while one is."""

    def collect(self, policy: LanguagePolicy, clock: Phases) -> tuple[list[Group], dict[str, float]]:
        """The next update's groups, and metrics of them; seconds of rollouts are counted in `clock`."""

    def lesson(self, groups: Sequence[Group], algorithm: Algorithms) -> Lesson:
        """The samples to learn from, for these groups."""

    def timing(self, pace: Pace, clock: Phases) -> dict[str, float]:
        """Metrics of how engines and learner shared the update."""

    def samples_with(self, version: int) -> bool:
        """True if later groups are sampled with this version, so that engines need its weights."""

    def advance(self, groups: Sequence[Group]) -> None:
        """Count the update that was made from these groups."""

    def end(self, reason: str) -> None:
        """Make no further update, unless one is asked for."""

    @property
    def held_out(self) -> Sequence[Sample]:
        """Samples that are never learnt from, whose loss is measured."""

    def score(self, mean: float | None) -> float | None:
        """The score by which the best version is chosen, from its mean success; None if there is none."""

    def ledger(self, db: LoomDB, claim: Claim) -> VersionLedger:
        """The run's versions, and what each was trained on."""

    def checkpoint_state(self, url: str) -> dict[str, Any]:
        """The state needed to resume, as JSON, for a checkpoint of the present version at this URL."""

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""


@contextmanager
def open_data(
    resolved: Resolved, run: str, mixture: TaskMixture, *, db: LoomDB
) -> Iterator[ConversationSource | ServedCollector]:
    """The source of a run that learns from data."""
    if isinstance(resolved.algorithm, SFT):
        yield ConversationSource(resolved, run, mixture, db=db)
        return
    with Contents(resolved.experiment.store_url) as contents:
        yield ServedCollector(resolved, run, mixture, contents=contents, db=db)


@contextmanager
def open_source(
    resolved: Resolved, run: str, mixture: TaskMixture, *, runners: RunnerGroup, db: LoomDB
) -> Iterator[Source]:
    """The source of a run; rollouts have a hub of the run's own, in a LoomDB beside the experiment's."""
    experiment = resolved.experiment
    if experiment.data is not None:
        with open_data(resolved, run, mixture, db=db) as passes:
            yield passes
        return
    url = beside(experiment.store_url, run)
    groups = experiment.rollout.groups_per_update * experiment.train.checkpoint_every
    steered = open_steering(resolved.algorithm, mixture, list(open_shaping(experiment.rewards).weights))
    with (
        open_hub(
            url, experiment.hub, groups_per_update=groups, environments=experiment.environments, reconnect_s=RECONNECT_S
        ) as hub,
        open_store(url, reconnect_s=RECONNECT_S) as store,
    ):
        notes = Notes(store)
        if experiment.asynchronous:
            players = Underway(runners, turn_timeout_s=experiment.rollout.turn_timeout_s)
            yield StreamCollector.of(experiment, run, hub, notes, mixture, steered=steered, players=players)
        else:
            yield TurnCollector.of(experiment, run, hub, notes, mixture, steered=steered, play=runners.play)
