"""One attempt of an agent: its process, its session, its score, as a trajectory. Every error becomes data."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loomrl.errors import EpisodeError, PolicyError, ScorerError, failure_from
from loomrl.gym.adapters.harness.environment import Harness
from loomrl.gym.adapters.harness.nursery import Ended, Ending, Lost
from loomrl.gym.adapters.harness.session import CONTEXT, Access, Sessions, Spoken
from loomrl.gym.adapters.harness.task import AgentTasks, Done, Row, score
from loomrl.gym.episode import Attempt, Clock, Limits
from loomrl.types import End, Failure, Reward, Trajectory, Turn

AGENT = "agent"
"""The boundary of failures that are the agent's own."""
NOTHING = Reward()
DEFAULT_LIMITS = Limits()
TOLD = 2000
"""Characters of an agent's output that its trajectory keeps."""


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of an attempt."""

    outcome: End | Failure
    reward: Reward = NOTHING


async def play_agent(
    harness: Harness,
    sessions: Sessions,
    attempt: Attempt,
    *,
    limits: Limits = DEFAULT_LIMITS,
    clock: Clock = time.time,
) -> Trajectory:
    """Play one attempt. Failures are in the trajectory; only cancellation is raised."""
    started_at = clock()
    folder = Path(tempfile.mkdtemp(prefix="loomrl-agent-"))
    try:
        spoken, ended, result = await _play(harness, sessions, attempt, folder, limits)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return _trajectory(attempt, spoken, ended, result, times=(started_at, clock()))


async def _play(
    harness: Harness, sessions: Sessions, attempt: Attempt, folder: Path, limits: Limits
) -> tuple[Spoken, Ended | None, _Result]:
    try:
        row = harness.row(attempt.task)
        _lay_out(row, folder)
        nursery = await asyncio.to_thread(harness.agent.nursery)
    except Exception as error:  # noqa: BLE001 - the boundary: task sources are a stranger's
        return Spoken(), None, _Result(failure_from(error, boundary=EpisodeError.boundary))
    try:
        access = await sessions.open(attempt, harness.settings.budget)
    except Exception as error:  # noqa: BLE001 - the boundary
        return Spoken(), None, _Result(failure_from(error, boundary=PolicyError.boundary))
    ended: Ended | None = None
    trouble: Failure | None = None
    try:
        launch = harness.agent.launch(row.task, access, folder, **_limits(harness, limits))
        ended = await nursery.run(launch)
    except Lost as error:
        trouble = Failure(AGENT, "Lost", str(error))
    except Exception as error:  # noqa: BLE001 - the boundary
        trouble = failure_from(error, boundary=EpisodeError.boundary)
    finally:
        spoken = await _finish(sessions, access)
    if ended is None:
        assert trouble is not None, "without an end there is a failure"
        return spoken, None, _Result(trouble)
    tasks = harness.tasks(attempt.task)
    truncated = _overrun(spoken, ended)
    failure = spoken.failure or _failure(ended, spoken, truncated=bool(truncated), scores_status=tasks.scores_status)
    if failure is not None:
        return spoken, ended, _Result(failure)
    done = Done(
        row=row,
        status=ended.status,
        output=ended.output,
        errors=ended.errors,
        folder=folder,
        truncated=truncated,
    )
    return spoken, ended, await _judged(tasks, done, limits)


def _lay_out(row: Row, folder: Path) -> None:
    for name, text in row.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _limits(harness: Harness, limits: Limits) -> dict[str, float | int]:
    settings = harness.settings
    return {
        "seconds": min(settings.budget.seconds, limits.episode_timeout_s),
        "output_bytes": settings.output_bytes,
        "processes": settings.processes,
        "memory_mb": settings.memory_mb,
        "file_mb": settings.file_mb,
    }


async def _finish(sessions: Sessions, access: Access) -> Spoken:
    try:
        return await sessions.finish(access)
    except Exception as error:  # noqa: BLE001 - the boundary
        return Spoken(failure=failure_from(error, boundary=PolicyError.boundary))


async def _judged(tasks: AgentTasks, done: Done, limits: Limits) -> _Result:
    """The score, of a truncated attempt too."""
    try:
        reward = await score(tasks, done, timeout_s=limits.turn_timeout_s)
    except ScorerError as error:
        return _Result(failure_from(error, boundary=ScorerError.boundary))
    return _Result(End.TRUNCATED if done.truncated else End.TERMINATED, reward)


def _overrun(spoken: Spoken, ended: Ended) -> str:
    """The limit that ended the attempt. An agent may get by with a full context, by beginning another conversation."""
    if ended.ended is Ending.DEADLINE:
        return "seconds"
    gets_by = spoken.overrun == CONTEXT and ended.ended is Ending.EXITED and ended.status == 0
    return "" if gets_by else spoken.overrun


def _failure(ended: Ended, spoken: Spoken, *, truncated: bool, scores_status: bool) -> Failure | None:
    """The agent's failure, if it has one. It is never a reward of 0: nothing says that the policy did badly."""
    said = f" It said: {ended.errors.strip()[-1500:]}" if ended.errors.strip() else ""
    if ended.ended is Ending.OVERFLOW:
        return Failure(AGENT, "Overflow", f"the agent wrote more than output_bytes to standard output.{said}")
    if ended.ended is Ending.CROWD:
        return Failure(AGENT, "Crowd", f"the agent started more processes than `processes` allows.{said}")
    if not truncated and ended.status < 0:
        return Failure(AGENT, "Signal", f"the agent was ended by signal {-ended.status}.{said}")
    if not truncated and ended.status and not scores_status:
        return Failure(AGENT, "Exit", f"the agent ended with status {ended.status}.{said}")
    if not spoken.turns:
        return Failure(
            AGENT,
            "Silent",
            "the agent got no answer of the model. Does it use OPENAI_BASE_URL or ANTHROPIC_BASE_URL? agent.env can "
            f"set what it reads instead.{said}",
        )
    return None


