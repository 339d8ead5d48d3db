"""Checks by playing: determinism, the oracle, unskilled policies, and the rewards of all of them."""

import json
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count, islice, product

from loomrl.gym.base import LEVELS
from loomrl.gym.check.probe import ALL_LEVELS, SOME_LEVELS, Probe, case, listed, trouble
from loomrl.gym.check.report import Check
from loomrl.gym.guard import TOLERANCE
from loomrl.gym.policy import SCRIPTED, ConstantPolicy, OraclePolicy, PolicyFactory, RandomPolicy, hack_policy
from loomrl.types import End, Task, Trajectory

Z99 = 2.326
"""One-sided 99 % confidence."""
MOST = 400
"""Upper bound of episodes per family and policy; fewer if the answer is clear."""

Play = Callable[[Task], Awaitable[Trajectory]]


async def check_determinism(probe: Probe) -> Check:
    """The same task and actions give the same episode in a fresh environment, and again in a used one."""
    episodes = 0
    for task in probe.tasks(levels=(1, LEVELS), seeds=(11,)):
        used = probe.open()
        first = _script(await probe.play(task, RandomPolicy, used))
        others = (await probe.play(task, RandomPolicy), await probe.play(task, RandomPolicy, used))
        for again in map(_script, others):
            episodes += 1
            if again != first:
                detail = (
                    f"{case(task)}: the same task and actions went two ways: {_parting(first, again)}. Something is "
                    "left over between episodes (class attribute, module global), or not drawn from the task's seed."
                )
                return Check("determinism", False, detail)
    return Check("determinism", True, f"{episodes} episodes went the same way again", {"episodes": episodes})


async def fingerprint(probe: Probe) -> Check:
    """Every case's episode as text, for comparison with another process."""
    episodes = {
        case(task): json.dumps([task.key, *_script(await probe.play(task, RandomPolicy))])
        for task in probe.tasks(levels=(1, LEVELS), seeds=(11,))
    }
    return Check("fingerprint", True, json.dumps(episodes))


async def check_oracle(probe: Probe) -> Check:
    """The oracle reaches success 1 by the task's own end, in every family, at every level."""
    faults = []
    episodes = 0
    for task in probe.tasks(ALL_LEVELS, seeds=range(math.ceil(2 * probe.share))):
        trajectory = await probe.play(task, OraclePolicy)
        episodes += 1
        success = trajectory.reward.success
        if trajectory.end is End.FAILED:
            faults.append(trouble(trajectory))
        elif trajectory.end is End.TRUNCATED or success < 1 - TOLERANCE:
            faults.append(f"{case(task)}: success {success:g}, {trajectory.end} after {len(trajectory.turns)} turns")
    figures = {"episodes": episodes, "faults": len(faults)}
    if faults:
        return Check("oracle", False, listed(faults), figures)
    return Check("oracle", True, f"success 1 in all {episodes} episodes, families and levels", figures)


async def check_opponent(probe: Probe, name: str) -> Check:
    """An unskilled policy stays below its ceiling, or the family's declared guess floor, in every family."""
    kind, _, index = name.partition(" ")
    policy = SCRIPTED[kind] if kind in SCRIPTED else hack_policy(int(index))
    ceiling = probe.kind.ceilings["hacking" if kind == "hack" else kind]
    batch = enough(ceiling)
    if kind == "hack":
        batch = max(LEVELS, math.ceil(batch / len(probe.families)))
    play = partial(probe.play, policy=policy)
    faults: list[str] = []
    successes: list[float] = []
    worst = 0.0
    for family in probe.families:
        limit = max(ceiling, probe.guess_floor.get(family, 0.0))
        try:
            reached = await _sample(_all_tasks(probe, family), play, limit, batch, probe.share)
        except _Trouble as fault:
            return Check(name, False, str(fault))
        mean = sum(reached) / len(reached)
        worst = max(worst, mean)
        successes = successes + reached
        if interval(reached)[0] > limit:
            found = f"mean success {mean:.2f} in {len(reached)} episodes"
            faults.append(f"{family}: {found} is above the ceiling {limit:g} (99 % sure)")
    mean = sum(successes) / len(successes)
    figures = {"episodes": len(successes), "mean": mean, "worst_family": worst, "ceiling": ceiling}
    detail = f"mean success {mean:.3f}, in the worst family {worst:.3f}; {len(successes)} episodes"
    return Check(name, not faults, listed(faults) or detail, figures)


