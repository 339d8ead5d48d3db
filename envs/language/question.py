"""Questions on a world: look a fact up, follow a chain of people, compare, count."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from loomrl.envs.language.problem import LanguageProblem, exact
from loomrl.envs.language.wording import same_name, same_number
from loomrl.envs.language.world import (
    FIRST_YEAR,
    HOME,
    JOB,
    LAST_YEAR,
    NAMES,
    RELATIONS,
    FactRelation,
    deny,
    make_world,
    tell,
)
from loomrl.gym.generate import between, words

CHANGES_FROM = 4
DENIALS_FROM = 3
PAST_FROM = 7
"""Lowest levels at which the world changes, sentences deny, and the past is asked about."""
LATEST = "What is newest counts."


def lookup(level: int, rng: Random) -> LanguageProblem:
    """A fact about one person, now or in an earlier year."""
    changes = 0 if level < CHANGES_FROM else between(level, 1, 4)
    people = rng.sample(NAMES, between(level, 6, 15))
    world = make_world(rng, people, RELATIONS[: between(level, 1, 4)], changes=changes)
    relation = rng.choice(world.relations)
    who = rng.choice(people)
    told = tell(world, rng)
    told += deny(world, rng, between(level, 0, 12) if level >= DENIALS_FROM else 0)
    periods = world.periods[who, relation.name]
    chosen = periods[-1]
    question = relation.question.format(who)
    if level >= PAST_FROM and len(periods) > 1:
        place = rng.randrange(len(periods) - 1)
        chosen = periods[place]
        following = periods[place + 1]
        assert chosen.since is not None
        assert following.since is not None
        question = relation.past_question.format(who, rng.randint(chosen.since, following.since - 1))
    rng.shuffle(told)
    guesses = _values_in(relation, told)
    note = f" {LATEST}" if changes and chosen is periods[-1] else ""
    return _name_problem(f"{' '.join(told)}{note} {question}", chosen.value, guesses, relation.now(who, chosen.value))


def chain(level: int, rng: Random) -> LanguageProblem:
    """A fact about a person who is found through several other people."""
    hops = between(level, 1, 8)
    changes = 0 if level < 6 else between(level, 0, 3)
    people = rng.sample(NAMES, between(level, 4, 20))
    boss = {who: people[place - 1] if rng.random() < 0.75 else people[rng.randrange(place)]
            for place, who in enumerate(people) if place}  # fmt: skip
    lowest = people[-1]
    relation = HOME if level < 3 else rng.choice((HOME, JOB))
    world = make_world(rng, people, (HOME,) if level < 3 else (HOME, JOB), changes=changes)
    path = [lowest]
    while len(path) <= hops and path[-1] in boss:
        path.append(boss[path[-1]])
    told = tell(world, rng) + [_reports(rng, who, above) for who, above in boss.items()]
    rng.shuffle(told)
    described = "the boss of " * (len(path) - 2) + f"{lowest}'s boss"
    note = f" {LATEST}" if changes else ""
    truth = world.value(path[-1], relation)
    steps = " ".join(f"{who} reports to {above}." for who, above in pairwise(path))
    steps += f" {relation.now(path[-1], truth)}"
    return _name_problem(
        f"{' '.join(told)}{note} {relation.question.format(described)}", truth, _values_in(relation, told), steps
    )


def comparison(level: int, rng: Random) -> LanguageProblem:
    """Who comes first, or in some place, by an age that may be given by another one's."""
    people = rng.sample(NAMES, between(level, 6, 26))
    ages = dict(zip(people, rng.sample(range(12, 95), len(people)), strict=True))
    told = [f"{people[0]} is {ages[people[0]]} years old."]
    for place, who in enumerate(people[1:], start=1):
        known = people[rng.randrange(place)]
        relative = level >= 3 and rng.random() < between(level, 2, 9) / 10
        told.append(_relative(who, known, ages) if relative else f"{who} is {ages[who]} years old.")
    rng.shuffle(told)
    order = sorted(people, key=lambda who: ages[who], reverse=True)
    place = 0 if level < 4 else rng.randrange(between(level, 2, 12))
    word = rng.choice(("oldest", "youngest"))
    found = order[place] if word == "oldest" else order[-1 - place]
    question = f"Who is the {_ordinal(place)}{word}?"
    shown = ", ".join(f"{who} {ages[who]}" for who in order)
    return _name_problem(f"{' '.join(told)} {question}", found, tuple(sorted(people)), f"Ages: {shown}.")


def counting(level: int, rng: Random) -> LanguageProblem:
    """The number of people with a property; every number is equally likely."""
    people = rng.sample(NAMES, between(level, 8, 30))
    changes = 0 if level < CHANGES_FROM else between(level, 1, 3)
    relations = (HOME, JOB) if level >= 6 else (HOME,)
    wanted = [rng.choice(relation.values) for relation in relations]
    told: list[str] = []
    count = rng.randint(0, len(people))
    chosen = rng.sample(people, count)
    for who in people:
        # a person who does not count misses one of the conditions
        missed = -1 if who in chosen else rng.randrange(len(relations))
        for place, (relation, value) in enumerate(zip(relations, wanted, strict=True)):
            told += _fates(rng, who, relation, value, holds=place != missed, changes=changes)
    rng.shuffle(told)
    condition = " and ".join(relation.stem.format(value) for relation, value in zip(relations, wanted, strict=True))
    note = f" {LATEST}" if changes else ""
    listed = ", ".join(chosen) or "Nobody"
    guesses = tuple(str(number) for number in range(len(people) + 1))
    prompt = f"{' '.join(told)}{note} How many people {condition}?"
    return LanguageProblem(
        prompt, str(count), exact(same_number, str(count)), guesses, f"{listed}: that makes {count}."
    )


def _fates(rng: Random, who: str, relation: FactRelation, value: str, *, holds: bool, changes: int) -> list[str]:
    """Sentences after which `value` is, or is not, a person's current one."""
    others = [other for other in relation.values if other != value]
    if not changes:
        return [relation.now(who, value if holds else rng.choice(others[:8]))]
    count = rng.randint(1, changes + 1)
    years = sorted(rng.sample(range(FIRST_YEAR, LAST_YEAR + 1), count))
    values = rng.sample(others, count)
    if holds:
        values[-1] = value
    elif count > 1 and rng.random() < 0.5:
        values[rng.randrange(count - 1)] = value
    return [f"{who} {relation.change.format(what)} in {year}." for year, what in zip(years, values, strict=True)]


def _name_problem(prompt: str, truth: str, guesses: tuple[str, ...], reasoning: str) -> LanguageProblem:
    return LanguageProblem(prompt, truth, exact(same_name, truth), guesses, reasoning)


def _values_in(relation: FactRelation, told: Sequence[str]) -> tuple[str, ...]:
    words = {word.strip(".,") for sentence in told for word in sentence.split()}
    return tuple(value for value in relation.values if value in words)


def _reports(rng: Random, who: str, above: str) -> str:
    return rng.choice((f"{who} reports to {above}.", f"{above} is the boss of {who}."))


def _relative(who: str, known: str, ages: dict[str, int]) -> str:
    gap = ages[who] - ages[known]
    return f"{who} is {abs(gap)} year{'s' * (abs(gap) > 1)} {'older' if gap > 0 else 'younger'} than {known}."


def _ordinal(place: int) -> str:
    """Before a superlative: nothing, `second `, `third `, …"""
    return ("", *(f"{word} " for word in _ORDINALS))[place]


_ORDINALS = words("second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")
