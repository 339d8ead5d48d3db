"""Data sets: a selection of what was served, frozen with the judgements that hold now.

A frozen data set never changes: it is a list of trajectories by hub and position, and of the rows of rewards and
feedback that judged them. What it holds is not copied. A trajectory that is deleted later, as its person wished, is
left out by whoever reads it then.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from loomrl.config import DataSelection
from loomrl.config.suite import LanguageSuite
from loomrl.errors import DataError, StoreError
from loomrl.feedback.contamination import SuitePrompts, suite_prompts
from loomrl.feedback.content import (
    Contents,
    characters_of,
    domain_of,
    fingerprint,
    prompt_of,
    tokens_of,
    turns_of,
    versions_of,
)
from loomrl.files import is_file
from loomrl.hub import EVERYTHING
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB
from loomrl.store.datasets import Dataset, DatasetRow, identified, list_training_ids, record_dataset
from loomrl.store.endpoints import show_endpoint
from loomrl.store.feedback import feedback_of
from loomrl.store.policies import lineage
from loomrl.store.rewards import latest_rewards
from loomrl.types import End, Trajectory

TOGETHER = 500
"""Trajectories whose judgements are asked for at once."""
HOLDOUT = "loomrl holdout"
"""Salt of the hash by which prompts are held out; equal for all data sets, so that they stay held out."""

BEHIND: Mapping[str, tuple[str, ...]] = {
    "failed": (),
    "without text": (),
    "suite": ("suite", "ngram"),
    "without reward": ("min_reward", "max_reward", "min_confidence"),
}
"""Settings behind a filter, where their names differ."""


@dataclass(frozen=True, slots=True)
class RowCandidate:
    """A row that may be selected."""

    row: DatasetRow
    ended_at: float
    confidence: float = 0.0


@dataclass(slots=True)
class Sieve:
    """Lets candidates through, and counts what each filter left out."""

    read: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def keep(self, name: str, passes: bool) -> bool:
        """`passes`; if not, the filter of this name left one out."""
        self.counts[name] += not passes
        return passes

    def sift(
        self, name: str, candidates: Sequence[RowCandidate], passes: Callable[[RowCandidate], bool]
    ) -> list[RowCandidate]:
        """The candidates that pass."""
        return [one for one in candidates if self.keep(name, passes(one))]


def freeze(
    db: LoomDB, store_url: str, selection: DataSelection, *, suite: LanguageSuite | None = None, now: float
) -> Dataset:
    """Freeze what the selection takes, and put it on record; the same content again is the same data set.

    `suite` is the one that the selection names. A DataError says which filter left out how many if nothing remains.
    """
    assert (suite is None) == (selection.suite is None), "the suite is the selection's"
    prompts = None if suite is None else suite_prompts(suite, db, ngram=selection.ngram)
    parent = _parent(db, selection)
    hubs = [*(f"endpoint-{name}" for name in selection.endpoints), *(f"agent-{name}" for name in selection.agents)]
    sieve = Sieve()
    with Contents(store_url) as contents:
        seen = [one for hub in hubs for one in _scan(contents, hub, selection, sieve, prompts)]
    judged = _by_reward(_add_judgements(db, seen), selection, sieve)
    trained = list_training_ids(db, datasets_behind(db, parent))
    fresh = sieve.sift("parent", judged, lambda one: one.row.trajectory not in trained)
    held = [replace(one, row=replace(one.row, part="holdout")) for one in fresh if is_held_out(one.row, selection)]
    learnt = _limit([one for one in fresh if not is_held_out(one.row, selection)], selection, sieve)
    if not learnt:
        raise DataError(_emptiness(sieve, hubs, selection, held=len(held)))
    rows = [one.row for one in (*learnt, *held)]
    content = {
        "selection": selection.model_dump(mode="json"),
        "suite": None if suite is None else {"id": suite.id, "sha256": suite.sha256},
        "parent": parent,
        "hubs": hubs,
        "read": sieve.read,
        "counts": {name: count for name, count in sieve.counts.items() if count},
        "sizes": {"train": len(learnt), "holdout": len(held)},
    }
    name = selection.name or (*selection.endpoints, *selection.agents)[0]
    made = identified(name, content, rows, created_at=now)
    record_dataset(db, made, rows)
    return made


def is_held_out(row: DatasetRow, selection: DataSelection) -> bool:
    """True for the share of prompts that is never trained on, whatever data set they are in."""
    drawn = hashlib.sha256(f"{HOLDOUT} {row.prompt}".encode()).digest()
    return int.from_bytes(drawn[:8]) < selection.holdout * 2**64


# -- one trajectory by itself ---------------------------------------------------------------------------------------


def _scan(
    contents: Contents, hub: str, selection: DataSelection, sieve: Sieve, prompts: SuitePrompts | None
) -> Iterator[RowCandidate]:
    """The candidates of a hub by what is in the trajectory."""
    for position, attempt in contents.hub(hub).replay(selection=EVERYTHING):
        sieve.read += 1
        if _fits(attempt, selection, sieve, prompts):
            yield RowCandidate(_row(attempt, hub, position), attempt.finished_at)


def _fits(attempt: Trajectory, selection: DataSelection, sieve: Sieve, prompts: SuitePrompts | None) -> bool:
    ended = attempt.finished_at
    domain = domain_of(attempt)
    turns = sum(1 for _ in turns_of(attempt))
    since, until = (None if each is None else each.timestamp() for each in (selection.since, selection.until))
    keep = sieve.keep
    return (
        keep("failed", attempt.end is not End.FAILED)
        and keep("without", attempt.id not in selection.without)
        and keep("without text", turns > 0 or attempt.steps is not None)
        and keep("sources", not selection.sources or attempt.source.value in selection.sources)
        and keep("domains", not selection.domains or any(fnmatchcase(domain, each) for each in selection.domains))
        and keep("since", since is None or ended >= since)
        and keep("until", until is None or ended <= until)
        and keep("max_turns", selection.max_turns is None or turns <= selection.max_turns)
        and keep("max_characters", _at_most(characters_of(attempt), selection.max_characters))
        and keep("suite", prompts is None or not prompts.meets(attempt))
    )


def _at_most(value: float, limit: float | None) -> bool:
    return limit is None or value <= limit


def _row(attempt: Trajectory, hub: str, position: int) -> DatasetRow:
    return DatasetRow(
        part="train",
        hub=hub,
        position=position,
        trajectory=attempt.id,
        sha256=fingerprint(attempt),
        domain=domain_of(attempt),
        prompt=prompt_of(attempt),
        tokens=sum(int(tokens.mask_T.sum()) for tokens in tokens_of(attempt)),
        versions=versions_of(attempt),
        reward=None,
        reward_row="",
        feedback=(),
    )


# -- judgements -----------------------------------------------------------------------------------------------------


def _add_judgements(db: LoomDB, candidates: Sequence[RowCandidate]) -> list[RowCandidate]:
    """The candidates with the latest reward and all feedback."""
    judged: list[RowCandidate] = []
    for first in range(0, len(candidates), TOGETHER):
        part = candidates[first : first + TOGETHER]
        ids = [one.row.trajectory for one in part]
        rewards = latest_rewards(db, ids)
        said = _feedback_ids(db, ids)
        for one in part:
            row = replace(one.row, feedback=tuple(said.get(one.row.trajectory, ())))
            reward = rewards.get(one.row.trajectory)
            if reward is not None:
                row = replace(row, reward=reward.total, reward_row=reward.id)
            judged.append(replace(one, row=row, confidence=0.0 if reward is None else reward.confidence))
    return judged


def _feedback_ids(db: LoomDB, trajectories: Sequence[str]) -> Mapping[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for one in feedback_of(db, trajectories):
        ids.setdefault(one.trajectory, []).append(one.id)
    return ids


def _by_reward(candidates: list[RowCandidate], selection: DataSelection, sieve: Sieve) -> list[RowCandidate]:
    """Those whose reward is as the selection wants it."""
    low = selection.min_reward
    high = selection.max_reward
    sure = selection.min_confidence
    if (low, high, sure) == (None, None, None):
        return candidates
    found = sieve.sift("without reward", candidates, lambda one: one.row.reward is not None)
    found = sieve.sift("min_reward", found, lambda one: low is None or (one.row.reward or 0.0) >= low)
    found = sieve.sift("max_reward", found, lambda one: high is None or (one.row.reward or 0.0) <= high)
    return sieve.sift("min_confidence", found, lambda one: sure is None or one.confidence >= sure)


# -- how many of them -----------------------------------------------------------------------------------------------


def _limit(candidates: Sequence[RowCandidate], selection: DataSelection, sieve: Sieve) -> list[RowCandidate]:
    """The latest candidates up to the selection's limit, in the order of the hubs."""
    latest = sorted(range(len(candidates)), key=lambda at: (-candidates[at].ended_at, candidates[at].row.trajectory))
    if selection.balance == "domain":
        room = evenly(Counter(one.row.domain for one in candidates), selection.limit)
        latest = [at for at in latest if sieve.keep("balance", _takes(room, candidates[at].row.domain))]
    taken = {*latest[: selection.limit]}
    sieve.counts["limit"] += len(latest) - len(taken)
    return [one for at, one in enumerate(candidates) if at in taken]


