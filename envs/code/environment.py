"""The Code environment: functions to write, correct, speed up and review, graded outside the process."""

import re
from collections.abc import Mapping, Sequence
from random import Random
from shutil import which
from typing import ClassVar

from pydantic import Field

from loomrl.envs.code.admission import Test, fresh_tests
from loomrl.envs.code.driver import show_value
from loomrl.envs.code.grade import LIMITS, CallResult, Grader, preload
from loomrl.envs.code.hack import code_hacks, guesses, review_hacks
from loomrl.envs.code.review import FAMILY as REVIEW
from loomrl.envs.code.review import Review, make_review
from loomrl.envs.code.submission import CODE_FORMAT, NO_CODE, countable, parse_code, readability, refusal, with_function
from loomrl.envs.code.task import FAMILIES, LINES_FACTOR, LINES_SLACK, Challenge, format_call, make_challenge
from loomrl.gym.answer import parse_submission, undress
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.sandbox import KINDS, open_sandbox
from loomrl.types import Message, Observation, Task

EFFICIENCY_WEIGHT = 0.1
READABILITY_WEIGHT = 0.1
LINE_FORMAT = "Give the number of the line between <answer> and </answer>."
_LINE = re.compile(r"(?:(?:the )?line (?:number )?)?([0-9]{1,4}):?")
_REFERENCE_BUDGET = 1_000_000
MAX_CALL = 200
"""Letters of a call in a verdict."""


class CodeSettings(EnvironmentSettings):
    """Settings of Code."""

    max_steps: int = Field(2, ge=1)
    """Attempts: an action without code gets a reminder, up to this many attempts."""
    feedback: bool = False
    """True tells the policy the value of a failed example of the prompt, while attempts are left."""


