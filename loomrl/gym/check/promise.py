"""The promises of an environment: form, determinism, the oracle, unskilled policies, and the rewards of all of them."""

import inspect
import json
import math
import pickle
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count, islice, product

from loomrl.errors import ConfigError
from loomrl.gym.base import LEVELS, NO_LEVELS, BaseEnvironment, levels_of
from loomrl.gym.check.probe import ALL_LEVELS, SOME_LEVELS, CheckProbe, EnvironmentCheck, case, summarize, trouble
from loomrl.gym.guard import TOLERANCE
from loomrl.gym.policy import SCRIPTED, ConstantPolicy, OraclePolicy, RandomPolicy, hack_policy
from loomrl.types import End, Task, Trajectory

CEILINGS = ("random", "constant", "hacking")


async def check_contract(probe: CheckProbe) -> EnvironmentCheck:
    """The declarations make sense, and an episode of each family runs to its end without breaking the contract."""
    faults = list(_declarations(probe.kind))
    if faults:
        return EnvironmentCheck("contract", False, summarize(faults))
    hacks = 0
    for task in probe.tasks(levels=(1,), seeds=(0,)):
        for policy in (ConstantPolicy, RandomPolicy):
            fault = trouble(await probe.play(task, policy))
            if fault:
                return EnvironmentCheck("contract", False, fault)
        hacks = max(hacks, await _count_hacks(probe, task))
    detail = f"{len(probe.families)} families play to the end, each answer a correct Step"
    figures = {"families": len(probe.families), "hacks": hacks, "sandboxed": probe.kind.sandboxed}
    return EnvironmentCheck("contract", True, detail, figures)


async def _count_hacks(probe: CheckProbe, task: Task) -> int:
    environment = probe.open()
    await environment.reset(task)
    count = len(environment.hacks())
    await environment.close()
    return count


async def check_settings(probe: CheckProbe) -> EnvironmentCheck:
    """Unknown settings are refused, so that a typing error cannot pass unnoticed."""
    try:
        probe.kind({**probe.settings, "no_such_setting": 1})
    except ConfigError:
        return EnvironmentCheck("settings", True, "an unknown setting is refused")
    except Exception as error:  # noqa: BLE001 - the author's code
        return EnvironmentCheck(
            "settings", False, f"an unknown setting raises {type(error).__name__}: {error}. {_SETTINGS_REMEDY}"
        )
    return EnvironmentCheck("settings", False, f"no_such_setting=1 was accepted. {_SETTINGS_REMEDY}")


_SETTINGS_REMEDY = (
    "Pass all settings to BaseEnvironment.__init__ and declare them in a subclass of EnvironmentSettings."
)


async def check_tasks(probe: CheckProbe) -> EnvironmentCheck:
    """Tasks are plain data: equal for equal arguments, picklable, JSON, and at the difficulty that was set."""
    environment = probe.open()
    faults = []
    pairs = zip(probe.tasks(SOME_LEVELS, range(3)), probe.tasks(SOME_LEVELS, range(3)), strict=True)
    count = 0
    for task, again in pairs:
        count += 1
        fault = _task_fault(task, again)
        if fault:
            faults.append(f"{case(task)}: {fault}")
    for seed in range(20):
        task = environment.sample_task(seed)
        levels = (*levels_of(environment.settings.difficulty), *NO_LEVELS)
        if task.level not in levels or task.family not in environment.families:
            faults.append(f"sample_task({seed}) made level {task.level} of {task.family!r}, which was not asked for")
    if faults:
        return EnvironmentCheck("tasks", False, summarize(faults))
    return EnvironmentCheck(
        "tasks", True, f"{count} tasks are equal when made again, picklable and JSON", {"tasks": count}
    )


def _task_fault(task: Task, again: Task) -> str:
    if not isinstance(task, Task):
        return f"task() returned {type(task).__name__} {task!r:.60}; a loomrl.types.Task is needed"
    try:
        if pickle.loads(pickle.dumps(task)) != task:
            return "the task changes when it is pickled; give it plain data"
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return f"cannot pickle it: {error}. Give `parameters` plain data, and build the rest in reset()"
    try:
        keys = task.key, again.key
    except (TypeError, ValueError) as error:
        return f"its parameters are not JSON: {error}"
    if keys[0] != keys[1] or task != again:
        texts = " and ".join(json.dumps(dict(each.parameters))[:80] for each in (task, again))
        return f"equal arguments gave two different tasks, with parameters {texts}"
    return ""


