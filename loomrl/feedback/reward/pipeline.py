"""The pipeline: scores of components, normalised, weighted and summed. Pure."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from math import fsum
from typing import Any

from loomrl.canonical import as_uuid, content_hash
from loomrl.config.rewards import RewardPipeline
from loomrl.errors import ConfigError, ScorerError
from loomrl.feedback.reward.component import (
    DIGITS,
    NEUTRAL,
    ComponentScore,
    NumberLog,
    Spread,
    before_outcomes,
    completion,
    efficiency,
    inapplicable_score,
    known_score,
    measures,
    missing_score,
    own_completion,
    score_of,
    task_type,
    user_feedback,
)
from loomrl.gym.grade import AttemptJudge
from loomrl.gym.rewards import RewardComponent, open_component
from loomrl.store.rewards import StoredReward
from loomrl.types import End, Feedback, Trajectory

COMPLETION = "task_completion"
EFFICIENCY = "efficiency"
QUALITY = "code_quality"
FEEDBACK = "user_feedback"
NAMESPACE = uuid.UUID("8f0c1d5e-6a0b-5e4e-9d0a-2f6f6c1b7a31")
CUT = 2.0
"""Deviations from the mean that are 0 and 1."""
LEAST_DEVIATION = 0.05
"""Where all scores are nearly alike, small differences stay small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCase:
    """A trajectory's scores without feedback: enough to judge it again."""

    trajectory: str
    task: str
    scores: Mapping[str, ComponentScore]
    """Without efficiency, as long as it was never judged, and without feedback."""
    measures: Mapping[str, int]
    versions: tuple[str, ...] = ()
    """The policy versions that answered."""
    before: StoredReward | None = None
    """The reward that holds up to now."""


