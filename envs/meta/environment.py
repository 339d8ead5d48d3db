"""The MetaReasoning environment: think as long as is useful, then answer; twins are answered both."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

from pydantic import Field

from loomrl.envs.meta.assumption import incomplete_problem
from loomrl.envs.meta.calibration import calibration, evidence
from loomrl.envs.meta.question import LONGEST, MetaQuestion, Questions, answer_hacks
from loomrl.envs.meta.twin import bias
from loomrl.envs.meta.verification import verification
from loomrl.gym.answer import COMMANDS, command_format, parse_command
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.generate import rng_of
from loomrl.gym.judge import JUDGES, Inquiry, JudgeConfig, open_judge
from loomrl.types import Message, Observation, Task

FAMILIES: Mapping[str, Callable[[int, Random], Questions]] = {
    "bias": bias,
    "calibration": calibration,
    "evidence": evidence,
    "underspecified": incomplete_problem,
    "verification": verification,
}
CALIBRATION_WEIGHT = 0.2
MOST_THOUGHTS = 4
VERBS = ("THINK", "ANSWER")
REASONING_WEIGHT = 0.2
QUESTION = "How sound is the assistant's reasoning, from its thoughts to its answer?"
CHOICES = ("poor", "fair", "good", "excellent")


class MetaReasoningSettings(EnvironmentSettings):
    """Settings of MetaReasoning."""

    max_steps: int = Field(12, ge=1)
    """Actions of an episode: thoughts, answers, and those that were no command."""
    judge: JudgeConfig | None = None
    """Judge of the reasoning in a solved episode; None asks no judge."""


class MetaReasoningEnvironment(BaseEnvironment):
    """A question, or twins of one. `ANSWER` answers; `THINK` gives a further turn, which earns and costs nothing.

    `correctness` is 1 where every question of the episode is answered rightly, and so is success. `calibration`, where
    a confidence was asked for, is -0.2 × Brier's loss: nothing is earned by it, and an honest probability loses least.
    With a judge, `reasoning` is up to 0.2 for sound thoughts, in a solved episode only.
    """

    name = "MetaReasoning"
    version = "1.2.0"
    families = tuple(FAMILIES)
    settings_class = MetaReasoningSettings
    reward_range = (-CALIBRATION_WEIGHT, 1.0 + REASONING_WEIGHT)
    guess_floor: ClassVar[Mapping[str, float]] = {"calibration": 0.2, "underspecified": 0.2}
    """The share of tasks that the best guess without thought solves at the worst level; elsewhere at most 0.1."""
    reward_parts = ("correctness", "calibration", "reasoning")
    sources = ("loomrl.envs.meta", *COMMANDS, "loomrl.gym.generate", *JUDGES)

    settings: MetaReasoningSettings
    _questions: Questions
    _answered = _thoughts = 0
    _right = True

    async def reset(self, task: Task | None = None) -> Observation:
        """The first question, and the commands."""
        task = self.task_or_random(task)
        self._questions = FAMILIES[task.family](task.level, rng_of(task))
        self._answered = 0
        self._thoughts = 0
        self._right = True
        more = "First of two questions. " if len(self._questions) > 1 else ""
        self._said = [Message("user", f"{more}{self._question.prompt}\n\n{self._commands()}")]
        return tuple(self._said)

    @property
    def _question(self) -> MetaQuestion:
        return self._questions[self._answered]

    def _commands(self) -> str:
        return command_format([f"THINK: anything (at most {MOST_THOUGHTS} times)", f"ANSWER: {self._question.usage}"])

    async def step(self, action: str) -> Step:
        """Let it think, or mark an answer."""
        self._said.append(Message("assistant", action))
        step = await self._judge(self._respond(action))
        self._said += step.observation
        return step

    def _respond(self, action: str) -> Step:
        command = parse_command(action, VERBS)
        if command is None:
            return Step.say(f"No command was found. {self._commands()}")
        if command.verb == "THINK":
            self._thoughts += 1
            return Step.say("Go on." if self._thoughts < MOST_THOUGHTS else "Now ANSWER.")
        return self._answer(command.line)

    def _answer(self, text: str) -> Step:
        mark = self._question.mark(text) if len(text) <= LONGEST else None
        if mark is None:
            return Step.say(f"That is not of the form ANSWER: {self._question.usage}")
        self._right = self._right and mark.right
        self._answered += 1
        if self._answered < len(self._questions):
            return Step.say(f"Second question. {self._question.prompt}")
        success = float(self._right)
        reward = self.pay(success, correctness=success, calibration=-CALIBRATION_WEIGHT * mark.loss)
        return Step.end(reward, answers=[question.answer for question in self._questions])

    async def _judge(self, step: Step) -> Step:
        """The step, with the judge's word on the reasoning where it solves the episode."""
        if self.settings.judge is None or not step.reward.success:
            return step
        inquiry = Inquiry(QUESTION, tuple(self._said), CHOICES)
        opinion = await open_judge(self.settings.judge).ask(inquiry)
        reasoning = REASONING_WEIGHT * inquiry.worth(opinion)
        reward = self.pay(step.reward.success, **{**step.reward.parts, "reasoning": reasoning})
        told = {"judge": opinion.who, "verdict": opinion.choice, "reason": opinion.reason}
        return step._replace(reward=reward, info={**step.info, **told})

    def oracle(self) -> str:
        """The perfect answer to the present question."""
        return f"ANSWER: {self._question.answer}"

    def random_action(self, rng: Random) -> str:
        """An answer in the right form."""
        return f"ANSWER: {self._question.guess(rng)}"

    def hacks(self) -> Sequence[str]:
        """Answers that hedge, refuse, repeat the question, take its numbers and words, or talk to the judge."""
        return answer_hacks(self._question)
