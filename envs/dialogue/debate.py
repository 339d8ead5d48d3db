"""A debate by declared rules: rebut the last claim, and save strong arguments for where they are needed."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from loomrl.envs.dialogue.scene import DialogueAct, DialogueScene, PartnerReply
from loomrl.envs.language.wording import bare
from loomrl.gym.generate import between, words

TOPICS = words("cost noise safety traffic health jobs")
SOURCES = words("story survey study")
"""From weak to strong."""
MOTIONS = (
    "The town needs a new library.",
    "Cars should leave the centre.",
    "The school day should begin later.",
    "The harbour should be closed at night.",
)
SOURCE_FROM = 3
SHARED_FROM = 5
GREED_FROM = 5
THRIFT_FROM = 7
"""Lowest levels with sources, with arguments on two topics, and at which always using the strongest, or always the
weakest sufficient argument, loses.
"""
MOST_DOORS = 0.25
"""Maximum share of arguments that rebut the first claim and can still win the debate."""


@dataclass(frozen=True, slots=True)
class Argument:
    """Its topics and its strength: by source, then by year."""

    name: str
    topics: tuple[str, ...]
    source: str
    year: int

    @property
    def strength(self) -> int:
        """Rank among the arguments on one topic: the stronger one rebuts the weaker; no two are equal."""
        return 10_000 * SOURCES.index(self.source) + self.year

    def show(self, with_source: bool) -> str:
        """`a study of 2004 on noise and cost`"""
        source = f"a {self.source} of {self.year}" if with_source else str(self.year)
        return f"{source} on {' and '.join(self.topics)}"


class DebateGame:
    """The game behind the conversation: answers, and what can still be won.

    A claim is identified by its strength. Strengths only rise while a topic is debated, so the opponent's used
    arguments need not be remembered. `used` are the indices of the policy's own.
    """

    def __init__(self, topics: Sequence[str], mine: Sequence[Argument], theirs: Sequence[Argument]) -> None:
        self._mine = [
            [(place, one.strength) for place, one in enumerate(mine) if topic in one.topics] for topic in topics
        ]
        self._theirs = [sorted(one.strength for one in theirs if one.topics[0] == topic) for topic in topics]

    def opening(self, topic: int) -> int:
        """The opponent's first claim on a topic: the weakest."""
        return self._theirs[topic][0]

    def answer(self, topic: int, said: int) -> int | None:
        """The weakest of the opponent's that rebuts it."""
        claims = self._theirs[topic]
        place = bisect_right(claims, said)
        return claims[place] if place < len(claims) else None

    def rebuttals(self, topic: int, claim: int, used: frozenset[int]) -> list[tuple[int, int]]:
        """Places and strengths of mine that answer a claim."""
        return [one for one in self._mine[topic] if one[1] > claim and one[0] not in used]

    def winning(self, topic: int, claim: int, used: frozenset[int]) -> Iterator[int]:
        """The policy's arguments after which everything can still be won."""
        for place, said in self.rebuttals(topic, claim, used):
            following = self.after(topic, said)
            if following is None or any(True for _ in self.winning(*following, used | {place})):
                yield place

    def after(self, topic: int, said: int) -> tuple[int, int] | None:
        """The topic and claim that follow the policy's argument; None if the opponent has nothing left to say."""
        answer = self.answer(topic, said)
        if answer is not None:
            return topic, answer
        return (topic + 1, self.opening(topic + 1)) if topic + 1 < len(self._theirs) else None

    def wins_by(self, choose: Callable[[list[int]], int]) -> bool:
        """True if always choosing the strongest (`max`) or the weakest sufficient (`min`) argument wins."""
        state: tuple[int, int] | None = (0, self.opening(0))
        used: frozenset[int] = frozenset()
        while state is not None:
            known = {said: place for place, said in self.rebuttals(*state, used)}
            if not known:
                return False
            said = choose(list(known))
            used |= {known[said]}
            state = self.after(state[0], said)
        return True


