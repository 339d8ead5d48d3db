"""The Math environment: a question, an answer between tags, exact checking, reward for answer and sound steps."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from loomrl.envs.math.answer import AnswerMatch, MathAnswer, compare
from loomrl.envs.math.family import FAMILIES
from loomrl.envs.math.hack import answer_hacks, text_hacks
from loomrl.envs.math.problem import FAMILY as CUSTOM
from loomrl.envs.math.problem import CustomParameters, MathProblem, custom_problem
from loomrl.envs.math.step import progress
from loomrl.envs.math.verify import may_verify, verify
from loomrl.gym.answer import TaggedAnswer
from loomrl.gym.generate import rng_of
from loomrl.gym.question import QuestionEnvironment
from loomrl.types import Reward, Task

PROGRESS_WEIGHT = 0.2
FORMAT_WEIGHT = 0.05


class MathEnvironment(QuestionEnvironment):
    """Exact mathematics in arithmetic, algebra, calculus, geometry and statistics.

    A complete answer, right or wrong, terminates. Parts of the reward: `correctness` is 1 for a right answer; only with
    it, `logical_progression` (at most 0.2) pays true steps and `format` (0.05) a tidy first answer.
    """

    name = "Math"
    version = "1.2.0"
    families = tuple(FAMILIES)
    template_families: ClassVar[Mapping[str, Sequence[str]]] = {CUSTOM: CustomParameters.names()}
    reward_range = (0.0, 1.0 + PROGRESS_WEIGHT + FORMAT_WEIGHT)
    ceilings: ClassVar[Mapping[str, float]] = {"random": 0.05, "constant": 0.05, "hacking": 0.05}
    guess_floor: ClassVar[Mapping[str, float]] = {
        "algebra.factor": 0.06,
        "algebra.linear": 0.07,
        "calculus.area": 0.07,
        "calculus.limit": 0.06,
        "geometry.angle": 0.07,
        "geometry.circle": 0.06,
        "geometry.similarity": 0.08,
        "statistics.counting": 0.06,
        "statistics.probability": 0.1,
        "statistics.variance": 0.1,
    }
    """The share of tasks that the best constant answer solves at the worst level; elsewhere at most 0.05."""
    dependencies = ("math-verify", "sympy", "latex2sympy2_extended")
    sources = ("loomrl.envs.math", *QuestionEnvironment.sources, "loomrl.gym.scorer")
    reward_parts = ("correctness", "logical_progression", "format")

    _problem: MathProblem
    _match = AnswerMatch.UNREADABLE

    def ask(self, task: Task) -> str:
        """The problem's prompt."""
        self._problem = (
            custom_problem(task) if task.family == CUSTOM else FAMILIES[task.family](task.level, rng_of(task))
        )
        return self._problem.prompt

    async def judge(self, submission: TaggedAnswer) -> Reward:
        """Correctness, and with it true steps and a tidy first answer."""
        self._match = await self._compare(submission.answer)
        if self._match is not AnswerMatch.EQUAL:
            return self.pay(0.0)
        return self.pay(
            1.0,
            correctness=1.0,
            logical_progression=PROGRESS_WEIGHT * progress(submission.reasoning, self._problem),
            format=FORMAT_WEIGHT * (submission.tidy and self.at_once),
        )

    def explain(self) -> dict[str, str]:
        """The right answer, and how the given one compares with it."""
        return {"answer": self._problem.answer.text, "match": self._match.value}

    async def _compare(self, attempt: str) -> AnswerMatch:
        """Our own arithmetic first; a second opinion for finished values beyond it, if no form is required."""
        # sympy may hang or exhaust memory on hostile text: our arithmetic has a budget and goes first
        match = compare(self._problem.answer, attempt)
        if match is AnswerMatch.UNREADABLE and may_verify(self._problem.answer, attempt):
            return AnswerMatch.EQUAL if await verify(self._problem.answer, attempt) else AnswerMatch.DIFFERENT
        return match

    def oracle(self) -> str:
        """The worked solution."""
        return "\n".join([*self._problem.steps, f"<answer>{self._problem.answer.text}</answer>"])

    def random_action(self, rng: Random) -> str:
        """A small answer of the right kind."""
        return f"A guess. <answer>{_guess(self._problem.answer, rng)}</answer>"

    def hacks(self) -> Sequence[str]:
        """Answers that try to be right about everything, to restate the question, or to confuse the reader."""
        return [f"Obviously. <answer>{text}</answer>" for text in answer_hacks(self._problem)] + text_hacks()


def _guess(answer: MathAnswer, rng: Random) -> str:
    number = rng.randint(-20, 100)
    if answer.kind in ("set", "tuple"):
        count = answer.text.count(",") + 1
        return ", ".join(str(rng.randint(-10, 10)) for _ in range(count))
    if answer.kind == "interval":
        return f"({number}, inf)"
    if answer.kind == "equation":
        return f"y = {rng.randint(-9, 9)}x + {number}"
    return f"{number}{'x' if answer.variables else ''}"
