"""People's ratings of trajectories on record, from feedback or from the inbox."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from loomrl.canonical import content_hash
from loomrl.config.rewards import Criterion
from loomrl.feedback.reward.component import newest
from loomrl.feedback.reward.inspection import has_words
from loomrl.gym.judge import conversation
from loomrl.gym.rubric import VERDICTS, question, worth
from loomrl.hub.hub import Hub, Selection
from loomrl.store.db import LoomDB
from loomrl.store.erasures import erase_late
from loomrl.store.feedback import FEEDBACK
from loomrl.store.judgements import Judgement, ask, id_about, list_answered, trajectory_of
from loomrl.types import Feedback, Message, Trajectory

RATED = ("thumb", "stars", "outcome")
"""Kinds of feedback that say how good an answer was."""
CHOICE = "choice"
PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A trajectory with people's rating."""

    id: str
    conversation: tuple[Message, ...]
    rating: float | None
    """From 0 to 1; None if it was only compared with another, or not judged by every criterion."""
    verdicts: Mapping[str, float] = field(default_factory=dict)
    """By criterion, where people were asked about it."""

    @property
    def length(self) -> int:
        """Characters of what the assistant said."""
        return sum(len(message.text) for message in self.conversation if message.role == "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleRatings:
    """People's ratings and choices."""

    rated: Sequence[Rated]
    pairs: Sequence[tuple[str, str]] = ()
    """Trajectories of which the first was preferred to the second."""
    gone: int = 0
    """Trajectories with a rating that the hub does not have."""

    def some(self, count: int) -> "PeopleRatings":
        """A fixed sample of the trajectories: the first by a hash of their ids."""
        rated = sorted(self.rated, key=lambda one: content_hash(one.id))[:count]
        ids = {one.id for one in rated}
        pairs = [(better, worse) for better, worse in self.pairs if better in ids and worse in ids]
        return PeopleRatings(rated=rated, pairs=pairs, gone=self.gone)


def from_feedback(db: LoomDB, hub: Hub) -> PeopleRatings:
    """Ratings of what this hub has: the mean of the newest thumb, stars and outcome of each answer; and choices."""
    given: dict[str, list[Feedback]] = {}
    pairs: set[tuple[str, str]] = set()
    for one in _all_feedback(db):
        if one.kind in RATED:
            given.setdefault(one.trajectory, []).append(one)
        elif one.kind == CHOICE and "over" in one.data and "trajectory" in one.data:
            pairs.add((one.trajectory, str(one.data["trajectory"])))
    found = _read(hub, given.keys() | {id for pair in pairs for id in pair})
    rated = [Rated(id=id, conversation=conversation(one), rating=_mean(given.get(id, ()))) for id, one in found.items()]
    held = sorted((better, worse) for better, worse in pairs if better in found and worse in found)
    return PeopleRatings(rated=rated, pairs=held, gone=len(given.keys() - found.keys()))


def from_inbox(db: LoomDB, criteria: Sequence[Criterion], hub: Hub) -> PeopleRatings:
    """Answers to `ask_people`. A trajectory that was judged by every criterion has the weighted share as its rating."""
    names = {question(criterion): criterion.name for criterion in criteria}
    found: dict[str, dict[str, Judgement]] = {}
    for one in list_answered(db, list(names)):
        found.setdefault(trajectory_of(one.id), {})[names[one.question]] = one
    there = _read(hub, found.keys())
    rated = [_rate(one, found[id], criteria) for id, one in there.items()]
    return PeopleRatings(rated=rated, gone=len(found.keys() - there.keys()))


def ask_people(db: LoomDB, hub: Hub, criteria: Sequence[Criterion], *, count: int, days: float) -> int:
    """Put a question for every criterion of so many of the hub's trajectories into the inbox; how many trajectories.

    The same ones each time, spread over all that it has: the first by a hash of their ids.
    """
    ids = [one.id for _, one in hub.replay(selection=Selection()) if has_words(one)]
    chosen = sorted(ids, key=content_hash)[:count]
    now = time.time()
    for one in _read(hub, chosen).values():
        for criterion in criteria:
            asked = Judgement(
                id=id_about(one.id, question(criterion)),
                question=question(criterion),
                conversation=tuple(Message(message.role, message.text) for message in conversation(one)),
                choices=VERDICTS,
                created_at=now,
                expires_at=now + days * 86_400,
            )
            ask(db, asked)
    return len(chosen) - len(erase_late(db, chosen))


def _rate(one: Trajectory, answers: Mapping[str, Judgement], criteria: Sequence[Criterion]) -> Rated:
    verdicts = {name: worth(str(answer.choice)) for name, answer in answers.items()}
    total = fsum(criterion.weight for criterion in criteria)
    whole = verdicts.keys() == {criterion.name for criterion in criteria}
    rating = fsum(each.weight * verdicts[each.name] for each in criteria) / total if whole else None
    return Rated(id=one.id, conversation=conversation(one), rating=rating, verdicts=verdicts)


def _mean(given: Sequence[Feedback]) -> float | None:
    values = [one.value for one in newest(given, RATED)]
    return fsum(values) / len(values) if values else None


def _all_feedback(db: LoomDB) -> Iterator[Feedback]:
    after = 0
    while page := FEEDBACK.read(db, after=after, limit=PAGE):
        yield from (one for _, one in page)
        after = page[-1][0]


def _read(hub: Hub, ids: Collection[str]) -> dict[str, Trajectory]:
    """Those of these trajectories that the hub has, and that said something."""
    rest = sorted(ids)
    found = dict[str, Trajectory]()
    while rest:
        some = tuple(rest[:PAGE])
        rest = rest[PAGE:]
        found |= {one.id: one for _, one in hub.replay(selection=Selection(ids=some)) if has_words(one)}
    return found
