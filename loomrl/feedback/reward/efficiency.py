"""Efficiency: turns, tokens, time and repeated tool calls, against what is usual for the type of task."""

import json
from collections.abc import Iterator, Mapping
from math import fsum
from typing import Any

import numpy as np

from loomrl.feedback.reward.completion import PLAYED
from loomrl.feedback.reward.score import Score, known, missing
from loomrl.feedback.reward.trail import Spread, Trail
from loomrl.serving.wording import CLOSING, OPENING
from loomrl.types import End, Source, Task, Trajectory, Turn

CUT = 2.0
"""Deviations from the mean beyond which nothing counts."""
LEAST_SHARE = 0.1
"""A deviation counts as at least this share of the mean: a second more in a minute is no outlier."""


def task_type(task: Task) -> str:
    """Tasks of one type are compared with each other."""
    return f"{task.environment}/{task.family}/{task.level}"


def measures(trajectory: Trajectory) -> dict[str, int]:
    """What an attempt took: `turns`, `tokens` (or `words`, where some tokens are not stored), `repeats` of tool calls
    with the same arguments, and `ms` where the time is the policy's own.
    """
    if trajectory.end is End.FAILED:
        return {}
    turns = [turn for sequence in trajectory.sequences for turn in sequence]
    found = {"turns": len(turns) if trajectory.steps is None else len(turns) + len(trajectory.steps)}
    if turns:
        found |= _said(turns)
    reported = trajectory.extra.get("foreign", {}).get("metadata", {}).get("total_tokens")
    if reported is not None:
        found["tokens"] = reported
        found.pop("words", None)
    seconds = _seconds(trajectory)
    if seconds is not None:
        found["ms"] = round(1000 * seconds)
    return found


def efficiency(taken: Mapping[str, int], habits: Trail, *, least: int) -> Score:
    """The mean over what was measured: 0.5 is usual, 1 two deviations less than usual, 0 two more."""
    if not taken:
        return missing("nothing was measured")
    usual = {name: habits.spread(name) for name in taken}
    enough = {name: spread for name, spread in usual.items() if spread.count >= least}
    if not enough:
        most = max(spread.count for spread in usual.values())
        return missing(f"{most} of this type were seen before, and {least} tell what is usual", **taken)
    varying = {name: spread for name, spread in enough.items() if spread.deviation or taken[name] != spread.mean}
    marks = {name: _mark(taken[name], spread) for name, spread in (varying or enough).items()}
    told = ", ".join(f"{taken[name]} {name} (usual {enough[name].mean:.4g})" for name in marks)
    evidence: dict[str, Any] = {name: [taken[name], *_rounded(enough[name])] for name in marks}
    return known(fsum(marks.values()) / len(marks), told, **evidence)


def _mark(taken: int, usual: Spread) -> float:
    deviation = max(usual.deviation, LEAST_SHARE * usual.mean)
    z = (usual.mean - taken) / deviation if deviation else 0.0 if taken == usual.mean else -CUT
    return (min(max(z, -CUT), CUT) + CUT) / (2 * CUT)


def _rounded(spread: Spread) -> tuple[float, float]:
    return round(spread.mean, 3), round(spread.deviation, 3)


def _said(turns: list[Turn]) -> dict[str, int]:
    found = {"repeats": _repeats(turns)}
    if any(turn.tokens is None for turn in turns):
        found["words"] = sum(len(turn.action.split()) for turn in turns)
    else:
        found["tokens"] = sum(int(np.count_nonzero(turn.tokens.mask_T)) for turn in turns if turn.tokens is not None)
    return found


def _repeats(turns: list[Turn]) -> int:
    calls = [call for turn in turns if OPENING in turn.action for call in _calls(turn.action)]
    return len(calls) - len(set(calls))


def _calls(action: str) -> Iterator[str]:
    for piece in action.split(OPENING)[1:]:
        text = piece.partition(CLOSING)[0].strip()
        try:
            yield json.dumps(json.loads(text), sort_keys=True)
        except (ValueError, RecursionError):
            yield text


def _seconds(trajectory: Trajectory) -> float | None:
    """The time that the policy took. From the beginning to the end of a session its people were thinking, too."""
    if trajectory.source in PLAYED and trajectory.finished_at > trajectory.started_at:
        return trajectory.finished_at - trajectory.started_at
    if trajectory.source is Source.FOREIGN:
        ms = [turn["ms"] for turn in trajectory.extra.get("foreign", {}).get("turns", ()) if "ms" in turn]
        return fsum(ms) / 1000 if ms else None
    answering: float | None = (trajectory.extra.get("session") or {}).get("seconds")
    return answering