class CodeEnvironment(BaseEnvironment):
    """Python functions from our own bank; it refuses to run without a safe sandbox.

    `correctness` is 1 if every test passes – hidden ones, those of the prompt, and fresh ones drawn for the submission
    –, or the wrong line was found. Only then `efficiency` (at most 0.1) rewards few executed lines relative to the
    reference, and `readability` (at most 0.1) rewards clean text.
    """

    name = "Code"
    version = "2.1.0"
    families = (*FAMILIES, REVIEW)
    settings_class = CodeSettings
    reward_range = (0.0, 1.2)
    reward_parts = ("correctness", "efficiency", "readability")
    guess_floor: ClassVar[Mapping[str, float]] = {REVIEW: 0.2}
    """One line among six at level 1, among eight and more elsewhere."""
    sandboxed = True
    sources = ("loomrl.envs.code", "loomrl.gym.answer", "loomrl.gym.sandbox")

    settings: CodeSettings
    _challenge: Challenge | None = None
    _review: Review | None = None
    _attempts = 0

    async def reset(self, task: Task | None = None) -> Observation:
        """The task, with the format that its answer must have."""
        task = self.task_or_random(task)
        self._attempts = 0
        self._challenge = self._review = None
        if task.family == REVIEW:
            self._review = make_review(task.level, task.seed)
            return (Message("user", f"{self._review.prompt}\n\n{LINE_FORMAT}"),)
        if not any(map(which, KINDS.values())):
            open_sandbox()  # says what to install; one that can be had is proved when the first code comes
        self._challenge = make_challenge(task.family, task.level, task.seed)
        return (Message("user", f"{self._challenge.prompt}\n\n{CODE_FORMAT}"),)

    async def step(self, action: str) -> Step:
        """Judge a line or code, or ask for it."""
        self._attempts += 1
        if self._review is not None:
            return self._judge_line(self._review, action)
        challenge = self._playing()
        code = parse_code(action)
        if code is None:
            return self._again(NO_CODE)
        if not re.search(rf"\b{challenge.problem.name}\b", code):
            return self._again(f"This does not define {challenge.problem.name}. {CODE_FORMAT}")
        code = with_function(code, challenge.problem.name)
        # lines are counted by tracing, which other code could switch off
        if challenge.bounded and countable(code) is None:
            return self._again(f"This is not run: {refusal(code)}. {CODE_FORMAT}")
        async with open_sandbox().session(preload=preload(), limits=LIMITS) as session:
            return await self._judge_code(Grader(session, challenge.problem), challenge, code)

    async def _judge_code(self, grader: Grader, challenge: Challenge, code: str) -> Step:
        """Examples if feedback is on, hidden and fresh tests up to the first failure, then the lines."""
        if self.settings.feedback and self._attempts < self.settings.max_steps:
            for test in challenge.examples:
                reply = await grader.failure(code, test)
                if reply is not None:
                    return self._again(_complaint(challenge, test, reply))
        for number, test in enumerate(challenge.hidden, start=1):
            if await grader.failure(code, test) is not None:
                return self._over(0.0, verdict=f"hidden test {number} of {len(challenge.hidden)} failed")
        # hidden tests can be learnt by heart over many episodes; fresh ones depend on the submission
        failed = await grader.first_failed(code, [*challenge.examples, *fresh_tests(challenge.problem, code)])
        if failed is not None:
            return self._over(0.0, verdict=f"wrong for {format_call(challenge.problem, failed)[:MAX_CALL]}")
        share = await _economy(grader, challenge, code)
        if challenge.bounded and share is None:
            return self._over(0.0, verdict="wrong or too slow on the large input")
        return self._over(1.0, EFFICIENCY_WEIGHT * (share or 0.0), READABILITY_WEIGHT * readability(code))

    def _judge_line(self, review: Review, action: str) -> Step:
        submission = parse_submission(action)
        if submission is None:
            return self._again(f"No answer was found. {LINE_FORMAT}")
        named = _LINE.fullmatch(undress(submission.answer)[:MAX_CALL].lower())
        right = named is not None and int(named[1]) == review.line
        return self._over(float(right), verdict=f"the wrong line is {review.line}")

    def _again(self, text: str) -> Step:
        return Step.say(text, truncated=self._attempts >= self.settings.max_steps)

    def _over(self, success: float, *extras: float, verdict: str = "passed") -> Step:
        """The end; `extras` are the rewards of efficiency and readability."""
        parts = dict(zip(self.reward_parts, (success, *extras), strict=False))
        return Step.end(self.pay(success, **parts), verdict=verdict)

    def _playing(self) -> Challenge:
        assert self._challenge is not None, "step() before reset()"
        return self._challenge

    def oracle(self) -> str:
        """The reference, or the wrong line."""
        if self._review is not None:
            return f"<answer>{self._review.line}</answer>"
        return _block(self._playing().problem.source)

    def random_action(self, rng: Random) -> str:
        """A possible wrong line, or a small function with the right name and parameters."""
        if self._review is not None:
            return f"<answer>{rng.choice(self._review.candidates)}</answer>"
        return _block(rng.choice(guesses(self._playing().problem)))

    def hacks(self) -> Sequence[str]:
        """Attempts to pass tests without solving the task, or to name every line."""
        if self._review is not None:
            return review_hacks(self._review)
        return [_block(code) for code in code_hacks(self._playing())]


async def _economy(grader: Grader, challenge: Challenge, code: str) -> float | None:
    """From 1 for as few lines as the reference to 0 for the maximum; None for more, or for a wrong value.

    Both are counted on the same inputs. Code outside the subset in which counting is reliable gets None.
    """
    plain = countable(code)
    if plain is None:
        return None
    worst = 1.0
    for arguments in challenge.measured:
        reference = await grader.call(challenge.problem.source, arguments, budget=_REFERENCE_BUDGET)
        if reference.lines is None:
            raise RuntimeError(f"the reference of {challenge.problem.name} was not counted: {reference.error}")
        reply = await grader.attempt(plain, arguments, budget=LINES_FACTOR * reference.lines + LINES_SLACK)
        if reply.lines is None or not grader.agrees(reply, reference.returned):
            return None
        excess = (reply.lines - LINES_SLACK) / reference.lines - 1
        worst = min(worst, 1 - max(0.0, excess) / (LINES_FACTOR - 1))
    return max(0.0, worst)


def _complaint(challenge: Challenge, test: Test, reply: CallResult) -> str:
    """The result of an example in the prompt. Hidden tests are never mentioned."""
    call = format_call(challenge.problem, test)
    given = reply.error or f"it returned {reply.shown}"
    return f"{call} should return {show_value(test.expected)}, but {given}. {CODE_FORMAT}"


def _block(code: str) -> str:
    return f"```python\n{code.strip()}\n```"
