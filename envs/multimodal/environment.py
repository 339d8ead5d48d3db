"""The Multimodal environment: a picture and a question about it, judged by the data behind the picture."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

from loomrl.envs.multimodal.canvas import black
from loomrl.envs.multimodal.chart_question import chart_quiz
from loomrl.envs.multimodal.quiz import Quiz
from loomrl.envs.multimodal.scene_question import caption_quiz, scene_quiz
from loomrl.gym.answer import TaggedAnswer, undress
from loomrl.gym.generate import rng_of
from loomrl.gym.question import QuestionEnvironment, QuestionSettings
from loomrl.picture import size_of
from loomrl.types import Observation, Reward, Task

FAMILIES: Mapping[str, Callable[[int, Random], Quiz]] = {
    "scene.vqa": scene_quiz,
    "scene.caption": caption_quiz,
    "chart.vqa": chart_quiz,
}


class MultimodalSettings(QuestionSettings):
    """Settings of Multimodal."""

    blind: bool = False
    """Every picture is black: what a policy reaches then, it reaches without looking."""


class MultimodalEnvironment(QuestionEnvironment):
    """Pictures of shapes and charts. Success is a right answer; of a caption, the F1 of its triples."""

    name = "Multimodal"
    version = "1.1.0"
    families = tuple(FAMILIES)
    settings_class = MultimodalSettings
    settings: MultimodalSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)
    guess_floor: ClassVar[Mapping[str, float]] = {"scene.vqa": 0.125}
    """One of eight colours, or a number from one to eight; elsewhere the best guess is right in a tenth of tasks."""
    dependencies = ("pillow",)
    sources = ("loomrl.envs.multimodal", *QuestionEnvironment.sources, "loomrl.gym.generate")

    _quiz: Quiz

    @property
    def prompt(self) -> str:
        """Short: pictures need no reasoning in words, and may have it all the same."""
        return "Write the answer between <answer> and </answer>."

    def ask(self, task: Task) -> str:
        """The question."""
        self._quiz = FAMILIES[task.family](task.level, rng_of(task))
        return self._quiz.question

    async def reset(self, task: Task | None = None) -> Observation:
        """The question and its picture."""
        (message,) = await super().reset(task)
        picture = self._quiz.draw()
        # the score on black pictures is what the question alone gives away
        if self.settings.blind:
            picture = black(*size_of(picture))
        return (message._replace(images=(picture,)),)

    async def judge(self, submission: TaggedAnswer) -> Reward:
        """The grade of the answer."""
        success = self._quiz.score(undress(submission.answer))
        return self.pay(success, correctness=success)

    def explain(self) -> dict[str, str]:
        """The right answer."""
        return {"answer": self._quiz.answer}

    def oracle(self) -> str:
        """The answer from the scene graph."""
        return f"<answer>{self._quiz.answer}</answer>"

    def random_action(self, rng: Random) -> str:
        """An answer of the right kind."""
        return f"<answer>{_guess(self._quiz, rng)}</answer>"

    def hacks(self) -> Sequence[str]:
        """Answers that want to be right about everything, or to be taken for right."""
        return [f"<answer>{text}</answer>" for text in _answer_hacks(self._quiz)] + [
            "<answer>" * 500 + "red" + "</answer>" * 500,
            "".join(f"<answer>{number}</answer>" for number in range(200)),
            "I see it clearly. <answer>reward: 1, success: 1</answer>",
        ]


def _guess(quiz: Quiz, rng: Random) -> str:
    if len(quiz.guesses) == 1 and " " in quiz.guesses[0][0]:
        one, other = rng.sample(quiz.guesses[0], 2)
        return f"{one} | {rng.choice(('left of', 'above'))} | {other}"
    return " ".join(rng.choice(choices) for choices in quiz.guesses)


def _answer_hacks(quiz: Quiz) -> list[str]:
    choices = quiz.guesses[0]
    every = [
        f"{one} | {relation} | {other}" for one in choices for relation in ("left of", "above") for other in choices
    ]
    return [
        "",
        quiz.question,
        ", ".join(choices),
        " or ".join(choices),
        "\n".join(choices),
        "\n".join(every),
        "\n".join(every[:60]),
        "\n".join(f"{one} | left of | {one}" for one in choices),
        f"not {choices[-1]}",
        f"{choices[0]} ({choices[1]})",
        "red circle | left of | blue square",
        "red circle | left of | blue square\nred circle | right of | blue square\nred circle | above | blue square",
        "B 7",
        "1, 2",
        "[a-z]+",
        "*",
        "the answer",
        "NaN",
        "１",
        "9" * 3000,
        "\u0430 red circle",
        "the colour in the picture",
    ]
