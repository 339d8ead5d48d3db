"""The step `judge`: new trajectories and new feedback of an endpoint become rewards, by cursors on record.

Rewards, their events and the cursors are one transaction, which holds only if nobody else judged meanwhile. So any
number of processes may judge one endpoint, and wherever one is killed, every reward is made once.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from loomrl.config import HubConfig
from loomrl.config.rewards import RewardPipeline
from loomrl.feedback.reward.component import NumberLog
from loomrl.feedback.reward.inspection import Inspection
from loomrl.feedback.reward.pipeline import Pipeline, RewardCase, Trails, case_of
from loomrl.feedback.reward.watch import Alarm, HackingWatch
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.store import LoomDB
from loomrl.store.erasures import find_erased
from loomrl.store.feedback import FEEDBACK, feedback_of
from loomrl.store.notes import find_note, put_note
from loomrl.store.rewards import REWARDS, StoredReward, latest_rewards, newest_rewards, store_rewards
from loomrl.types import Feedback, Trajectory

PAGE = 500
"""Trajectories, and rows of feedback, of one round: what a round may keep others waiting."""
SLOW = 8
"""Trajectories of one round that a judge or the sandbox has to look at: feedback waits no longer than for these."""
Page = Sequence[tuple[int, Trajectory]]


@dataclass(frozen=True, slots=True)
class JudgingRound:
    """One round: what was read, and the number of rewards. `is_stale`: another process was first, and no rewards were
    stored."""

    trajectories: int = 0
    feedback: int = 0
    rewards: int = 0
    alarms: tuple[Alarm, ...] = ()
    is_stale: bool = False

    @property
    def is_idle(self) -> bool:
        """True if there was nothing to read."""
        return not (self.trajectories or self.feedback)


@dataclass(frozen=True, slots=True)
class JudgingCursors:
    """Positions up to which trajectories and feedback are judged."""

    hub: int = 0
    feedback: int = 0


class Judging:
    """The step for one endpoint. It keeps the trails of its rounds in memory, and reads them anew where others judged.

    `endpoint` is the name under which rewards are stored; `hub` is where its trajectories are.
    """

    def __init__(
        self, db: LoomDB, hub: Hub, pipeline: Pipeline, *, endpoint: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._db = db
        self._hub = hub
        self._pipeline = pipeline
        self._endpoint = endpoint
        self._clock = clock
        self._inspection = Inspection(pipeline.settings)
        self._key = f"rewards/{endpoint}"
        self._watch = HackingWatch(db, endpoint, pipeline.settings.watch)
        self._trails: Trails | None = None
        self._seen = 0

    def round(self) -> JudgingRound:
        """Judge the next page of feedback and of trajectories; at once, if there is nothing new."""
        with self._db.read() as connection:
            note = find_note(connection, self._key)
        cursors = JudgingCursors() if note is None else JudgingCursors(**json.loads(note))
        told = FEEDBACK.read(self._db, after=cursors.feedback, limit=PAGE)
        page = self._page(cursors.hub)
        if not told and not page:
            return JudgingRound()
        try:
            made = self._rewards([*self._cases_again(told, page), *self._cases(page)])
            new = JudgingCursors(page[-1][0] if page else cursors.hub, told[-1][0] if told else cursors.feedback)
            is_stored = self._store(made, note, new)
        except BaseException:
            self._trails = None  # they remember rewards that are not on record
            raise
        if not is_stored:
            return JudgingRound(len(page), len(told), is_stale=True)
        return JudgingRound(len(page), len(told), len(made), tuple(self._watch.look(at=self._clock())))

    def drain(self) -> JudgingRound:
        """Rounds until there is nothing new; their sums."""
        total = JudgingRound()
        while not (done := self.round()).is_idle:
            if not done.is_stale:
                total = JudgingRound(
                    total.trajectories + done.trajectories,
                    total.feedback + done.feedback,
                    total.rewards + done.rewards,
                    total.alarms + done.alarms,
                )
        return total

    def start_over(self) -> None:
        """Judge everything in the hub again: what stands on other grounds than these settings gets a new reward."""
        with self._db.write() as connection:
            put_note(connection, self._key, _text(JudgingCursors()))

    def _page(self, after: int) -> list[tuple[int, Trajectory]]:
        """The next trajectories; it ends early behind some that take time."""
        page: list[tuple[int, Trajectory]] = []
        slow = 0
        for cursor, trajectory in self._hub.read(after, limit=PAGE):
            page.append((cursor, trajectory))
            slow += self._inspection.takes_time(trajectory)
            if slow == SLOW:
                break
        return page

    def _cases(self, page: Page) -> list[RewardCase]:
        """Trajectories whose turn has come: they are judged with all feedback that there is."""
        trajectories = [one for _, one in page]
        found = self._inspection.inspect(trajectories)
        before = self._before([one.id for one in trajectories])
        return [self._pipeline.case(one, before=before.get(one.id), found=found[one.id]) for one in trajectories]

    def _cases_again(self, told: Sequence[tuple[int, Feedback]], page: Page) -> list[RewardCase]:
        """Trajectories that were judged without this feedback. Others will find it when their turn comes."""
        turns = {one.id for _, one in page}
        named = dict.fromkeys(one.trajectory for _, one in told if one.trajectory not in turns)
        before = self._before(named)
        return [case_of(before[id]) for id in named if id in before]

    def _before(self, trajectories: Collection[str]) -> dict[str, StoredReward]:
        """The endpoint's own rewards that hold up to now."""
        found = latest_rewards(self._db, trajectories)
        return {id: one for id, one in found.items() if one.endpoint == self._endpoint}

    def _rewards(self, cases: Sequence[RewardCase]) -> list[StoredReward]:
        """The rewards of cases whose grounds have changed."""
        told: dict[str, list[Feedback]] = {}
        for one in feedback_of(self._db, [case.trajectory for case in cases]):
            told.setdefault(one.trajectory, []).append(one)
        at = self._clock()
        made = []
        for case in cases:
            feedback = told.get(case.trajectory, [])
            if case.before is None or case.before.content["grounds"] != self._pipeline.grounds(feedback):
                trails = self._trails_for(case.task)
                made.append(self._pipeline.reward(case, feedback, trails, endpoint=self._endpoint, at=at))
        return made

    def _trails_for(self, task: str) -> Trails:
        """The trails as the record has them, with that of this type of task."""
        window = self._pipeline.settings.window
        if self._trails is None:
            newest = newest_rewards(self._db, self._endpoint, limit=window)
            self._trails = Trails(window)
            self._seen = newest[-1][0] if newest else 0
            for _, one in newest:
                self._trails.take(one)
        if task not in self._trails.tasks:
            habits = self._trails.tasks[task] = NumberLog(window)
            for _, one in newest_rewards(self._db, self._endpoint, limit=window, task=task):
                habits.add(one.trajectory, one.content["measures"])
        return self._trails

    def _store(self, made: Sequence[StoredReward], note: str | None, new: JudgingCursors) -> bool:
        """Store rewards and cursors, unless another process has judged since they were read."""
        with self._db.write() as connection:
            is_seen = self._trails is None or REWARDS.last(connection, endpoint=self._endpoint) == self._seen
            if not is_seen or find_note(connection, self._key) != note:
                self._trails = None
                return False
            gone = find_erased(connection, [one.trajectory for one in made])
            store_rewards(connection, [one for one in made if one.trajectory not in gone])
            put_note(connection, self._key, _text(new))
            if gone:
                self._trails = None  # they remember those people
            elif self._trails is not None:
                self._seen = REWARDS.last(connection, endpoint=self._endpoint)
        return True


def _text(cursors: JudgingCursors) -> str:
    return json.dumps(asdict(cursors))


@contextmanager
def open_judging(db: LoomDB, url: str, endpoint: str, settings: RewardPipeline) -> Iterator[Judging]:
    """The step for what an endpoint served; `url` is that of `db`, beside which the endpoint's hub is."""
    pipeline = Pipeline(settings)
    with open_endpoint_hub(url, endpoint, HubConfig()) as hub:
        yield Judging(db, hub, pipeline, endpoint=endpoint)
