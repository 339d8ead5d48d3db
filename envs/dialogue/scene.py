"""What every conversation has: a prompt, a partner who answers acts, an end, and an oracle."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from loomrl.envs.language.wording import bare
from loomrl.gym.command import parse_command

SAY = "SAY"
LONGEST_SAY = 600
"""Characters of a SAY line that are read; a longer one counts as none."""


@dataclass(frozen=True, slots=True)
class Act:
    """One turn of the policy: what it says, and the command that it means."""

    say: str
    verb: str
    argument: str


class Reply(NamedTuple):
    """What the partner answers. Where `ended` is true the conversation is over, with this success."""

    text: str
    ended: bool = False
    success: float = 0.0


class Scene(ABC):
    """One conversation, from the policy's first turn to its end."""

    verbs: ClassVar[tuple[str, ...]]

    def __init__(self, prompt: str, turns: int) -> None:
        self.prompt = prompt
        self.turns = turns
        """After so many turns the partner leaves."""

    @abstractmethod
    def reply(self, act: Act) -> Reply:
        """What the partner says to it; whatever the text is, in bounded time."""

    @abstractmethod
    def about(self, act: Act) -> tuple[Sequence[str], Sequence[str]]:
        """Words of which a fitting SAY line has one, and words that would speak of something else."""

    @abstractmethod
    def oracle(self) -> Act:
        """The next turn of somebody who knows what is hidden. Its `say` is what must be said, manners apart."""

    @abstractmethod
    def random(self, rng: Random) -> str:
        """A well-formed act without skill."""

    @abstractmethod
    def hacks(self) -> list[str]:
        """Acts that try to succeed without the conversation."""


def parse_act(text: str, verbs: Sequence[str]) -> Act | None:
    """The last command in `text`, and the line that begins with `SAY:` before it; None where there is no command."""
    found = parse_command(text, verbs)
    if found is None:
        return None
    argument = found.argument.partition("\n")[0].strip()
    said = parse_command(found.reasoning, (SAY,))
    return Act("" if said is None else said.argument.strip(), found.verb, argument)


def slots(argument: str, names: Sequence[str]) -> dict[str, str] | None:
    """`price=120, delivery=3` as a mapping; None where anything else stands there, or a name stands there twice."""
    found: dict[str, str] = {}
    pieces = argument[:1000].split(",")
    for piece in pieces:
        name, sign, value = piece.partition("=")
        name = name.strip().casefold()
        if not sign or name not in names or name in found:
            return None
        found[name] = bare(value)
    return found


def topics(name: str, names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What a question about `name` has to name, and what it must not; a question about nothing known names nothing."""
    asked = name.casefold()
    return ((asked,), [other for other in names if other != asked]) if asked in names else ((), ())
