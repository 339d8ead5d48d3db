"""Checks of form: the contract, the settings, the tasks."""

import inspect
import json
import pickle
import re
from collections.abc import Iterator

from loomrl.errors import ConfigError
from loomrl.gym.base import NO_LEVELS, BaseEnvironment, levels_of
from loomrl.gym.check.probe import SOME_LEVELS, Probe, case, listed, trouble
from loomrl.gym.check.report import Check
from loomrl.gym.policy import ConstantPolicy, RandomPolicy
from loomrl.types import Task

CEILINGS = ("random", "constant", "hacking")


async def check_contract(probe: Probe) -> Check:
    """The declarations make sense, and an episode of each family runs to its end without breaking the contract."""
    faults = list(_declarations(probe.kind))
    if faults:
        return Check("contract", False, listed(faults))
    hacks = 0
    for task in probe.tasks(levels=(1,), seeds=(0,)):
        for policy in (ConstantPolicy, RandomPolicy):
            fault = trouble(await probe.play(task, policy))
            if fault:
                return Check("contract", False, fault)
        hacks = max(hacks, await _count_hacks(probe, task))
    detail = f"{len(probe.families)} families play to the end, each answer a correct Step"
    figures = {"families": len(probe.families), "hacks": hacks, "sandboxed": probe.kind.sandboxed}
    return Check("contract", True, detail, figures)


async def _count_hacks(probe: Probe, task: Task) -> int:
    environment = probe.open()
    await environment.reset(task)
    count = len(environment.hacks())
    await environment.close()
    return count


async def check_settings(probe: Probe) -> Check:
    """Unknown settings are refused, so that a typing error cannot pass unnoticed."""
    try:
        probe.kind({**probe.settings, "no_such_setting": 1})
    except ConfigError:
        return Check("settings", True, "an unknown setting is refused")
    except Exception as error:  # noqa: BLE001 - the author's code
        return Check(
            "settings", False, f"an unknown setting raises {type(error).__name__}: {error}. {_SETTINGS_REMEDY}"
        )
    return Check("settings", False, f"no_such_setting=1 was accepted. {_SETTINGS_REMEDY}")


_SETTINGS_REMEDY = (
    "Pass all settings to BaseEnvironment.__init__ and declare them in a subclass of EnvironmentSettings."
)


async def check_tasks(probe: Probe) -> Check:
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
        return Check("tasks", False, listed(faults))
    return Check("tasks", True, f"{count} tasks are equal when made again, picklable and JSON", {"tasks": count})


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
        return f"equal arguments gave two different tasks, with parameters {_shown(task)} and {_shown(again)}"
    return ""


def _shown(task: Task) -> str:
    return json.dumps(dict(task.parameters))[:80]


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
