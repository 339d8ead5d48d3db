"""`loomrl compare A B`: the difference of two runs on the same held-out tasks, or of two sets of runs over their seeds.

Both play every task from the same random numbers, in an order drawn beforehand. The interval holds at every look, so
two runs play until it excludes 0, or the tasks are used up.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
from rich.console import Console

from loomrl.config import AnyExperiment, ControlExperiment, Experiment
from loomrl.control.environment import agents_in, open_environments
from loomrl.control.play import play
from loomrl.errors import ConfigError, unknown
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.commands.output import table
from loomrl.experiments.evaluate import refuse_league
from loomrl.experiments.evaluate_control import AT_ONCE, find_acts, seed_of
from loomrl.experiments.policies import find_policy, open_policy
from loomrl.gym.episode import Plan
from loomrl.gym.held_out import EPISODES, HeldOut
from loomrl.gym.memory import remembers
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.load import parse_assignments
from loomrl.release.guard import Better, Guard
from loomrl.release.paired import bound_mean, compare_pairs
from loomrl.run.record import recorded
from loomrl.run.version import experiment_of, find_version
from loomrl.schema import Tree, differences, merge
from loomrl.store import LoomDB, open_store
from loomrl.store.runs import RUNS, run_id
from loomrl.types import End, PolicyVersion, Trajectory

TASKS = ("seed", "episodes", "levels", "attempts", "preferences", "settings", "max_steps", "confidence")
"""Settings of an evaluation that say on what policies are compared."""
SUCCESS = Guard(metric="success", better=Better.HIGHER)
Pair = tuple[float, float]
Looks = Callable[[Sequence[Pair]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The difference of B from A, with bounds that hold at every look; None where there are too few pairs."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    metric: str
    unit: str
    """`task`, or `seed`: a pair of runs."""
    pairs: int
    of: int
    """Pairs that there might have been."""
    means: Pair
    difference: float
    low: float | None
    high: float | None
    confidence: float
    share: float | None
    """Pairs that were needed for an interval of this width, as a share of those that unpaired values would need."""
    failed: int
    """Tasks left out because every attempt of a side failed."""
    by_seed: tuple[float, ...]
    """Differences of the pairs of runs."""
    run: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def compare(store_url: str, a: str, b: str, words: Sequence[str] = ()) -> RunComparison:
    """Compare `RUN` or `RUN/STEP` with another, or as many with as many: `A1,A2` and `B1,B2`."""
    begun = time.monotonic()
    with open_store(store_url) as db:
        sides = [_find(db, side) for side in (a, b)]
        _refuse_count(sides)
        first = sides[0][0]
        experiment = _settings(db, first, words)
        for other in (*sides[0][1:], *sides[1]):
            _refuse_unlike(db, first, other, experiment, words)
        id = run_id(None, "compare")
        environments = RUNS.require(db, first.run).environments
        with recorded(db, experiment, environments, id=id, kind="evaluate", clock=time.time) as result:
            played = [_play(db, experiment, pair, is_alone=len(sides[0]) == 1) for pair in zip(*sides, strict=True)]
            found = _judge(experiment, sides, played, run=id, seconds=time.monotonic() - begun)
            result["comparison"] = found.as_dict()
    return found


def _find(db: LoomDB, names: str) -> list[PolicyVersion]:
    found = []
    for name in names.split(","):
        version = find_version(name, db)
        if version is None:
            known = [run.id for run in RUNS.latest(db, kind="train")]
            raise ConfigError("run " + unknown("name", name, ["RUN", "RUN/STEP", *known]))
        found.append(version)
    return found


def _refuse_count(sides: Sequence[Sequence[PolicyVersion]]) -> None:
    if len(sides[0]) != len(sides[1]):
        raise ConfigError(f"{len(sides[0])} runs against {len(sides[1])}: name as many of each, seed by seed.")
    names = [version.id for side in sides for version in side]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{twice} is named twice. Every version once.")


def _settings(db: LoomDB, version: PolicyVersion, words: Sequence[str]) -> AnyExperiment:
    """The version's experiment, whose evaluation says what is played."""
    if other := [word for word in words if not word.startswith("evaluation.")]:
        raise ConfigError(f"{other[0]}: only evaluation.… can be said of a comparison. Leave it out.")
    own = experiment_of(version, db)
    if isinstance(own, ControlExperiment) and own.objectives:
        raise ConfigError(f"{version.id} has several objectives: `loomrl evaluate` compares the fronts of policies.")
    changed: AnyExperiment = type(own).parse(merge(own.plain, parse_assignments(words)), origin=f"compare {version.id}")
    return changed


