"""The common part of conversations: a prompt, a partner who answers acts, an end, and an oracle."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from loomrl.envs.language.wording import bare
from loomrl.gym.answer import parse_command

SAY = "SAY"
LONGEST_SAY = 600
"""Characters of a SAY line that are read; a longer one counts as none."""


@dataclass(frozen=True, slots=True)
class DialogueAct:
    """One turn of the policy: its text, and the command in it."""

    say: str
    verb: str
    argument: str


class PartnerReply(NamedTuple):
    """The partner's answer. If `ended` is true the conversation is over, with this success."""

    text: str
    ended: bool = False
    success: float = 0.0


class DialogueScene(ABC):
    """One conversation, from the policy's first turn to its end."""

    verbs: ClassVar[tuple[str, ...]]

    def __init__(self, prompt: str, turns: int) -> None:
        self.prompt = prompt
        self.turns = turns
        """The partner leaves after this many turns."""

    @abstractmethod
    def reply(self, act: DialogueAct) -> PartnerReply:
        """The partner's answer to any text, in bounded time."""

    @abstractmethod
    def about(self, act: DialogueAct) -> tuple[Sequence[str], Sequence[str]]:
        """Words of which a fitting SAY line needs one, and words that would be about something else."""

    @abstractmethod
    def oracle(self) -> DialogueAct:
        """The next turn of an informed speaker. Its `say` is the required text, without manners."""

    @abstractmethod
    def random(self, rng: Random) -> str:
        """A well-formed act without skill."""

    @abstractmethod
    def hacks(self) -> list[str]:
        """Acts that try to succeed without the conversation."""


def parse_act(text: str, verbs: Sequence[str]) -> DialogueAct | None:
    """The last command in `text`, and the line that begins with `SAY:` before it; None where there is no command."""
    found = parse_command(text, verbs)
    if found is None:
        return None
    said = parse_command(found.reasoning, (SAY,))
    return DialogueAct("" if said is None else said.argument.strip(), found.verb, found.line)


def slots(argument: str, names: Sequence[str]) -> dict[str, str] | None:
    """`price=120, delivery: 3` as a mapping; None if there is anything else, or a repeated name."""
    found: dict[str, str] = {}
    pieces = argument[:1000].split(",")
    for piece in pieces:
        name, sign, value = piece.partition("=" if "=" in piece else ":")
        name = bare(name)
        if not sign or name not in names or name in found:
            return None
        found[name] = bare(value)
    return found


def topics(name: str, names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The words that a question about `name` must have, and those it must not; none if the name is unknown."""
    asked = bare(name)
    return ((asked,), [other for other in names if other != asked]) if asked in names else ((), ())
