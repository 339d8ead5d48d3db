"""Deductions in a user's own patterns, by task template.

LogicPuzzle:
  templates: ["If A then B", "Either A or B"]
  variables: [[Raining, Wet], [Studying, Pass]]

A pattern joins the two propositions of a pair, A and B; every one of them is true or false. A task says what holds of
some pairs, and as few single facts as leave one solution.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from loomrl.envs.logic.clue import Clue, choose
from loomrl.envs.logic.puzzle import WordPuzzle, sentence
from loomrl.envs.logic.world import everything, facts
from loomrl.errors import ConfigError
from loomrl.gym.generate import between, rng_of
from loomrl.types import Task

MOST = 12
"""Propositions of a puzzle."""
Joined = Callable[[int, int, int], int]
"""All worlds, those of the first proposition and those of the second → those of both joined."""
_FORMS: tuple[tuple[str, str, Joined], ...] = (
    ("If A then B", r"(?:if|when) {1},? then {2}", lambda every, a, b: every ^ a | b),
    ("A implies B", r"{1} implies {2}", lambda every, a, b: every ^ a | b),
    ("A if and only if B", r"{1} (?:if and only if|exactly if|iff) {2}", lambda every, a, b: every ^ a ^ b),
    ("Neither A nor B", r"neither {1} nor {2}", lambda every, a, b: every ^ (a | b)),
    ("Not both A and B", r"not both {1} and {2}", lambda every, a, b: every ^ a & b),
    ("Either A or B", r"(?:either )?{1} or {2}", lambda every, a, b: a | b),
    ("A and B", r"(?:both )?{1} and {2}", lambda every, a, b: a & b),
)
"""Example, pattern with its two literals, and meaning."""


def propositions(patterns: Sequence[str], pairs: Sequence[tuple[str, str]], task: Task, queries: int) -> WordPuzzle:
    """The puzzle of a task made by a template; a pattern of no known form is a ConfigError."""
    rng = rng_of(task)
    known = [_read(pattern) for pattern in patterns]
    some = rng.sample(pairs, between(task.level, min(2, len(pairs)), len(pairs)))
    names = tuple(dict.fromkeys(name for pair in some for name in pair))
    if len(names) > MOST:
        raise ConfigError(f"variables: {len(names)} propositions, and a puzzle has {MOST} at most. Leave pairs out.")
    every = everything(1 << len(names))
    worlds = dict(zip(names, facts(len(names)), strict=True))
    said = [form.say(pair, every, worlds) for form, pair in product(known, some)]
    rng.shuffle(said)
    truth = _truth(said, names, rng.random)
    world = _world(truth, names)
    single = {name: f"{name} is {'true' if truth[name] else 'false'}." for name in names}
    certain = [Clue(single[name], worlds[name] if truth[name] else every ^ worlds[name]) for name in names]
    clues = choose(said, rng.sample(certain, len(certain)), world)
    rng.shuffle(clues)
    listed = "\n".join(clue.text for clue in clues)
    return WordPuzzle(
        story=f"Each of these is true or false: {', '.join(sorted(names))}. An or leaves room for both.\n{listed}\n"
        "Which are true?",
        solution=", ".join(name for name in names if truth[name]),
        solve="all that are true, with commas",
        query="name",
        queries=min(queries, len(names) - 1),
        facts={name.lower(): fact for name, fact in single.items()},
        places=False,
        shape=(names,),
    )


def _truth(said: Sequence[Clue], names: Sequence[str], chance: Callable[[], float]) -> dict[str, bool]:
    """Some propositions are true, and something that is said holds."""
    for _ in range(1000):
        truth = {name: chance() < 0.5 for name in names}
        world = _world(truth, names)
        if any(truth.values()) and any(clue.worlds & world for clue in said):
            return truth
    raise ConfigError("templates: nothing that they say of these variables can hold while one of them is true.")


def _world(truth: Mapping[str, bool], names: Sequence[str]) -> int:
    """The set of the one world in which exactly these are true."""
    return 1 << sum(1 << place for place, name in enumerate(names) if truth[name])


class _Form(NamedTuple):
    """A pattern, its two literals, such as `not A`, and its meaning."""

    pattern: str
    first: str
    second: str
    joined: Joined

    def say(self, pair: tuple[str, str], every: int, worlds: Mapping[str, int]) -> Clue:
        """The pattern about a pair of propositions."""
        named = dict(zip("AB", pair, strict=True))

        def meaning(literal: str) -> int:
            true = worlds[named[literal[-1].upper()]]
            return every ^ true if len(literal) > 1 else true

        text = re.sub(r"\b[AB]\b", lambda found: named[found[0]], self.pattern)
        return Clue(sentence(f"{text}."), self.joined(every, meaning(self.first), meaning(self.second)))


def _read(pattern: str) -> _Form:
    plain = " ".join(pattern.split()).rstrip(".")
    for _, form, joined in _FORMS:
        expected = form.format(None, r"((?:not )?[AB])", r"((?:not )?[AB])")
        found = re.fullmatch(f"(?i:{expected})", plain)
        if found and {found[1][-1].upper(), found[2][-1].upper()} == {"A", "B"}:
            return _Form(plain, found[1], found[2], joined)
    forms = ", ".join(example for example, *_ in _FORMS)
    raise ConfigError(
        f"templates: {pattern!r} is no form that is known. Known: {forms}, each also with 'not A' or 'not B'; or a "
        "sentence with {a} and {b} that says which comes first, such as '{a} is older than {b}.'"
    )
