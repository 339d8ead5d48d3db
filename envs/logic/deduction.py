"""Deduction: premises about yes-or-no facts, and the question which of them are true."""

from random import Random

from loomrl.envs.logic.clue import Clue, choose
from loomrl.envs.logic.formula import Speech, Theme, tier
from loomrl.envs.logic.puzzle import NAMES, WordPuzzle, sentence
from loomrl.gym.generate import between

COLOURS = ("red", "blue", "green", "white", "black", "pink", "grey", "brown", "gold", "violet", "orange", "cyan")
THEMES = (
    Theme("lamps", COLOURS, "is on", "is off", "are on"),
    Theme("guests", NAMES, "comes", "stays away", "come"),
    Theme("suspects", NAMES, "is guilty", "is innocent", "are guilty"),
)
TRIES = 20
"""Statements to draw, for each fact, before facts are told as they are."""


def deduction(level: int, rng: Random, queries: int) -> WordPuzzle:
    """Each of some lamps is on or off, and the premises say which."""
    theme = rng.choice(THEMES)
    count = between(level, 4, 12)
    names = tuple(rng.sample(theme.names, count))
    truth = [rng.random() < 0.5 for _ in names]
    truth[rng.randrange(count)] = True
    world = 1 << sum(1 << item for item, true in enumerate(truth) if true)
    speech = Speech(theme, names, rng)
    said = (speech.say(rng.choice(tier(level))) for _ in range(TRIES * count))
    facts = [Clue(sentence(f"{fact.text}."), fact.worlds) for fact in map(speech.literal, range(count), truth)]
    clues = choose(said, rng.sample(facts, count), world)
    rng.shuffle(clues)
    premises = "\n".join(clue.text for clue in clues)
    return WordPuzzle(
        story=f"{sentence(theme.kind)}: {', '.join(names)}.\n{premises}\nWhich {theme.true_of_many}?",
        solution=", ".join(name for name, true in zip(names, truth, strict=True) if true),
        solve=f"all that {theme.true_of_many}, with commas",
        query="name",
        queries=queries,
        facts={name.lower(): fact.text for name, fact in zip(names, facts, strict=True)},
        places=False,
        shape=(names,),
    )