@dataclass(slots=True)
class Trails:
    """The trajectories judged before: their scores, and what those of each type took."""

    window: int
    scores: NumberLog = field(init=False)
    tasks: dict[str, NumberLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scores = NumberLog(self.window, per=10**DIGITS)

    def take(self, reward: StoredReward) -> None:
        """Remember a reward, in place of an earlier one of the same trajectory."""
        parts = reward.content["components"]
        found = {name: part["value"] for name, part in parts.items() if part["value"] is not None}
        self.scores.add(reward.trajectory, found)
        habits = self.tasks.get(reward.task)
        if habits is not None:
            habits.add(reward.trajectory, reward.content["measures"])


class Pipeline:
    """The components of a pipeline's settings."""

    def __init__(self, settings: RewardPipeline) -> None:
        self.settings = settings
        self._parts = [open_component(part) for part in settings.parts]
        weights = {**settings.weights.plain, **{part.name: part.weight for part in self._parts}}
        _check_names(settings, self._parts, weights)
        total = fsum(weights.values())
        self.weights = {name: weight / total for name, weight in weights.items()}
        """Weight of every component; they sum to 1."""

    @cached_property
    def sha256(self) -> str:
        """Content hash of the settings that decide a reward."""
        settings = {name: value for name, value in self.settings.plain.items() if name != "watch"}
        judges = [part.compute_fn.sha256 for part in self._parts if isinstance(part.compute_fn, AttemptJudge)]
        return content_hash([settings, judges] if judges else settings)

    def case(
        self,
        trajectory: Trajectory,
        *,
        before: StoredReward | None = None,
        found: Mapping[str, ComponentScore] | None = None,
    ) -> RewardCase:
        """The case of a trajectory, with the results of its inspection: judged completion, code quality, rubrics."""
        found = found or {}
        own = own_completion(trajectory)
        opinion = found.get(COMPLETION)
        if opinion is not None and (own.value is None or opinion.value is not None):
            own = opinion
        none = inapplicable_score("there is no Python code in its answers")
        scores = {COMPLETION: own, QUALITY: found.get(QUALITY, none)}
        scores |= {part.name: found.get(part.name) or _score(part, trajectory) for part in self._parts}
        session: Mapping[str, Any] = trajectory.extra.get("session") or {}
        return RewardCase(
            trajectory=trajectory.id,
            task=task_type(trajectory.task),
            scores=scores,
            measures=measures(trajectory),
            versions=tuple(session.get("versions", ())),
            before=before,
        )

    def grounds(self, feedback: Sequence[Feedback]) -> str:
        """Hash of what a reward is based on beside its trajectory: on the same grounds none is judged again."""
        return content_hash([self.sha256, sorted(each.id for each in feedback)])

    def reward(
        self, case: RewardCase, feedback: Sequence[Feedback], trails: Trails, *, endpoint: str, at: float
    ) -> StoredReward:
        """The reward of a case with all feedback about it, oldest first; `trails` remember it."""
        trails.scores.drop(case.trajectory)
        scores = self._scores(case, feedback, trails)
        parts = {name: self._part(scores[name], name, trails.scores) for name in self.weights}
        present = fsum(self.weights[name] for name, score in scores.items() if score.value is not None)
        applicable = fsum(self.weights[name] for name, score in scores.items() if score.applies)
        raw = fsum(self.weights[name] * _or_neutral(score.value) for name, score in scores.items())
        before = case.before.content["components"] if case.before else {}
        grounds = self.grounds(feedback)
        content = {
            "components": parts,
            "normalization": self.settings.normalization,
            "raw": round(raw, DIGITS),
            "measures": dict(case.measures),
            "versions": list(case.versions),
            "pipeline": self.sha256,
            "grounds": grounds,
            "supersedes": None if case.before is None else case.before.id,
        }
        made = StoredReward(
            id=_id(case, grounds),
            trajectory=case.trajectory,
            endpoint=endpoint,
            task=case.task,
            total=round(fsum(part["weight"] * part["normalized"] for part in parts.values()), DIGITS),
            confidence=round(present / applicable, DIGITS) if applicable else 0.0,
            first={n: s.value for n, s in scores.items() if s.value is not None and _is_new(n, before)},
            content=content,
            created_at=at,
        )
        trails.take(made)
        return made

    def _scores(self, case: RewardCase, feedback: Sequence[Feedback], trails: Trails) -> dict[str, ComponentScore]:
        scores = dict(case.scores)
        if EFFICIENCY not in scores:
            habits = trails.tasks.setdefault(case.task, NumberLog(self.settings.window))
            habits.drop(case.trajectory)
            scores[EFFICIENCY] = efficiency(case.measures, habits, least=self.settings.least)
        scores[COMPLETION] = completion(scores[COMPLETION], feedback)
        scores[FEEDBACK] = user_feedback(feedback)
        return {name: scores.get(name) or missing_score("this component came later") for name in self.weights}

    def _part(self, score: ComponentScore, name: str, trail: NumberLog) -> dict[str, Any]:
        part = score.data()
        part["weight"] = self.weights[name]
        part["normalized"] = NEUTRAL
        if score.value is None:
            return part
        part["normalized"] = score.value
        spread = trail.spread(name)
        if spread.count < self.settings.least:
            return part
        if self.settings.normalization == "z_score":
            part["normalized"] = z_score(score.value, spread)
            mean, std = round(spread.mean, DIGITS), round(spread.deviation, DIGITS)
            part["against"] = {"count": spread.count, "mean": mean, "std": std}
        elif self.settings.normalization == "min_max":
            low, high = trail.bounds(name)
            part["normalized"] = min_max(score.value, low, high)
            part["against"] = {"count": spread.count, "min": low, "max": high}
        return part


def case_of(reward: StoredReward) -> RewardCase:
    """The case of a trajectory that was judged before, to be judged again with newer feedback."""
    scores = {name: score_of(part) for name, part in reward.content["components"].items() if name != FEEDBACK}
    if COMPLETION in scores:
        scores[COMPLETION] = before_outcomes(scores[COMPLETION])
    return RewardCase(
        trajectory=reward.trajectory,
        task=reward.task,
        scores=scores,
        measures=reward.content["measures"],
        versions=tuple(reward.content["versions"]),
        before=reward,
    )


def _id(case: RewardCase, grounds: str) -> str:
    """An id that is equal for equal trajectory, grounds and previous reward."""
    before = "" if case.before is None else case.before.id
    return str(uuid.uuid5(NAMESPACE, f"{case.trajectory}\0{before}\0{grounds}"))


def z_score(value: float, spread: Spread) -> float:
    """0.5 for the mean, 0 and 1 for two deviations from it and beyond."""
    z = (value - spread.mean) / max(spread.deviation, LEAST_DEVIATION)
    return round((min(max(z, -CUT), CUT) + CUT) / (2 * CUT), DIGITS)


def min_max(value: float, low: float, high: float) -> float:
    """0 for the least score, 1 for the highest, and beyond them; 0.5 where all are alike."""
    if low == high:
        return NEUTRAL if value == low else float(value > high)
    return round(min(max((value - low) / (high - low), 0.0), 1.0), DIGITS)


def _or_neutral(value: float | None) -> float:
    return NEUTRAL if value is None else value


def _is_new(name: str, before: Mapping[str, Any]) -> bool:
    """True for a component that had no score of this trajectory."""
    return name not in before or before[name]["value"] is None


def _score(part: RewardComponent[Trajectory], trajectory: Trajectory) -> ComponentScore:
    """The score of a custom component; its failure is not a judgement."""
    if trajectory.end is End.FAILED:
        return missing_score("the attempt failed, which says nothing of the policy")
    if isinstance(part.compute_fn, AttemptJudge) and not trajectory.turns:
        return inapplicable_score("nothing was said that could be judged")
    try:
        value = part.score(trajectory)
    except ScorerError as error:
        return missing_score(f"{error!s:.300}")
    if not 0 <= value <= 1:
        return missing_score(f"{part.name} answered {value:g}, and scores lie within 0..1")
    return known_score(value, f"{part.name} answered {value:g}")


def _check_names(
    settings: RewardPipeline, parts: Sequence[RewardComponent[Trajectory]], weights: Mapping[str, float]
) -> None:
    names = [part.name for part in parts]
    twice = sorted({name for name in names if names.count(name) > 1 or name in settings.weights.plain})
    if twice:
        raise ConfigError(f"parts: {twice[0]!r} is the name of another component. Rename it.")
    wrong = [f"{name}={weight}" for name, weight in weights.items() if not 0 <= weight < float("inf")]
    if wrong:
        raise ConfigError(f"parts: weight of {wrong[0]} must be a finite number of at least 0.")


EVALUATOR = "loomrl"
METHODS = {"z_score": "z-score", "min_max": "min-max", "none": "none"}


def as_event(reward: StoredReward) -> dict[str, Any]:
    """The body of the event. Scores are the normalised ones: their weighted sum is the total."""
    parts: Mapping[str, Mapping[str, Any]] = reward.content["components"]
    return {
        "reward_id": reward.id,
        "trajectory_id": as_uuid(reward.trajectory),
        "session_id": reward.trajectory,
        "timestamp": datetime.fromtimestamp(reward.created_at, UTC).isoformat(),
        "reward_components": {name: _component(part) for name, part in parts.items()},
        "total_reward": reward.total,
        "reward_type": "sparse",
        "normalization": {"method": METHODS[reward.content["normalization"]]},
        "metadata": {
            "evaluator": EVALUATOR,
            "evaluation_method": _method(parts),
            "confidence": reward.confidence,
        },
    }


def _component(part: Mapping[str, Any]) -> dict[str, Any]:
    raw = {"value": part["value"], "applies": part["applies"], **part["evidence"]}
    if "against" in part:
        raw["against"] = part["against"]
    said = part["reasoning"] if part["value"] is not None else f"{part['reasoning']}: neutral"
    return {
        "score": part["normalized"],
        "weight": part["weight"],
        "source": part["source"],
        "reasoning": said,
        "raw_data": raw,
    }


def _method(parts: Mapping[str, Mapping[str, Any]]) -> str:
    found = {name: part for name, part in parts.items() if part["value"] is not None}
    human = [name for name, part in found.items() if part["source"] == "human"]
    if human:
        return "human" if set(found) == {FEEDBACK} else "hybrid"
    return "model-based" if any("judge" in part["evidence"] for part in found.values()) else "automated"
