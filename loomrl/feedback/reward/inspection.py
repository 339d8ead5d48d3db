"""Components that take time: judges' opinions, of completion and of parts, and code measured in the sandbox."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from loomrl.config.rewards import CustomPart, RewardPipeline
from loomrl.errors import JudgeError, ScorerError
from loomrl.feedback.reward.code import Inspected, Laboratory, code_quality, submission
from loomrl.feedback.reward.component import (
    ComponentScore,
    inapplicable_score,
    is_told,
    known_score,
    missing_score,
    own_completion,
    worth,
)
from loomrl.feedback.reward.pipeline import COMPLETION, QUALITY
from loomrl.gym.grade import AttemptJudge, Grade
from loomrl.gym.judge import Inquiry, InquiryJudge, OpenAIJudgeConfig, conversation, open_judge
from loomrl.gym.rewards import open_component
from loomrl.gym.rubric_judge import RubricGrade
from loomrl.types import End, Trajectory

QUESTION = "Did the assistant do what the user asked for?"
CHOICES = ("not at all", "in part", "completely")
TOGETHER = 8
"""Questions to the judge at once."""


class Inspection:
    """Inspections by sandbox and judge, which are opened by the first trajectory that needs them."""

    def __init__(self, settings: RewardPipeline) -> None:
        self._settings = settings
        components = [open_component(part) for part in settings.parts if not isinstance(part, CustomPart)]
        self._judges = {one.name: one.compute_fn for one in components if isinstance(one.compute_fn, AttemptJudge)}

    def takes_time(self, trajectory: Trajectory) -> bool:
        """True if somebody or something has to look at this trajectory."""
        if self._is_asked(trajectory) or (self._judges and has_words(trajectory)):
            return True
        return self._settings.code == "auto" and submission(trajectory) is not None and not self._laboratory.refusal

    def inspect(self, trajectories: Sequence[Trajectory]) -> dict[str, dict[str, ComponentScore]]:
        """By trajectory: the scores that were found. A judge or a sandbox that fails is no judgement."""
        found: dict[str, dict[str, ComponentScore]] = {one.id: {} for one in trajectories}
        spoken = [one for one in trajectories if has_words(one)]
        begun = {
            (one.id, name): wait
            for name, judge in self._judges.items()
            for one, wait in zip(spoken, judge.begin_all(spoken), strict=True)
        }
        for id, score in self._qualities(trajectories).items():
            found[id][QUALITY] = score
        asked = [one for one in trajectories if self._is_asked(one)]
        if asked:
            for id, score in asyncio.run(_opinions(self._judge, asked)).items():
                found[id][COMPLETION] = score
        for (id, name), wait in begun.items():
            found[id][name] = _score_grade(wait)
        return found

    def _qualities(self, trajectories: Sequence[Trajectory]) -> dict[str, ComponentScore]:
        submissions = {one.id: made for one in trajectories if (made := submission(one)) is not None}
        if not submissions:
            return {}
        if self._settings.code == "off":
            return dict.fromkeys(submissions, inapplicable_score("code is not judged: code=off"))
        return {id: _quality(found) for id, found in self._laboratory.inspect(submissions).items()}

    def _is_asked(self, trajectory: Trajectory) -> bool:
        if self._settings.judge is None or not has_words(trajectory):
            return False
        return not is_told(own_completion(trajectory))

    @cached_property
    def _laboratory(self) -> Laboratory:
        return Laboratory()

    @cached_property
    def _judge(self) -> InquiryJudge:
        model = self._settings.judge
        assert model is not None, "asked without a judge"
        return open_judge(OpenAIJudgeConfig(url=model.url, model=model.model, key_variable=model.key_variable))


def _quality(found: Inspected | str) -> ComponentScore:
    if isinstance(found, str):
        return missing_score(found)
    return code_quality(found) or missing_score("; ".join(found.left_out) or "nothing was measured")


async def _opinions(judge: InquiryJudge, trajectories: Sequence[Trajectory]) -> Mapping[str, ComponentScore]:
    turns = asyncio.Semaphore(TOGETHER)

    async def ask(trajectory: Trajectory) -> ComponentScore:
        inquiry = Inquiry(QUESTION, conversation(trajectory), CHOICES)
        async with turns:
            try:
                opinion = await judge.ask(inquiry)
            except ScorerError as error:
                return missing_score(f"the judge gave no opinion: {error!s:.300}")
        said = f"{opinion.who} judges: {opinion.choice}"
        return known_score(worth(inquiry.worth(opinion)), said, judge=opinion.who, choice=opinion.choice)

    return dict(zip([one.id for one in trajectories], await asyncio.gather(*map(ask, trajectories)), strict=True))


def _score_grade(wait: Callable[[], Grade]) -> ComponentScore:
    """A judge's score. Reasons may quote what was said, and what is on record of a reward leaves by bus."""
    try:
        grade = wait()
    except JudgeError as error:
        return missing_score(f"the judge gave no verdict: {error!s:.300}")
    except ScorerError:
        return missing_score("the judge gave no verdict: its answer could not be read")
    if not isinstance(grade, RubricGrade):
        return known_score(grade.score, f"{grade.who} scores it so", judge=grade.who)
    shares = dict(grade.shares)
    told = ", ".join(f"{name} {share:g}" for name, share in shares.items())
    return known_score(grade.score, f"{grade.who} judges: {told}", judge=grade.who, raw=grade.raw, criteria=shares)


def has_words(trajectory: Trajectory) -> bool:
    """True for a conversation that did not fail."""
    return trajectory.end is not End.FAILED and bool(trajectory.turns)
