"""A text with facts that matter and facts that do not; a summary is read fact by fact, recalled minus invented."""

import math
from collections.abc import Sequence
from functools import partial
from random import Random

from loomrl.envs.language.problem import AnswerGrade, LanguageProblem
from loomrl.envs.language.statement import FactStatement, count_words, read
from loomrl.envs.language.wording import LONGEST
from loomrl.envs.language.world import HOME, JOB, NAMES, PET, TEAM, FactRelation, FactWorld, deny, make_world, tell
from loomrl.gym.generate import between

FLOOR = 0.5
"""This share of the facts earns nothing: it can be had by copying a part of the text."""
SLACK = 1.15
_TOPIC = {"home": "where each person lives", "job": "what each works as", "team": "which team each plays for"}
_CHATTER = (
    "It rained on Monday.",
    "The market opens at nine.",
    "A new bridge was built.",
    "The river was high in spring.",
    "Nobody knows who painted the gate.",
    "The old clock is two minutes slow.",
)


def summary(level: int, rng: Random) -> LanguageProblem:
    """All that matters, in as few words as it takes."""
    key = (HOME,) if level < 3 else (HOME, JOB) if level < 7 else (HOME, JOB, TEAM)
    noise = (PET,) if level < 5 else tuple(relation for relation in (TEAM, PET) if relation not in key)
    people = rng.sample(NAMES, between(level, 2, 9))
    world = make_world(rng, people, (*key, *noise), changes=0 if level < 4 else between(level, 1, 4))
    told = tell(world, rng) + deny(world, rng, between(level, 0, 8)) + _rumours(world, rng, between(level, 0, 10))
    told += rng.sample(_CHATTER, min(len(_CHATTER), between(level, 0, 9)))
    rng.shuffle(told)
    shortest = _shortest(world, key)
    limit = math.ceil(count_words(shortest) * SLACK)
    guesses = tuple(_parts(told, limit, rng))
    return LanguageProblem(
        _prompt(told, key, limit, world), shortest, partial(_grade, world, key, limit), guesses, "In short:"
    )


def _prompt(told: Sequence[str], key: Sequence[FactRelation], limit: int, world: FactWorld) -> str:
    topics = [_TOPIC[relation.name] for relation in key]
    wanted = topics[0] if len(topics) == 1 else f"{', '.join(topics[:-1])} and {topics[-1]}"
    forms = " ".join(relation.now("X", relation.values[-1]) for relation in key)
    dated = _is_dated(world, key)
    now = " now (what is newest counts), with the year since when" if dated else ""
    shown = f"{HOME.now('X', HOME.values[-1])[:-1]} since 1999." if dated else ""
    return (
        f"{' '.join(told)}\n\nSum up in at most {limit} words {wanted}{now}. Leave out the rest. "
        f"Use sentences such as: {' '.join(part for part in (forms, shown) if part)}"
    )


def _shortest(world: FactWorld, key: Sequence[FactRelation]) -> str:
    """One sentence for each person, with all years that are known."""
    told = []
    for who in world.people:
        said = []
        for relation in key:
            since = world.since(who, relation)
            dated = "" if since is None else f" since {since}"
            said.append(relation.verb.format(world.value(who, relation)) + dated)
        told.append(f"{who} {' and '.join(said)}.")
    return " ".join(told)


def _grade(world: FactWorld, key: Sequence[FactRelation], limit: int, given: str) -> AnswerGrade:
    """Recalled minus invented, and what was not understood counts as invented."""
    if len(given) > LONGEST:
        return AnswerGrade(0.0)
    reading = read(given, world.people)
    if reading.words > limit:
        return AnswerGrade(0.0)
    wanted = [(who, relation.name) for who in world.people for relation in key]
    right = [said for said in reading.statements if _is_true(said, world)]
    invented = len(reading.statements) - len(right) + reading.unread
    recalled = {(said.who, said.relation): said for said in right if said.positive}
    share = (sum(fact in recalled for fact in wanted) - invented) / len(wanted)
    dated = [recalled[fact].since is not None for fact in wanted if fact in recalled]
    detail = sum(dated) / len(wanted) if _is_dated(world, key) else None
    return AnswerGrade(max(0.0, (share - FLOOR) / (1 - FLOOR)), float(_is_coherent(reading.statements)), detail)


def _is_dated(world: FactWorld, key: Sequence[FactRelation]) -> bool:
    return world.since(world.people[0], key[0]) is not None


def _is_true(said: FactStatement, world: FactWorld) -> bool:
    present = world.periods.get((said.who, said.relation))
    if present is None:
        return False
    if not said.positive:
        return present[-1].value != said.value and said.since is None
    return present[-1].value == said.value and said.since in (None, present[-1].since)


def _is_coherent(statements: Sequence[FactStatement]) -> bool:
    """True if nothing is repeated, and the order is by person or by relation."""
    by_person, by_relation = ([key(said) for said in statements] for key in (_person, _relation))
    ordered = _in_one_place(by_person) or _in_one_place(by_relation)
    return bool(statements) and ordered and len(set(statements)) == len(statements)


def _person(said: FactStatement) -> str:
    return said.who


def _relation(said: FactStatement) -> str:
    return said.relation


def _in_one_place(keys: Sequence[str]) -> bool:
    """True if equal keys are adjacent."""
    begins = [key for before, key in zip(["", *keys], keys, strict=False) if key != before]
    return len(set(begins)) == len(begins)


def _rumours(world: FactWorld, rng: Random, count: int) -> list[str]:
    """Sentences that name an untrue fact, and say that it is untrue."""
    told = []
    for _ in range(count):
        who = rng.choice(world.people)
        relation = rng.choice(world.relations)
        other = rng.choice([value for value in relation.values if value != world.value(who, relation)])
        claim = relation.now(who, other)[:-1]
        told.append(rng.choice((f"Some say that {claim}, but that is wrong.", f"It is not true that {claim}.")))
    return told


def _parts(told: Sequence[str], limit: int, rng: Random) -> list[str]:
    """Pieces of the text that are short enough: the answers of a policy that only copies."""
    found = []
    for start in (0, *(rng.randrange(len(told)) for _ in range(5))):
        piece: list[str] = []
        for sentence in told[start:]:
            if len(piece) + sentence.count(" ") + 1 > limit:
                break
            piece += sentence.split()
        found.append(" ".join(piece) or "Nobody.")
    return found
