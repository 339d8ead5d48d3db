"""The items that an algorithm learns from in a data set: judged answers, pairs of answers, and the best ones.

Items follow from the frozen rows and their feedback alone; trajectories are read when their turn comes.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loomrl.algorithms.language.advantage import preference_pairs
from loomrl.algorithms.language.resolved import Algorithms
from loomrl.config import DPO, KTO, RAFT, RewardModel
from loomrl.errors import DataError
from loomrl.store.datasets import DatasetRow
from loomrl.types import Feedback

CORRECTION = "correction"
CHOICE = "choice"
NEUTRAL = 0.5
"""Feedback of this value says neither."""
Said = Mapping[str, Sequence[Feedback]]
"""Trajectory → its feedback, oldest first."""


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """An answer on record."""

    row: DatasetRow
    call: str = ""
    """Its call; empty for all the answers of the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedItem:
    """One answer; or a pair, in which the first answer is preferred to the second."""

    answers: tuple[ServedAnswer, ...]
    label: float = 0.0
    """Weight of a judged answer, negative if it is undesirable."""
    text: str | None = None
    """A person's correction, in the place of the first answer."""

    @property
    def domain(self) -> str:
        """The domain of its first answer."""
        return self.answers[0].row.domain

    @property
    def key(self) -> str:
        """The name of what is learnt, equal in every data set that has it."""
        return " ".join([*(f"{answer.row.trajectory}/{answer.call}" for answer in self.answers), self.text or ""])

    @property
    def rows(self) -> tuple[DatasetRow, ...]:
        """The rows of its answers, each once."""
        return tuple({answer.row.trajectory: answer.row for answer in self.answers}.values())


def items_of(algorithm: Algorithms | RewardModel, rows: Sequence[DatasetRow], said: Said) -> list[ServedItem]:
    """The items of a data set's training part; a DataError says what is missing if there are none."""
    match algorithm:
        case KTO():
            items = weigh(algorithm, rows, said)
            needed = f"feedback of kind {', '.join(algorithm.feedback)}"
        case DPO() | RewardModel():
            items = [*pair_choices(rows, said), *pair_corrections(rows, said), *pair_by_reward(algorithm, rows)]
            needed = "a choice, a correction, or rewards of several answers to one prompt"
        case RAFT():
            items = select_best(algorithm, rows)
            needed = "a reward"
        case _:
            items = [ServedItem(answers=(ServedAnswer(row),)) for row in rows if row.tokens and row.reward is not None]
            needed = "token ids and a reward"
    if not items:
        raise DataError(
            f"algorithm.kind={algorithm.kind} can learn from none of {len(rows)} trajectories: it needs {needed}. "
            "`loomrl data show ID` counts what there is."
        )
    return items


# -- kto ------------------------------------------------------------------------------------------------------------


def weigh(algorithm: KTO, rows: Iterable[DatasetRow], said: Said) -> list[ServedItem]:
    """Answers that are desirable or not by the mean of their feedback; both sides count alike with `balance`."""
    judged = [
        (ServedAnswer(row, call), value > NEUTRAL)
        for row in rows
        for call, value in _values(algorithm, said.get(row.trajectory, ())).items()
        if value != NEUTRAL
    ]
    counts = Counter(desirable for _, desirable in judged)
    if judged and len(counts) < 2:
        (only,) = counts
        raise DataError(
            f"algorithm.kind=kto needs answers of both sides: all {len(judged)} are {'' if only else 'un'}desirable. "
            "Use raft to imitate good answers, or wait for other feedback."
        )
    weights = {True: algorithm.desirable, False: -algorithm.undesirable}
    if algorithm.balance:
        weights = {side: weight * len(judged) / (2 * counts[side]) for side, weight in weights.items() if counts[side]}
    return [ServedItem(answers=(answer,), label=weights[desirable]) for answer, desirable in judged]


def _values(algorithm: KTO, said: Iterable[Feedback]) -> dict[str, float]:
    """Call → the mean value of its feedback, the newest of each source and kind."""
    newest = {(one.call, one.source, one.kind): one.value for one in said if one.kind in algorithm.feedback}
    values: dict[str, list[float]] = {}
    for (call, _, _), value in newest.items():
        values.setdefault(call, []).append(value)
    return {call: math.fsum(each) / len(each) for call, each in values.items()}