def _declarations(kind: type[BaseEnvironment]) -> Iterator[str]:
    for name in ("reset", "step", "close"):
        if not inspect.iscoroutinefunction(getattr(kind, name)):
            yield f"{name} must be `async def {name}`"
    if not re.fullmatch(r"\d+(\.\d+)*", kind.version):
        yield f"version={kind.version!r} must be numbers joined by dots, such as '1.0.0'"
    if not kind.families or not all(isinstance(family, str) for family in kind.families):
        yield f"families={kind.families!r} must be a tuple of names, at least one"
    low, high = kind.reward_range
    if not low < high:
        yield f"reward_range={kind.reward_range!r} must be (lowest, highest)"
    for name in CEILINGS:
        if not 0 <= kind.ceilings.get(name, -1) <= 1:
            yield f"ceilings[{name!r}]={kind.ceilings.get(name)!r} must lie in 0..1"
    for family in kind.guess_floor:
        if family not in kind.families:
            yield f"guess_floor names {family!r}, which is none of the families"


Z99 = 2.326
"""One-sided 99 % confidence."""
MOST = 400
"""Upper bound of episodes per family and policy; fewer if the answer is clear."""

Play = Callable[[Task], Awaitable[Trajectory]]


async def check_determinism(probe: CheckProbe) -> EnvironmentCheck:
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
                return EnvironmentCheck("determinism", False, detail)
    return EnvironmentCheck("determinism", True, f"{episodes} episodes went the same way again", {"episodes": episodes})


async def fingerprint(probe: CheckProbe) -> EnvironmentCheck:
    """Every case's episode as text, for comparison with another process."""
    episodes = {
        case(task): json.dumps([task.key, *_script(await probe.play(task, RandomPolicy))])
        for task in probe.tasks(levels=(1, LEVELS), seeds=(11,))
    }
    return EnvironmentCheck("fingerprint", True, json.dumps(episodes))


async def check_oracle(probe: CheckProbe) -> EnvironmentCheck:
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
        return EnvironmentCheck("oracle", False, summarize(faults), figures)
    return EnvironmentCheck("oracle", True, f"success 1 in all {episodes} episodes, families and levels", figures)


async def check_opponent(probe: CheckProbe, name: str) -> EnvironmentCheck:
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
            return EnvironmentCheck(name, False, str(fault))
        mean = sum(reached) / len(reached)
        worst = max(worst, mean)
        successes = successes + reached
        if interval(reached)[0] > limit:
            found = f"mean success {mean:.2f} in {len(reached)} episodes"
            faults.append(f"{family}: {found} is above the ceiling {limit:g} (99 % sure)")
    mean = sum(successes) / len(successes)
    figures = {"episodes": len(successes), "mean": mean, "worst_family": worst, "ceiling": ceiling}
    detail = f"mean success {mean:.3f}, in the worst family {worst:.3f}; {len(successes)} episodes"
    return EnvironmentCheck(name, not faults, summarize(faults) or detail, figures)


async def check_rewards(probe: CheckProbe) -> EnvironmentCheck:
    """Totals equal the sums of their parts, clipped to the range; the oracle earns more than random play."""
    earned: dict[str, float] = {}
    episodes = 0
    for (name, policy), task in product(SCRIPTED.items(), list(probe.tasks(SOME_LEVELS, seeds=(3,)))):
        trajectory = await probe.play(task, policy)
        episodes += 1
        fault = trouble(trajectory) or _sum_fault(probe, trajectory) or _name_fault(probe, trajectory)
        if fault:
            return EnvironmentCheck("rewards", False, fault)
        earned[name] = earned.get(name, 0.0) + trajectory.reward.total
    if earned["oracle"] <= max(earned["random"], earned["constant"]):
        return EnvironmentCheck(
            "rewards", False, f"the oracle earns no more than the others do: sums of totals {earned}"
        )
    return EnvironmentCheck(
        "rewards", True, f"{episodes} episodes inside {probe.kind.reward_range}, parts add up", earned
    )


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


def _all_tasks(probe: CheckProbe, family: str) -> Iterator[Task]:
    environment = probe.open()
    for seed in count():
        for level in ALL_LEVELS:
            yield environment.task(family, level, seed)


def _sum_fault(probe: CheckProbe, trajectory: Trajectory) -> str:
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


def _name_fault(probe: CheckProbe, trajectory: Trajectory) -> str:
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