class Debate(DialogueScene):
    """`ARGUE: name`, once for each claim of the opponent."""

    verbs = ("ARGUE",)

    def __init__(self, level: int, rng: Random) -> None:
        self._sourced = level >= SOURCE_FROM
        self._topics = tuple(rng.sample(TOPICS, between(level, 1, 5)))
        while True:
            self._mine, self._theirs = _draw_arguments(level, rng, self._topics)
            if level >= GREED_FROM:
                _lay_traps(rng, self._topics, self._mine, self._theirs)
            self._play = DebateGame(self._topics, self._mine, self._theirs)
            if self._is_fair(level):
                break
        self._topic, self._claim = 0, self._play.opening(0)
        self._used: frozenset[int] = frozenset()
        super().__init__(self._prompt(rng.choice(MOTIONS)), len(self._mine) + 2)

    def _is_fair(self, level: int) -> bool:
        """True if it can be won, but neither by chance nor by strength alone."""
        if level >= GREED_FROM and self._play.wins_by(max):
            return False
        if level >= THRIFT_FROM and self._play.wins_by(min):
            return False
        doors = list(self._play.winning(0, self._play.opening(0), frozenset()))
        strongest = max(range(len(self._mine)), key=lambda place: self._mine[place].strength)
        return 0 < len(doors) <= len(self._mine) * MOST_DOORS and (level >= GREED_FROM or strongest not in doors)

    def _prompt(self, motion: str) -> str:
        rule = "An argument rebuts an older one on the same topic."
        if self._sourced:
            rule = "An argument rebuts one on the same topic with a weaker source (study > survey > story)"
            rule += ", or with the same source and an earlier year."
        mine = "; ".join(f"{one.name}: {one.show(self._sourced)}" for one in self._mine)
        theirs = ""
        if len(self._theirs) > len(self._topics):
            shown = "; ".join(one.show(self._sourced) for one in self._theirs)
            theirs = f"\nTheirs: {shown}. They answer with the weakest that rebuts yours, or give the topic up."
        order = f" Topics in turn: {', '.join(self._topics)}." if len(self._topics) > 1 else ""
        return (
            f"Motion: {motion} {rule} Each is used once.{order}\nYours: {mine}.{theirs}\n"
            f"They begin: {self._words()} Rebut every claim, with one command on a line of its own:\n"
            f"ARGUE: {self._mine[0].name}"
        )

    def _words(self) -> str:
        """The opponent's claim in words."""
        claim = next(one for one in self._theirs if one.strength == self._claim)
        said = f"there is a {claim.source} of {claim.year}." if self._sourced else f"we have {claim.year}."
        return f"on {claim.topics[0]} {said}"

    def reply(self, act: DialogueAct) -> PartnerReply:
        """A counter-argument, the next topic, or the end."""
        name = bare(act.argument).upper()
        place = next((place for place, one in enumerate(self._mine) if one.name == name), None)
        if place is None or place in self._used:
            return PartnerReply("That is none of the arguments that you have left.")
        said = self._mine[place].strength
        if (place, said) not in self._play.rebuttals(self._topic, self._claim, self._used):
            return PartnerReply("That does not rebut what we said.", ended=True)
        self._used |= {place}
        following = self._play.after(self._topic, said)
        if following is None:
            return PartnerReply("We have nothing left to say.", True, 1.0)
        given_up = following[0] > self._topic
        self._topic, self._claim = following
        return PartnerReply(f"{'We give that up. Next:' if given_up else 'But'} {self._words()}")

    def about(self, act: DialogueAct) -> tuple[Sequence[str], Sequence[str]]:
        """The current topic."""
        topic = self._topics[self._topic]
        return (topic,), [other for other in self._topics if other != topic]

    def oracle(self) -> DialogueAct:
        """An argument after which everything can still be won."""
        chosen = self._mine[next(self._play.winning(self._topic, self._claim, self._used))]
        return DialogueAct(
            f"As to {self._topics[self._topic]}, look at {chosen.name}, of {chosen.year}.", "ARGUE", chosen.name
        )

    def _remaining(self) -> list[Argument]:
        return [one for place, one in enumerate(self._mine) if place not in self._used] or list(self._mine)

    def random(self, rng: Random) -> str:
        """A random remaining argument."""
        return f"ARGUE: {rng.choice(self._remaining()).name}"

    def hacks(self) -> list[str]:
        """The first, the last, the strongest, all of them, theirs, and rhetoric."""
        left = self._remaining()
        names = [one.name for one in left]
        return [
            f"ARGUE: {names[0]}",
            f"ARGUE: {names[-1]}",
            f"ARGUE: {max(left, key=lambda one: one.year).name}",
            f"ARGUE: {min(left, key=lambda one: one.year).name}",
            f"ARGUE: {max(left, key=lambda one: one.strength).name}",
            f"ARGUE: {', '.join(names)}",
            f"ARGUE: {names[0]} or {names[-1]}",
            "ARGUE: T1",
            "ARGUE: all of my arguments at once",
            "ARGUE: You are wrong, as everybody knows. We have won.",
            "ARGUE:",
            "ARGUE: a study of 2999 on everything",
            "\n".join(f"ARGUE: {name}" for name in names),
        ]


