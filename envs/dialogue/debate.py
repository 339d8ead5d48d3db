"""A debate by declared rules: rebut what was claimed last, keep the strong arguments for where they are needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from envs.dialogue.scene import Act, Reply, Scene
from envs.language.wording import bare, words
from loomrl.gym.generate import between

TOPICS = words("cost noise safety traffic health jobs")
SOURCES = words("story survey study")
"""From weak to strong."""
MOTIONS = (
    "The town needs a new library.",
    "Cars should leave the centre.",
    "The school day should begin later.",
    "The harbour should be closed at night.",
)
SOURCE_FROM, SHARED_FROM = 3, 4
MOST_DOORS = 0.25
"""Of all arguments, the share with which the first claim can be rebutted and the debate still be won."""


@dataclass(frozen=True, slots=True)
class Argument:
    """What it is about, and how strong it is: by source, then by year."""

    name: str
    topics: tuple[str, ...]
    source: str
    year: int

    @property
    def strength(self) -> tuple[int, int]:
        """Of two arguments on one topic the stronger one rebuts the other."""
        return SOURCES.index(self.source), self.year

    def rebuts(self, other: "Argument", topic: str) -> bool:
        """Whether it answers `other` where they debate `topic`."""
        return topic in self.topics and topic in other.topics and self.strength > other.strength

    def shown(self, with_source: bool) -> str:
        """`a study of 2004 on noise and cost`"""
        source = f"a {self.source} of {self.year}" if with_source else str(self.year)
        return f"{source} on {' and '.join(self.topics)}"


class Debate(Scene):
    """`ARGUE: name`, once for each claim of the opponent."""

    verbs = ("ARGUE",)

    def __init__(self, level: int, rng: Random) -> None:
        self._sourced = level >= SOURCE_FROM
        count = between(level, 1, 5)
        while True:
            self._topics = tuple(rng.sample(TOPICS, count))
            self._mine, self._theirs = _made(level, rng, self._topics)
            self._play = _Play(self._topics, self._mine, self._theirs)
            if 0 < self._play.doors() <= len(self._mine) * MOST_DOORS and (
                level < SHARED_FROM or not self._greed_wins()
            ):
                break
        self._topic = 0
        self._claim: Argument = self._play.opening(0)
        self._used: frozenset[str] = frozenset()
        self._spent: frozenset[str] = frozenset()
        super().__init__(self._prompt(rng.choice(MOTIONS)), len(self._mine) + 2)

    def _greed_wins(self) -> bool:
        """Whether it is enough to use the strongest argument, always."""
        topic, claim, used, spent = 0, self._play.opening(0), frozenset[str](), frozenset[str]()
        while True:
            known = [one for one in self._mine if one.name not in used and one.rebuts(claim, self._topics[topic])]
            if not known:
                return False
            best = max(known, key=lambda one: one.strength)
            used |= {best.name}
            answer = self._play.answer(topic, best, spent)
            if answer is not None:
                claim, spent = answer, spent | {answer.name}
                continue
            topic += 1
            if topic == len(self._topics):
                return True
            claim = self._play.opening(topic)

    def _prompt(self, motion: str) -> str:
        rule = "An argument rebuts one on the same topic that is older."
        if self._sourced:
            rule = "An argument rebuts one on the same topic with a weaker source (study > survey > story)"
            rule += ", or with the same source and an earlier year."
        mine = "; ".join(f"{one.name}: {one.shown(self._sourced)}" for one in self._mine)
        theirs = ""
        if len(self._theirs) > len(self._topics):
            shown = "; ".join(one.shown(self._sourced) for one in self._theirs)
            theirs = f"\nTheirs: {shown}. They answer with the weakest that rebuts yours, or give the topic up."
        order = f" Topics in turn: {', '.join(self._topics)}." if len(self._topics) > 1 else ""
        return (
            f"Motion: {motion} {rule} Each is used once.{order}\nYours: {mine}.{theirs}\n"
            f"They begin: {self._words(self._play.opening(0))} Rebut every claim, with one command on a line of its "
            f"own:\nARGUE: {self._mine[0].name}"
        )

    def _words(self, claim: Argument) -> str:
        """How the opponent puts it."""
        if not self._sourced:
            return f"on {self._topics[self._topic_of(claim)]} we have {claim.year}."
        return f"on {self._topics[self._topic_of(claim)]} there is a {claim.source} of {claim.year}."

    def _topic_of(self, claim: Argument) -> int:
        return self._topics.index(claim.topics[0])

    def reply(self, act: Act) -> Reply:
        """A counter-argument, the next topic, or the end."""
        name = bare(act.argument).upper()
        chosen = next((one for one in self._mine if one.name == name), None)
        if chosen is None or chosen.name in self._used:
            return Reply("That is none of the arguments that you have left.")
        if not chosen.rebuts(self._claim, self._topics[self._topic]):
            return Reply("That does not rebut what we said.", ended=True)
        self._used |= {chosen.name}
        answer = self._play.answer(self._topic, chosen, self._spent)
        if answer is not None:
            self._claim, self._spent = answer, self._spent | {answer.name}
            return Reply(f"But {self._words(answer)}")
        self._topic += 1
        if self._topic == len(self._topics):
            return Reply("We have nothing left to say.", True, 1.0)
        self._claim = self._play.opening(self._topic)
        return Reply(f"We give that up. Next: {self._words(self._claim)}")

    def about(self, act: Act) -> tuple[Sequence[str], Sequence[str]]:
        """The topic that is debated now."""
        topic = self._topics[min(self._topic, len(self._topics) - 1)]
        return (topic,), [other for other in self._topics if other != topic]

    def oracle(self) -> Act:
        """An argument after which everything can still be won."""
        topic = self._topics[self._topic]
        chosen = self._play.winning(self._topic, self._claim, self._used, self._spent)
        assert chosen is not None, "a debate is won by whoever has not erred"
        return Act(f"As to {topic}, there is newer evidence.", "ARGUE", chosen.name)

    def random(self, rng: Random) -> str:
        """Any argument that is left."""
        left = [one.name for one in self._mine if one.name not in self._used] or ["Y1"]
        return f"ARGUE: {rng.choice(left)}"

    def hacks(self) -> list[str]:
        """The first, the last, the strongest, all of them, theirs, and rhetoric."""
        left = [one for one in self._mine if one.name not in self._used] or list(self._mine)
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


class _Play:
    """The game below the talk: who answers what, and what can still be won."""

    def __init__(self, topics: Sequence[str], mine: Sequence[Argument], theirs: Sequence[Argument]) -> None:
        self._topics, self._mine, self._theirs = topics, mine, theirs

    def doors(self) -> int:
        """How many first arguments can win."""
        claim = self.opening(0)
        known = [one for one in self._mine if one.rebuts(claim, self._topics[0])]
        return sum(self._wins(0, one, frozenset(), frozenset()) for one in known)

    def opening(self, topic: int) -> Argument:
        """The opponent's first claim on a topic: the weakest."""
        return min(self._on(topic), key=lambda one: one.strength)

    def _on(self, topic: int) -> list[Argument]:
        return [one for one in self._theirs if one.topics[0] == self._topics[topic]]

    def answer(self, topic: int, said: Argument, spent: frozenset[str]) -> Argument | None:
        """The weakest of the opponent's that rebuts it and was not used."""
        known = [one for one in self._on(topic) if one.name not in spent and one.rebuts(said, self._topics[topic])]
        return min(known, key=lambda one: one.strength, default=None)

    def winning(self, topic: int, claim: Argument, used: frozenset[str], spent: frozenset[str]) -> Argument | None:
        """An argument of mine after which I can still win, or None."""
        for one in self._mine:
            if one.name not in used and one.rebuts(claim, self._topics[topic]) and self._wins(topic, one, used, spent):
                return one
        return None

    def _wins(self, topic: int, said: Argument, used: frozenset[str], spent: frozenset[str]) -> bool:
        used |= {said.name}
        answer = self.answer(topic, said, spent)
        if answer is not None:
            return self.winning(topic, answer, used, spent | {answer.name}) is not None
        if topic + 1 == len(self._topics):
            return True
        return self.winning(topic + 1, self.opening(topic + 1), used, spent) is not None


def _made(level: int, rng: Random, topics: Sequence[str]) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
    """Arguments of both sides, no two of the same strength."""
    own, other = between(level, 6, 12), len(topics) + (between(level, 0, 5) if level >= 2 else 0)
    years = rng.sample(range(1980, 2025), own + other)
    sources = SOURCES if level >= SOURCE_FROM else ("study",)
    about = TOPICS if len(topics) == 1 else topics
    mine = []
    for place in range(own):
        known = tuple(rng.sample(about, 2 if level >= SHARED_FROM and rng.random() < 0.6 else 1))
        mine.append(Argument(f"Y{place + 1}", known, rng.choice(sources), years[place]))
    theirs = []
    for place in range(other):
        topic = topics[place] if place < len(topics) else rng.choice(topics)
        theirs.append(Argument(f"T{place + 1}", (topic,), rng.choice(sources), years[own + place]))
    return tuple(mine), tuple(theirs)
