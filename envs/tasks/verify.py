"""The verifier of a task: its tests come into the box after the policy's last command, and leave a reward."""

import json
import math
from typing import NamedTuple

from loomrl.envs.tasks.folder import TaskFolder
from loomrl.envs.tasks.workspace import PATH, File, Said, Workspace
from loomrl.errors import ScorerError
from loomrl.gym.sandbox import Ending

LOGS = "/logs/verifier"
REWARD = f"{LOGS}/reward.json"
REWARD_TEXT = f"{LOGS}/reward.txt"
RECORD = f"{LOGS}/pytest.json"
OURS = ("/tests", "/logs", "/solution", "/oracle")
"""Folders of the harness: whatever a policy left there is gone before the tests come."""
NO_TESTS = {3: "an internal error", 4: "a wrong command line", 5: "no tests"}
"""Statuses of pytest that say nothing about the policy."""


class Verdict(NamedTuple):
    """A reward from 0 to 1, and why."""

    reward: float
    why: str


async def verify(workspace: Workspace, task: TaskFolder) -> Verdict:
    """Run the task's tests on what the policy left; a ScorerError where they give no reward."""
    files = [File("/logs/agent"), File("/logs/artifacts"), File(LOGS), *task.tests]
    if not await workspace.lay(files, emptied=OURS):
        return Verdict(0.0, "the folders of the tests could not be emptied of what the policy had put there")
    environment = {**task.image.environment, **task.verifier_env}
    environment["PATH"] = f"/tools/verifier:{environment.get('PATH', PATH)}"
    command = f"/bin/bash {task.script}"
    said = await workspace.run(command, folder=task.image.folder, environment=environment, wall_s=task.verifier_s)
    if said.ending is Ending.TIMEOUT:
        raise ScorerError(f"{task.name}: {command} took longer than {task.verifier_s:g} s. {_tail(said)}")
    if said.ending is not Ending.EXITED:
        raise ScorerError(f"{task.name}: {command} was {said.ending} ({said.status}). {_tail(said)}")
    left = await workspace.read((REWARD, REWARD_TEXT, RECORD))
    return _recorded(task, left, said) if task.kind == "terminal-bench" else _rewarded(task, left, said)


def _recorded(task: TaskFolder, left: dict[str, bytes], said: Said) -> Verdict:
    """1 if pytest passed every test; it says so itself, whatever is printed."""
    try:
        record = json.loads(left[RECORD])
        status = int(record["status"])
        tests = dict(record["tests"])
    except (KeyError, ValueError, TypeError):
        raise ScorerError(f"{task.name}: {task.script} ended without a result of pytest. {_tail(said)}") from None
    if status in NO_TESTS:
        raise ScorerError(f"{task.name}: pytest had {NO_TESTS[status]}. {_tail(said)}")
    failed = [name for name, outcome in tests.items() if outcome == "failed"]
    if status or failed:
        return Verdict(0.0, f"failed: {', '.join(failed)[:500] or 'pytest did not come to its end'}")
    return Verdict(1.0, f"{len(tests)} tests passed")


def _rewarded(task: TaskFolder, left: dict[str, bytes], said: Said) -> Verdict:
    """The number in reward.json or reward.txt."""
    try:
        if REWARD in left:
            reward = _number(json.loads(left[REWARD]))
        else:
            reward = float(left[REWARD_TEXT])
    except KeyError:
        raise ScorerError(f"{task.name}: {task.script} left no reward in {LOGS}. {_tail(said)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ScorerError(f"{task.name}: the reward cannot be read: {error!s:.200}. {_tail(said)}") from None
    if not 0 <= reward <= 1 or math.isnan(reward):
        raise ScorerError(f"{task.name}: reward {reward:g}: a number from 0 to 1 is needed. {_tail(said)}")
    return Verdict(reward, f"{task.script} gave {reward:g}")


def _number(said: object) -> float:
    """`reward` of an object, or its only number."""
    if not isinstance(said, dict):
        raise TypeError("reward.json must be an object")
    numbers = {key: value for key, value in said.items() if type(value) in (int, float)}
    if "reward" not in numbers and len(numbers) != 1:
        raise ValueError(f"of {', '.join(numbers) or 'no numbers'}, none is called reward")
    return float(numbers["reward"] if "reward" in numbers else next(iter(numbers.values())))


def _tail(said: Said) -> str:
    return f"It said: {said.output[-800:].strip() or 'nothing'}"
