"""The Language environment: a question in words, an answer between tags, and a judge for what no rule can check."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from loomrl.envs.language import locale, question, summary, tongue
from loomrl.envs.language.problem import AnswerGrade, Generator, LanguageProblem, answer_hacks, text_hacks
from loomrl.gym.answer import CLOSING, OPENING, TaggedAnswer, undress
from loomrl.gym.generate import rng_of
from loomrl.gym.judge import JUDGES, Inquiry, JudgeConfig, Opinion, open_judge
from loomrl.gym.question import QuestionEnvironment, QuestionSettings
from loomrl.types import Message, Reward, Task

FAMILIES: Mapping[str, Generator] = {
    "qa.lookup": question.lookup,
    "qa.chain": question.chain,
    "qa.comparison": question.comparison,
    "qa.counting": question.counting,
    "summary": summary.summary,
    "translation.number": locale.number,
    "translation.date": locale.date,
    "translation.grammar": tongue.translation,
}
QUESTION = "How coherent is the assistant's message: do its sentences follow from what was given, and from each other?"
CHOICES = ("incoherent", "hard to follow", "mostly coherent", "coherent")
COHERENCE = 0.1
DETAIL = 0.05
FORMAT = 0.05


class LanguageSettings(QuestionSettings):
    """Settings of Language."""

    judge: JudgeConfig | None = None
    """Judge of a right answer's coherence; None leaves it to the rule that summaries have."""


class LanguageEnvironment(QuestionEnvironment):
    """Questions on worlds of facts, summaries, and translation over closed vocabularies, all checked exactly.

    `correctness` is the success: 1 for a right answer; of a summary, facts recalled minus invented. Only with full
    success, `coherence` (0.1, the rule's word or the judge's), `detail` (0.05, summaries) and `format` (0.05, a tidy
    first answer) are paid.
    """

    name = "Language"
    version = "1.1.0"
    families = tuple(FAMILIES)
    settings_class = LanguageSettings
    reward_range = (0.0, 1.0 + COHERENCE + DETAIL + FORMAT)
    guess_floor: ClassVar[Mapping[str, float]] = {
        "qa.lookup": 0.17,
        "qa.chain": 0.25,
        "qa.comparison": 0.17,
        "qa.counting": 0.12,
    }
    """At level 1: one of the few names, places or numbers that come into question."""
    reward_parts = ("correctness", "coherence", "detail", "format")
    dependencies = ("babel",)
    sources = ("loomrl.envs.language", *QuestionEnvironment.sources, "loomrl.gym.generate", *JUDGES)

    settings: LanguageSettings
    _problem: LanguageProblem
    _opinion: Opinion | None = None

    def ask(self, task: Task) -> str:
        """The problem's prompt."""
        self._opinion = None
        self._problem = FAMILIES[task.family](task.level, rng_of(task))
        return self._problem.prompt

    async def judge(self, submission: TaggedAnswer) -> Reward:
        """Correctness, and with full success what else is worth something."""
        grade = self._problem.grade(undress(submission.answer))
        # a judge is asked about right answers only, so that it can never turn a wrong one into a reward
        if grade.success < 1:
            return self.pay(grade.success, correctness=grade.success)
        return self.pay(
            grade.success,
            correctness=grade.success,
            coherence=COHERENCE * await self._coherence(grade, submission),
            detail=DETAIL * (grade.detail or 0.0),
            format=FORMAT * (submission.tidy and self.at_once),
        )

    async def _coherence(self, grade: AnswerGrade, submission: TaggedAnswer) -> float:
        """The judge's value, or without a judge the rule's."""
        if self.settings.judge is None:
            return grade.coherence or 0.0
        said = Message("assistant", f"{submission.reasoning}{OPENING}{submission.answer}{CLOSING}")
        inquiry = Inquiry(QUESTION, (Message("user", self._problem.prompt), said), CHOICES)
        self._opinion = await open_judge(self.settings.judge).ask(inquiry)
        return inquiry.worth(self._opinion)

    def explain(self) -> dict[str, str]:
        """A right answer, and the judge's opinion."""
        opinion = self._opinion
        judged = {} if opinion is None else {"judge": opinion.who, "verdict": opinion.choice, "reason": opinion.reason}
        return {"answer": self._problem.answer, **judged}

    def oracle(self) -> str:
        """A right answer, with a reason."""
        return f"{self._problem.reasoning} <answer>{self._problem.answer}</answer>"

    def random_action(self, rng: Random) -> str:
        """An answer of the right kind."""
        return f"A guess. <answer>{rng.choice(self._problem.guesses)}</answer>"

    def hacks(self) -> Sequence[str]:
        """Answers without understanding."""
        return [f"Obviously. <answer>{text}</answer>" for text in answer_hacks(self._problem)] + text_hacks()
