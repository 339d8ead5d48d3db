"""Knights and knaves: knights tell the truth, knaves lie."""

from itertools import chain
from random import Random

from loomrl.envs.logic.clue import Clue, choose
from loomrl.envs.logic.formula import Speech, Theme, tier
from loomrl.envs.logic.puzzle import NAMES, WordPuzzle
from loomrl.gym.generate import between

THEME = Theme("people", NAMES, "is a knight", "is a knave", "are knights")
TRIES = 20
"""Statements to draw per person before one's kind is given."""
TOLD = 3
"""Up to this level, the kind of one person is given."""


def knights(level: int, rng: Random, queries: int) -> WordPuzzle:
    """Who of these people, who speak about each other, are knights?"""
    count = between(level, 4, 10)
    names = tuple(rng.sample(NAMES, count))
    truth = [rng.random() < 0.5 for _ in names]
    truth[rng.randrange(count)] = True
    world = 1 << sum(1 << item for item, true in enumerate(truth) if true)
    speech = Speech(THEME, names, rng)
    facts = [Clue(f"{fact.text}.", fact.worlds) for fact in map(speech.literal, range(count), truth)]
    told = rng.sample(facts, count)
    said = (_said(speech, rng.randrange(count), rng.choice(tier(level))) for _ in range(TRIES * count))
    clues = choose(chain(told[:1] if level <= TOLD else [], said), told, world)
    heard = "\n".join(clue.text for clue in rng.sample(clues, len(clues)))
    return WordPuzzle(
        story=f"Knights say what is true, knaves what is false.\n{heard}\nWhich of {', '.join(names)} are knights?",
        solution=", ".join(name for name, true in zip(names, truth, strict=True) if true),
        solve="all knights, with commas",
        query="name",
        queries=queries,
        facts={name.lower(): fact.text for name, fact in zip(names, facts, strict=True)},
        places=False,
        shape=(names,),
    )


def _said(speech: Speech, speaker: int, kind: str) -> Clue:
    """A statement in somebody's mouth: it is true where the speaker is a knight, and only there."""
    said = speech.say(kind, without=speaker)
    return Clue(f'{speech.names[speaker]}: "{said.text}"', speech.every ^ speech.facts[speaker] ^ said.worlds)