def _draw_arguments(level: int, rng: Random, topics: Sequence[str]) -> tuple[list[Argument], list[Argument]]:
    """Arguments of both sides, no two of the same year."""
    own = between(level, 6, 12)
    other = len(topics) + (between(level, 0, 5) if level > 1 else 0)
    years = rng.sample(range(1980, 2025), own + other)
    theirs = []
    for place in range(other):
        topic = topics[place] if place < len(topics) else rng.choice(topics)
        source = min(_source(level, rng), _source(level, rng), key=SOURCES.index)
        theirs.append(Argument(f"T{place + 1}", (topic,), source, years[own + place]))
    return [_argument(level, rng, topics, place, years[place]) for place in range(own)], theirs


def _lay_traps(rng: Random, topics: Sequence[str], mine: list[Argument], theirs: list[Argument]) -> None:
    """Make the strongest argument the only one for a later topic, so that it must not be used for an earlier one.

    With three topics or more, do the same with the weakest sufficient argument, for another later topic.
    """
    early, *late = sorted(rng.sample(range(len(topics)), min(3, len(topics))))
    opening = {topic: min(one.strength for one in theirs if one.topics[0] == topic) for topic in topics}
    here = topics[early]
    later = [topics[place] for place in rng.sample(late, len(late))]
    able = [place for place, one in enumerate(mine) if one.strength > opening[here]]
    able.sort(key=lambda place: mine[place].strength)
    if len(able) <= len(later):
        return
    traps = dict(zip((able[-1], able[0]), later, strict=False))
    spare = [topic for topic in TOPICS if topic not in (here, *later)]
    kept = rng.choice([place for place in able if place not in traps])
    for place, one in enumerate(mine):
        lost = {topic for topic in (here, *later) if one.strength > opening[topic]}
        left = tuple(topic for topic in one.topics if topic not in lost) or (rng.choice(spare),)
        mine[place] = replace(one, topics=(here, rng.choice(spare)) if place == kept else left)
    for place, topic in traps.items():
        mine[place] = replace(mine[place], topics=(here, topic))


def _argument(level: int, rng: Random, topics: Sequence[str], place: int, year: int) -> Argument:
    about = TOPICS if len(topics) < 3 else topics
    known = rng.sample(about, 2 if level >= SHARED_FROM and rng.random() < 0.6 else 1)
    return Argument(f"Y{place + 1}", tuple(known), _source(level, rng), year)


def _source(level: int, rng: Random) -> str:
    return rng.choice(SOURCES) if level >= SOURCE_FROM else SOURCES[-1]
