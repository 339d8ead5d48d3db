"""The Language environment: a question in words, an answer between tags, and a judge for what no rule can check."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from envs.language import locale, question, summary, tongue
from envs.language.hack import hacked_answers, hacked_texts
from envs.language.problem import Generator, Problem
from loomrl.gym.answer import Submission
from loomrl.gym.generate import rng_of
from loomrl.gym.question import QuestionEnvironment
from loomrl.types import Reward, Task

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
COHERENCE, DETAIL, FORMAT = 0.1, 0.05, 0.05


class LanguageEnvironment(QuestionEnvironment):
    """Questions on worlds of facts, summaries, and translation over closed vocabularies, all checked exactly.

    `correctness` is the success: 1 for a right answer; of a summary, facts recalled minus invented. Only with full
    success, `coherence` (0.1), `detail` (0.05, summaries) and `format` (0.05, a tidy first answer) are paid.
    """

    name = "Language"
    version = "1.0.0"
    families = tuple(FAMILIES)
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
    sources = ("envs.language", *QuestionEnvironment.sources, "loomrl.gym.generate")

    _problem: Problem

    def ask(self, task: Task) -> str:
        """The problem's prompt."""
        self._problem = FAMILIES[task.family](task.level, rng_of(task))
        return self._problem.prompt

    async def judge(self, submission: Submission) -> Reward:
        """Correctness, and with full success what else is worth something."""
        grade = self._problem.grade(submission.answer)
        parts = dict.fromkeys(self.reward_parts, 0.0) | {"correctness": grade.success}
        if grade.success == 1:
            parts["coherence"] = COHERENCE * (grade.coherence or 0.0)
            parts["detail"] = DETAIL * (grade.detail or 0.0)
            parts["format"] = FORMAT * (submission.tidy and self.at_once)
        return Reward(sum(parts.values()), parts, grade.success)

    def told(self) -> dict[str, str]:
        """A right answer."""
        return {"answer": self._problem.answer}

    def oracle(self) -> str:
        """A right answer, with a reason."""
        return f"{self._problem.reasoning} <answer>{self._problem.answer}</answer>"

    def random_action(self, rng: Random) -> str:
        """An answer of the right kind."""
        return f"A guess. <answer>{rng.choice(self._problem.guesses)}</answer>"

    def hacks(self) -> Sequence[str]:
        """Answers without understanding."""
        return [f"Obviously. <answer>{text}</answer>" for text in hacked_answers(self._problem)] + hacked_texts()