def _refuse_unlike(
    db: LoomDB, first: PolicyVersion, other: PolicyVersion, experiment: AnyExperiment, words: Sequence[str]
) -> None:
    """A ConfigError if the two were not made for the same tasks."""
    left, right = (RUNS.require(db, version.run).environments for version in (first, other))
    if left != right:
        raise ConfigError(
            f"{first.id} and {other.id} were trained in other environments: {_listed(left)}, and {_listed(right)}. "
            "Judge both on one experiment: `loomrl evaluate EXPERIMENT --policy A --policy B`."
        )
    unlike = differences(_tasks(experiment), _tasks(_settings(db, other, words)))
    if unlike:
        path, ours, theirs = unlike[0]
        raise ConfigError(
            f"{path} is {ours} for {first.id} and {theirs} for {other.id}, so their tasks differ. Say one for both, "
            f"such as {path}={ours}; other environments: `loomrl evaluate EXPERIMENT --policy A --policy B`."
        )


def _listed(environments: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({sha256[:8]})" for name, sha256 in sorted(environments.items()))


def _tasks(experiment: AnyExperiment) -> Tree:
    """All that decides which tasks are played, and how."""
    plain = experiment.plain
    evaluation = {name: plain["evaluation"].get(name) for name in TASKS}
    if isinstance(experiment, ControlExperiment):
        return {"environment": plain["environment"], "evaluation": evaluation}
    sampling = getattr(experiment.algorithm, "sampling", None)
    tokens = None if sampling is None else sampling.max_tokens
    shown = {"environments": plain["environments"], "templates": plain["templates"], "evaluation": evaluation}
    return shown | {"algorithm": {"sampling": {"max_tokens": tokens}}}


# -- playing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlayedPairs:
    """Results of two versions on the same tasks."""

    pairs: list[Pair]
    of: int
    failed: int = 0


def _play(db: LoomDB, experiment: AnyExperiment, pair: Sequence[PolicyVersion], *, is_alone: bool) -> PlayedPairs:
    """Both versions at the same tasks. Alone, until the difference is decided; one of several seeds plays all."""

    def is_enough(pairs: Sequence[Pair]) -> bool:
        low, high = _bounds(experiment, pairs) if is_alone else (-math.inf, math.inf)
        return low > 0 or high < 0

    if isinstance(experiment, ControlExperiment):
        return _play_control(db, experiment, [version.id for version in pair], is_enough)
    return asyncio.run(_play_language(db, experiment, [version.id for version in pair], is_enough))


def _play_control(db: LoomDB, experiment: ControlExperiment, names: Sequence[str], is_enough: Looks) -> PlayedPairs:
    settings = experiment.evaluation
    policies = [find_acts(name, experiment.judged_in.settings, db)[1] for name in names]
    agents = agents_in(experiment.judged_in, experiment.judged_in.settings)
    pairs: list[Pair] = []
    while len(pairs) < settings.episodes and not is_enough(pairs):
        count = min(AT_ONCE, settings.episodes - len(pairs))
        seed = seed_of(experiment) + len(pairs)
        pairs += zip(
            *(_episodes(policy, experiment, count, agents=agents, seed=seed) for policy in policies), strict=True
        )
    return PlayedPairs(pairs, settings.episodes)


def _episodes(policy: Any, experiment: ControlExperiment, count: int, *, agents: int, seed: int) -> list[float]:
    """The return of one episode in each environment, over its agents."""
    choice = experiment.judged_in
    with closing(open_environments(choice, count * agents, choice.settings)) as environments:
        found = play(policy, environments, count * agents, seed=seed, max_steps=experiment.evaluation.max_steps)
    returns = np.zeros(count * agents)
    returns[found.places] = found.returns
    mean: list[float] = returns.reshape(count, agents).mean(1).tolist()
    return mean


async def _play_language(db: LoomDB, experiment: Experiment, names: Sequence[str], is_enough: Looks) -> PlayedPairs:
    mixture = open_task_mixture(experiment, db)
    refuse_league(mixture)
    if remembering := [name for name, member in mixture.members.items() if remembers(member.environment)]:
        raise ConfigError(
            f"{', '.join(remembering)}: attempts begin with what earlier ones left, so tasks are no pairs."
        )
    settings = experiment.evaluation
    samples = settings.way == "sampled" or settings.attempts > 1
    warm = open_algorithm(experiment).algorithm.sampling.temperature if samples else 0.0
    both = [
        HeldOut(mixture, settings, run=name, name="compare", policy=find_policy(name, db, temperature=warm).choice)
        for name in names
    ]
    of = len(both[0]) // settings.attempts
    pairs: list[Pair] = []
    failed = 0
    async with LoomRLGym(experiment.rollout, open_policy=open_policy) as gym:
        async for found in _rounds(gym, both, seed=settings.seed):
            pairs += [pair for pair in found if pair is not None]
            failed += found.count(None)
            if is_enough(pairs):
                break
    return PlayedPairs(pairs, of, failed)


async def _rounds(gym: LoomRLGym, both: Sequence[HeldOut], *, seed: int) -> AsyncIterator[list[Pair | None]]:
    """Some tasks after the other, each by both, in an order drawn beforehand; None for one that failed."""
    groups = [[list(each) for _, each in groupby(one.plans, lambda plan: plan.attempt.group)] for one in both]
    order = list(range(len(groups[0])))
    random.Random(seed).shuffle(order)
    for begin in range(0, len(order), AT_ONCE):
        some = order[begin : begin + AT_ONCE]
        scores = [await _score(gym, [each[at] for at in some]) for each in groups]
        yield [None if a is None or b is None else (a, b) for a, b in zip(*scores, strict=True)]


async def _score(gym: LoomRLGym, groups: Sequence[Sequence[Plan]]) -> list[float | None]:
    """Mean success of each group's attempts that did not fail; None where all did."""
    played: dict[str, list[Trajectory]] = {}
    async for trajectory in gym.run([plan for group in groups for plan in group]):
        if trajectory.end is not End.FAILED:
            played.setdefault(trajectory.group, []).append(trajectory)
    found = [[t.reward.success for t in played.get(group[0].attempt.group, ())] for group in groups]
    return [sum(each) / len(each) if each else None for each in found]


# -- judging ----------------------------------------------------------------------------------------------------------


def _bounds(experiment: AnyExperiment, pairs: Sequence[Pair]) -> tuple[float, float]:
    """Bounds of the mean difference over tasks."""
    error_rate = 1 - experiment.evaluation.confidence
    if isinstance(experiment, ControlExperiment):
        return bound_mean([b - a for a, b in pairs], error_rate=error_rate)
    if not pairs:
        return -1.0, 1.0
    found = compare_pairs(SUCCESS, pairs, error_rate=error_rate / 2, planned=experiment.evaluation.episodes or EPISODES)
    return found.low, found.high


def _judge(
    experiment: AnyExperiment,
    sides: Sequence[Sequence[PolicyVersion]],
    played: Sequence[PlayedPairs],
    *,
    run: str,
    seconds: float,
) -> RunComparison:
    if any(not each.pairs for each in played):
        raise ConfigError("no task was played by both: every attempt of a side failed. `loomrl evaluate` says why.")
    is_alone = len(played) == 1
    means = [tuple(np.mean(each.pairs, axis=0).tolist()) for each in played]
    pairs = played[0].pairs if is_alone else means
    confidence = experiment.evaluation.confidence
    differences_K = [b - a for a, b in pairs]
    low, high = _bounds(experiment, pairs) if is_alone else bound_mean(differences_K, error_rate=1 - confidence)
    a, b = np.mean(pairs, axis=0).tolist()
    return RunComparison(
        a=tuple(version.id for version in sides[0]),
        b=tuple(version.id for version in sides[1]),
        metric="return" if isinstance(experiment, ControlExperiment) else "success",
        unit="task" if is_alone else "seed",
        pairs=len(pairs),
        of=played[0].of if is_alone else len(played),
        means=(a, b),
        difference=b - a,
        low=low if math.isfinite(low) else None,
        high=high if math.isfinite(high) else None,
        confidence=confidence,
        share=_share(pairs),
        failed=sum(each.failed for each in played),
        by_seed=() if is_alone else tuple(differences_K),
        run=run,
        seconds=round(seconds, 1),
    )


def _share(pairs: Sequence[Pair]) -> float | None:
    """The variance of differences, of what it would be if the values were not paired."""
    if len(pairs) < 2:
        return None
    alone = float(np.var(pairs, axis=0, ddof=1).sum())
    return float(np.var([b - a for a, b in pairs], ddof=1)) / alone if alone else None


def render(found: RunComparison, console: Console) -> None:
    """The means, the difference, and what is known of it."""
    rows = [(", ".join(names), f"{mean:.3f}") for names, mean in zip((found.a, found.b), found.means, strict=True)]
    console.print(table(f"{found.metric}, {found.pairs} of {found.of} {found.unit}s", ("", "mean>"), rows))
    console.print("\n" + "\n".join(_lines(found)), highlight=False, markup=False)


def _lines(found: RunComparison) -> Iterator[str]:
    if found.low is None or found.high is None:
        yield f"difference {found.difference:+.3f}: too few {found.unit}s, or all equal, so nothing bounds it yet"
    else:
        verdict = "B is better" if found.low > 0 else "A is better" if found.high < 0 else "undecided"
        yield (
            f"difference {found.difference:+.3f}  [{found.low:+.3f}, {found.high:+.3f}] at {found.confidence:.0%}, at "
            f"any look: {verdict}"
        )
    over = "of these two versions, over tasks like these" if found.unit == "task" else "over seeds like these"
    yield f"It holds {over}."
    if found.share is not None:
        yield f"Pairs needed, of those that unpaired {found.unit}s would need: {found.share:.0%}."
    if found.failed:
        yield f"{found.failed} tasks are left out: every attempt of a side failed."
    yield f"{found.seconds:.1f} s, recorded as run {found.run}"
