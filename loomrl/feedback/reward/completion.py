"""Task completion: whether the task was done, as the environment, the caller or a judge says."""

from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.feedback.reward.score import Score, known, missing, score_of
from loomrl.threshold import reaches
from loomrl.types import End, Feedback, Source, Trajectory

OUTCOME = "outcome"
PLAYED = (Source.ROLLOUT, Source.EVALUATION)
"""Attempts in environments, which know whether their task was solved."""


def worth(fraction: float) -> float:
    """1 for a task that is done, 0 for one that is not begun, 0.5 and more for one that is done in part."""
    if reaches(fraction, 1.0):
        return 1.0
    return 0.5 + 0.5 * fraction if fraction > 0 else 0.0


def own_completion(trajectory: Trajectory) -> Score:
    """The completion that the trajectory itself tells: a caller's word at the session's end, or the environment's."""
    if trajectory.end is End.FAILED:
        assert trajectory.failure is not None, "it has failed"
        return missing(f"it failed at the boundary {trajectory.failure.boundary!r}, which says nothing of the policy")
    if trajectory.source is Source.FOREIGN:
        return _reported(trajectory.extra.get("foreign", {}).get("turns", ()))
    if trajectory.source in PLAYED:
        success = trajectory.reward.success
        return known(worth(success), f"the environment's success is {success:g}", success=success)
    session: Mapping[str, Any] = trajectory.extra.get("session") or {}
    told = session.get("success")
    if told is not None:
        return known(worth(told), f"the caller said at its end that success is {told:g}", success=told)
    outcome = trajectory.reward.parts.get("outcome")
    if outcome is None:
        return missing("nobody said how it ended")
    if not 0 <= outcome <= 1:
        return missing(f"the caller gave a reward of {outcome:g}, which tells no share of the task", reward=outcome)
    return known(worth(outcome), f"the caller gave a reward of {outcome:g} at its end", reward=outcome)


def is_told(own: Score) -> bool:
    """True if somebody or something else than the agent itself said how it ended."""
    return own.value is not None and not own.evidence.get("self_reported")


def _reported(turns: Sequence[Mapping[str, Any]]) -> Score:
    """What somebody else's agent says of its turns: done if the last one succeeded, else the share that did."""
    if not turns:
        return missing("its agent reported no turns")
    succeeded = sum(bool(turn["success"]) for turn in turns)
    fraction = 1.0 if turns[-1]["success"] else succeeded / len(turns)
    reasoning = f"by the agent's own report {succeeded} of {len(turns)} turns succeeded"
    said = reasoning + (", the last one too" if turns[-1]["success"] else ", the last one not")
    return known(worth(fraction), said, succeeded=succeeded, turns=len(turns), self_reported=True)


def completion(own: Score, feedback: Sequence[Feedback]) -> Score:
    """The newest outcome that was told later, in place of what the trajectory tells; else that."""
    told = [each for each in feedback if each.kind == OUTCOME]
    if not told:
        return own
    last = told[-1]
    reasoning = f"the outcome told later is {last.value:g}"
    return known(worth(last.value), reasoning, feedback=last.id, told=last.value, instead_of=own.data())


def before_outcomes(score: Score) -> Score:
    """What the trajectory itself tells, of a completion on record."""
    own = score.evidence.get("instead_of")
    return score if own is None else score_of(own)