async def check_rewards(probe: Probe) -> Check:
    """Totals equal the sums of their parts, clipped to the range; the oracle earns more than random play."""
    earned: dict[str, float] = {}
    episodes = 0
    for (name, policy), task in product(_PLAYERS.items(), list(probe.tasks(SOME_LEVELS, seeds=(3,)))):
        trajectory = await probe.play(task, policy)
        episodes += 1
        fault = trouble(trajectory) or _sum_fault(probe, trajectory) or _name_fault(probe, trajectory)
        if fault:
            return Check("rewards", False, fault)
        earned[name] = earned.get(name, 0.0) + trajectory.reward.total
    if earned["oracle"] <= max(earned["random"], earned["constant"]):
        return Check("rewards", False, f"the oracle earns no more than the others do: sums of totals {earned}")
    return Check("rewards", True, f"{episodes} episodes inside {probe.kind.reward_range}, parts add up", earned)


_PLAYERS: dict[str, PolicyFactory] = {"oracle": OraclePolicy, "random": RandomPolicy, "constant": ConstantPolicy}


class _Trouble(Exception):
    """An episode that failed unexpectedly."""


async def _sample(tasks: Iterator[Task], play: Play, limit: float, batch: int, share: float) -> list[float]:
    """Successes until it is clear whether their mean is below the limit, or a share of a batch fails whole."""
    successes: list[float] = []
    while len(successes) < MOST * share:
        for task in islice(tasks, batch if successes else math.ceil(batch * share)):
            trajectory = await play(task)
            if trajectory.end is End.FAILED:
                raise _Trouble(trouble(trajectory))
            successes.append(trajectory.reward.success)
        low, high = interval(successes)
        if not any(successes) or (len(successes) >= batch and (high <= limit or low > limit)):
            break
    return successes


def enough(ceiling: float) -> int:
    """The number of episodes without success that show the mean to be below the ceiling."""
    return MOST if ceiling * MOST <= Z99**2 else math.ceil(Z99**2 * (1 / ceiling - 1))


def interval(successes: list[float]) -> tuple[float, float]:
    """Wilson's interval, one-sided 99 % at either end; conservative for fractional successes."""
    size = len(successes)
    mean = sum(successes) / len(successes)
    spread = Z99 * math.sqrt(mean * (1 - mean) / size + Z99**2 / (4 * size**2))
    centre = mean + Z99**2 / (2 * size)
    return (centre - spread) / (1 + Z99**2 / size), (centre + spread) / (1 + Z99**2 / size)


def _all_tasks(probe: Probe, family: str) -> Iterator[Task]:
    environment = probe.open()
    for seed in count():
        for level in ALL_LEVELS:
            yield environment.task(family, level, seed)


def _sum_fault(probe: Probe, trajectory: Trajectory) -> str:
    low, high = probe.kind.reward_range
    for number, turn in enumerate(trajectory.turns, start=1):
        total = turn.reward.total
        parts = sum(turn.reward.parts.values())
        clipped = min(max(parts, low), high)
        if min(abs(total - parts), abs(total - clipped)) > TOLERANCE:
            return (
                f"{case(trajectory.task)}, turn {number}: the total is {total:g}, but its parts "
                f"{dict(turn.reward.parts)} add up to {parts:g}"
            )
    return ""


def _name_fault(probe: Probe, trajectory: Trajectory) -> str:
    declared = probe.kind.reward_parts
    strangers = sorted(trajectory.reward.parts.keys() - set(declared)) if declared else []
    if not strangers:
        return ""
    return f"{case(trajectory.task)}: reward_parts={declared} does not name {', '.join(strangers)}. Declare all parts"


def _script(trajectory: Trajectory) -> list[str]:
    """An episode line by line: observations, actions, rewards, and its end."""
    lines = [
        line
        for turn in trajectory.turns
        for line in (*(f"{m.role}: {m.text}" for m in turn.observation), turn.action, repr(turn.reward))
    ]
    return [*lines, trajectory.end.value, trouble(trajectory)]


def _parting(first: list[str], again: list[str]) -> str:
    pairs = zip(first, again, strict=False)
    return next(
        (f"{ours!r:.80} and {theirs!r:.80}" for ours, theirs in pairs if ours != theirs), "one of them is longer"
    )