def _trajectory(
    attempt: Attempt, spoken: Spoken, ended: Ended | None, result: _Result, *, times: tuple[float, float]
) -> Trajectory:
    failure = result.outcome if isinstance(result.outcome, Failure) else None
    turns = spoken.turns
    if turns and failure is None:
        turns = (*turns[:-1], replace(turns[-1], reward=result.reward))
    versions = _versions(attempt, (turns, *spoken.threads))
    return Trajectory(
        id=attempt.id,
        task=attempt.task,
        turns=turns,
        threads=spoken.threads,
        end=result.outcome if isinstance(result.outcome, End) else End.FAILED,
        reward=result.reward,
        group=attempt.group,
        group_size=attempt.group_size,
        first_version=min(versions),
        last_version=max(versions),
        source=attempt.source,
        snapshot=attempt.snapshot,
        run=attempt.run,
        failure=failure,
        started_at=times[0],
        finished_at=times[1],
        extra={**attempt.extra, **_told(ended, spoken)},
    )


def _told(ended: Ended | None, spoken: Spoken) -> dict[str, object]:
    """The agent's end, for whoever reads the trajectory."""
    if ended is None:
        return {}
    agent = {
        "ended": str(ended.ended),
        "status": ended.status,
        "output": ended.output[-TOLD:],
        "seconds": round(ended.wall_s, 3),
        "cpu_s": round(ended.cpu_s, 3),
    }
    return {"agent": agent | ({"overrun": spoken.overrun} if spoken.overrun else {})}


def _versions(attempt: Attempt, sequences: Sequence[Sequence[Turn]]) -> list[int]:
    found: list[int] = []
    for turns in sequences:
        for turn in turns:
            if turn.tokens is not None and (span := turn.tokens.versions_T[turn.tokens.mask_T]).size:
                found += [int(span.min()), int(span.max())]
    return found or [attempt.version]