def _takes(room: dict[str, int], domain: str) -> bool:
    room[domain] -= 1
    return room[domain] >= 0


def evenly(counts: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """How many of each domain: as many as the rarest has; with a limit, equal parts of it as far as there are so many,
    and the rest of it from the others.
    """
    if limit is None:
        return dict.fromkeys(counts, min(counts.values(), default=0))
    room: dict[str, int] = {}
    for left, name in zip(
        range(len(counts), 0, -1), sorted(counts, key=lambda name: (counts[name], name)), strict=True
    ):
        room[name] = min(counts[name], -(-(limit - sum(room.values())) // left))
    return room


# -- the policy to be trained ---------------------------------------------------------------------------------------


def _parent(db: LoomDB, selection: DataSelection) -> str | None:
    """The version's id, or the folder, of the policy that is to be trained; None if nobody says which."""
    what = selection.parent
    if what is None and selection.endpoints:
        try:
            what = show_endpoint(db, selection.endpoints[0]).stable.policy
        except StoreError as error:
            raise DataError(f"endpoints: {error}") from None
    if what is None:
        return None
    source = source_of(what, db)
    return source.folder or source.version


def datasets_behind(db: LoomDB, parent: str | None) -> list[str]:
    """The data sets that a policy and its ancestors were trained on."""
    if parent is None or any(is_file(f"{parent}/{name}") for name in ("config.json", "policy.json")):  # a folder
        return []
    tree = lineage(db, parent)
    found = [version["made_from"]["data"].get("dataset") for version in (tree, *tree["ancestors"])]
    return list(dict.fromkeys(filter(None, found)))


def _emptiness(sieve: Sieve, hubs: Sequence[str], selection: DataSelection, *, held: int) -> str:
    left = ", ".join(f"{name} left out {count}" for name, count in sieve.counts.items() if count)
    held_out = f"; holdout keeps {held}" if held else ""
    return (
        f"nothing is left to train on: of {sieve.read} trajectories in {', '.join(hubs)}, {left or 'none was left out'}"
        f"{held_out}. {main_filter(sieve.counts, selection)}"
    ).rstrip()


def main_filter(counts: Mapping[str, int], selection: DataSelection) -> str:
    """A sentence: the filter that left out the most, and its setting; empty if none left out any."""
    name = max(counts, key=lambda each: counts[each], default="")
    if not counts.get(name):
        return ""
    given = ", ".join(f"{each}={getattr(selection, each)!r}" for each in BEHIND.get(name, (name,)))
    return f"Most were left out by {name!r}" + (
        f": loosen {given} to keep them." if given else "; no setting keeps them."
    )