# -- dpo ------------------------------------------------------------------------------------------------------------


def pair_choices(rows: Sequence[DatasetRow], said: Said) -> list[ServedItem]:
    """Every chosen answer, with the one that it was chosen over."""
    choices = [(row, one) for row in rows for one in said.get(row.trajectory, ()) if one.kind == CHOICE]
    rejected = {one.call or one.trajectory: ServedAnswer(row, one.call) for row, one in choices if "under" in one.data}
    pairs = [(ServedAnswer(row, one.call), rejected.get(str(one.data.get("over", "")))) for row, one in choices]
    return [ServedItem(answers=(better, worse)) for better, worse in pairs if worse is not None and better != worse]


def pair_corrections(rows: Iterable[DatasetRow], said: Said) -> list[ServedItem]:
    """Every correction's text, with the answer that it corrects."""
    return [
        ServedItem(answers=(ServedAnswer(row, one.call), ServedAnswer(row, one.call)), text=str(one.data["text"]))
        for row in rows
        for one in said.get(row.trajectory, ())
        if one.kind == CORRECTION and one.data.get("text")
    ]


def pair_by_reward(algorithm: DPO | RewardModel, rows: Iterable[DatasetRow]) -> Iterator[ServedItem]:
    """Better and worse answers to the same prompt, by reward."""
    alike: dict[str, list[DatasetRow]] = {}
    for row in rows:
        if row.reward is not None:
            alike.setdefault(row.prompt, []).append(row)
    for group in alike.values():
        rewards = np.array([row.reward for row in group])
        for better, worse in preference_pairs(rewards, limit=algorithm.pairs, margin=algorithm.margin):
            yield ServedItem(answers=(ServedAnswer(group[better]), ServedAnswer(group[worse])))


# -- raft -----------------------------------------------------------------------------------------------------------


def select_best(algorithm: RAFT, rows: Iterable[DatasetRow]) -> list[ServedItem]:
    """The best of each domain by reward."""
    domains: dict[str, list[DatasetRow]] = {}
    for row in rows:
        if row.reward is not None:
            domains.setdefault(row.domain, []).append(row)
    best: list[DatasetRow] = []
    for group in domains.values():
        order = sorted(group, key=lambda row: -(row.reward or 0.0))
        best += order[: math.ceil(algorithm.best * len(order))]
    least = algorithm.min_reward
    return [ServedItem(answers=(ServedAnswer(row),)) for row in best if least is None or (row.reward or 0.0) >= least]


# -- the order in which they are learnt -----------------------------------------------------------------------------


def batches(
    items: Sequence[ServedItem],
    *,
    size: int,
    group: int,
    place: Callable[[ServedItem], bytes],
    age: Callable[[ServedItem], int],
) -> list[list[ServedItem]]:
    """The items of one pass in batches of about `size`: `group` of a domain together, older ones first.

    What is compared within a batch finds others of its domain there, however rare these are. `place` is an item's own:
    if an item is taken out, the batches before its part stay as they were.
    """

    def order(item: ServedItem) -> tuple[int, bytes]:
        return -age(item), place(item)

    domains: dict[str, list[ServedItem]] = {}
    for item in sorted(items, key=order):
        domains.setdefault(item.domain, []).append(item)
    parts = [part for each in domains.values() for part in _cut(each, group)]
    made: list[list[ServedItem]] = [[]]
    for part in sorted(parts, key=lambda part: order(part[0])):
        if len(made[-1]) >= size:
            made.append([])
        made[-1] += part
    return made


def _cut(items: Sequence[ServedItem], group: int) -> list[list[ServedItem]]:
    """Parts of `group`; a last one that would be alone is with the one before."""
    parts = [list(items[first : first + group]) for first in range(0, len(items), group)]
    if len(parts) > 1 and len(parts[-1]) == 1 and group > 1:
        parts[-2:] = [parts[-2] + parts[-1]]
    return parts
