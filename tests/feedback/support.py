"""Trajectories and feedback for tests of rewards."""

from collections.abc import Sequence
from typing import Any

from loomrl.store.rewards import StoredReward
from loomrl.types import End, Feedback, Message, Reward, Source, Task, Trajectory, Turn


def turn(action: str, asked: str = "please") -> Turn:
    return Turn((Message("user", asked),), action)


def served(
    id: str,
    *actions: str,
    success: float | None = None,
    outcome: float | None = None,
    endpoint: str = "talk",
    family: str = "session",
    seconds: float | None = None,
    **changes: Any,
) -> Trajectory:
    """A trajectory as an endpoint's hub has it."""
    session = {
        "success": success,
        "judged": success is not None or outcome is not None,
        "versions": ["math-1/4"],
        "outcome": {},
    }
    if seconds is not None:
        session["seconds"] = seconds
    made: dict[str, Any] = {
        "id": id,
        "task": Task(endpoint, "math-1/4", family, 1, 0),
        "turns": tuple(turn(action) for action in actions or ("fine",)),
        "end": End.TERMINATED if success is not None else End.TRUNCATED,
        "reward": Reward(outcome or 0.0, {} if outcome is None else {"outcome": outcome}, success or 0.0),
        "group": id,
        "source": Source.PRODUCTION,
        "started_at": 10.0,
        "finished_at": 500.0,
        "extra": {"session": session},
    }
    return Trajectory(**made | changes)


def said(id: str, trajectory: str, kind: str = "thumb", value: float = 1.0, **more: Any) -> Feedback:
    source = {"outcome": "caller", "asked_again": "implicit", "corrected": "implicit", "left": "implicit"}
    made = {"source": source.get(kind, "human"), "created_at": 5.0} | more
    return Feedback(id=id, trajectory=trajectory, kind=kind, value=value, **made)


def totals(rewards: Sequence[StoredReward]) -> dict[str, float]:
    return {one.trajectory: one.total for one in rewards}
