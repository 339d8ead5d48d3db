"""A judge of answers that no rule can check: a question, ordered choices, and an opinion with its reason.

A judge never decides whether a task was solved. Without an opinion, for whatever reason, a ScorerError is raised and
the episode is masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from loomrl.canonical import content_hash
from loomrl.config.basic import PositiveInt, Seconds, ServerUrl, StoreUrl
from loomrl.schema import Config
from loomrl.types import Message, Trajectory

LONGEST = 8000
"""Characters of one message shown to a judge; longer ones lose their middle."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question about a conversation in which the assistant is judged."""

    question: str
    conversation: tuple[Message, ...]
    """The conversation; a line of text replaces each picture."""
    choices: tuple[str, ...]
    """From worst to best."""

    @property
    def id(self) -> str:
        """Content hash: equal inquiries have the same id."""
        return content_hash(
            [self.question, [[message.role, message.text] for message in self.conversation], list(self.choices)]
        )

    def worth(self, opinion: "Opinion") -> float:
        """0 for the worst choice, 1 for the best, evenly spaced between."""
        return self.choices.index(opinion.choice) / (len(self.choices) - 1)


@dataclass(frozen=True, slots=True)
class Opinion:
    """One of the choices, its reason, and its author."""

    choice: str
    reason: str
    who: str


class Judge(Protocol):
    """Answers inquiries."""

    async def ask(self, inquiry: Inquiry) -> Opinion:
        """An opinion, or a ScorerError."""


class OpenAIJudgeConfig(Config):
    """A model behind a server that speaks OpenAI's chat completions."""

    kind: Literal["openai"] = "openai"
    url: ServerUrl
    """Such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if one is needed."""
    max_tokens: PositiveInt = 1024
    timeout_s: Seconds = 45.0
    """Time limit for reason and verdict. Keep it below `rollout.turn_timeout_s`."""


class HumanJudgeConfig(Config):
    """People, who answer the questions in a LoomDB."""

    kind: Literal["human"] = "human"
    store: StoreUrl
    timeout_s: Seconds = 45.0
    """Time limit of an episode's wait for its answer. Keep it below `rollout.turn_timeout_s`; raise both for people."""


def conversation(trajectory: Trajectory) -> tuple[Message, ...]:
    """The main thread as messages."""
    return tuple(
        message for turn in trajectory.turns for message in (*turn.observation, Message("assistant", turn.action))
    )


def quoted(messages: Sequence[Message], *, fence: str) -> str:
    """A conversation as material: every line of a message stands behind a mark, all of it between two fences.

    So no message can begin another one, whatever it says, nor end the quotation.
    """
    lines = [f"===={fence}===="]
    for message in messages:
        lines += [f"[{message.role}]", *(f"| {line}" for line in shown(message.text).splitlines() or [""])]
    return "\n".join([*lines, lines[0]])


def shown(text: str) -> str:
    """A message as a judge sees it: whole, or its start and end; without characters that UTF-8 does not have."""
    sound = text.encode(errors="replace").decode()
    if len(sound) <= LONGEST:
        return sound
    half = LONGEST // 2
    return f"{sound[:half]}\n[{len(sound) - 2 * half} characters left out]\n{sound[-half:]}"
