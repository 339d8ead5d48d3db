"""A small world: people, facts about each, and their changes over the years."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from loomrl.gym.generate import words

NAMES = words(
    "Ada Ben Carl Dana Emil Fay Gus Hana Igor Jane Karl Lena Marc Nina Olaf Pia Quin Rosa Sam Tina Udo Vera Walt Xena "
    "Yuri Zoe Alma Bert Cleo Dirk Edda Finn Gwen Hugo Inga Joel Kira Levi Mona Nils"
)
FIRST_YEAR = 1970
LAST_YEAR = 2024


@dataclass(frozen=True, slots=True)
class FactRelation:
    """A relation of people to values, and the words for it. A person has one value at a time."""

    name: str
    values: tuple[str, ...]
    verb: str
    """Third person, with the place of the value, as in `lives in {}`."""
    stem: str
    """The same after `does not`."""
    since: str
    """The same with `has` and `since`."""
    change: str
    """The phrase for the start of the relation."""
    question: str
    past_question: str

    def now(self, who: str, what: str) -> str:
        """`Ada lives in Oslo.`"""
        return f"{who} {self.verb.format(what)}."

    def deny(self, who: str, what: str) -> str:
        """`Ada does not live in Oslo.`"""
        return f"{who} does not {self.stem.format(what)}."


HOME = FactRelation(
    "home",
    words(
        "Oslo Rome Paris Cairo Lima Delhi Quito Tokyo Seoul Bern Kyiv Riga Porto Malmo Turin Graz Split Cork Leeds "
        "Ghent Bonn Lyon Vigo Perth Osaka Accra Dakar Tunis Amman Doha Hanoi Sucre Minsk Sofia Varna Izmir Patna Davao "
        "Busan Macau"
    ),
    verb="lives in {}",
    stem="live in {}",
    since="has lived in {} since",
    change="moved to {}",
    question="Where does {} live?",
    past_question="Where did {} live at the end of {}?",
)
JOB = FactRelation(
    "job",
    words(
        "baker nurse pilot tailor judge farmer singer miner dentist plumber painter lawyer chemist barber sailor "
        "weaver jeweller mason surgeon florist"
    ),
    verb="works as a {}",
    stem="work as a {}",
    since="has worked as a {} since",
    change="became a {}",
    question="What does {} work as?",
    past_question="What did {} work as at the end of {}?",
)
TEAM = FactRelation(
    "team",
    words("Hawks Bears Lions Wolves Foxes Owls Sharks Eagles Bulls Rams Tigers Crows Otters Moles Lynxes Herons"),
    verb="plays for the {}",
    stem="play for the {}",
    since="has played for the {} since",
    change="joined the {}",
    question="Which team does {} play for?",
    past_question="Which team did {} play for at the end of {}?",
)
PET = FactRelation(
    "pet",
    words("cat dog horse parrot rabbit goat hamster turtle lizard canary pony snake"),
    verb="keeps a {}",
    stem="keep a {}",
    since="has kept a {} since",
    change="replaced an old pet with a {}",
    question="Which animal does {} keep?",
    past_question="Which animal did {} keep at the end of {}?",
)
RELATIONS = (HOME, JOB, TEAM, PET)


class Period(NamedTuple):
    """A value, and the year from which it is true; None where the text does not say."""

    since: int | None
    value: str


@dataclass(frozen=True, slots=True)
class FactWorld:
    """All people, and for every person and relation the periods in order of time. The last one is the present."""

    people: tuple[str, ...]
    relations: tuple[FactRelation, ...]
    periods: Mapping[tuple[str, str], tuple[Period, ...]]

    def value(self, who: str, relation: FactRelation) -> str:
        """The current value."""
        return self.periods[who, relation.name][-1].value

    def since(self, who: str, relation: FactRelation) -> int | None:
        """From when on, if that is known."""
        return self.periods[who, relation.name][-1].since


def make_world(rng: Random, people: Sequence[str], relations: Sequence[FactRelation], *, changes: int) -> FactWorld:
    """A world in which values changed up to `changes` times; with 0 nothing ever changed and no year is known."""
    periods = {}
    for who in people:
        for relation in relations:
            count = rng.randint(0, changes) + 1 if changes else 1
            years = sorted(rng.sample(range(FIRST_YEAR, LAST_YEAR + 1), count))
            values = rng.sample(relation.values, count)
            dated = [Period(year if changes else None, value) for year, value in zip(years, values, strict=True)]
            periods[who, relation.name] = tuple(dated)
    return FactWorld(tuple(people), tuple(relations), periods)


def tell(world: FactWorld, rng: Random) -> list[str]:
    """All that is true of the world, past and present, in sentences without order."""
    told = []
    for who in world.people:
        for relation in world.relations:
            *past, present = world.periods[who, relation.name]
            told += [_began(rng, who, relation, period) for period in past]
            told.append(_present(rng, who, relation, present))
    rng.shuffle(told)
    return told


def deny(world: FactWorld, rng: Random, count: int) -> list[str]:
    """Sentences that truthfully deny something."""
    told = []
    for _ in range(count):
        who = rng.choice(world.people)
        relation = rng.choice(world.relations)
        other = rng.choice([value for value in relation.values if value != world.value(who, relation)])
        told.append(relation.deny(who, other))
    return told


def _began(rng: Random, who: str, relation: FactRelation, period: Period) -> str:
    change = relation.change.format(period.value)
    return rng.choice((f"In {period.since}, {who} {change}.", f"{who} {change} in {period.since}."))


def _present(rng: Random, who: str, relation: FactRelation, period: Period) -> str:
    if period.since is None:
        return relation.now(who, period.value)
    if rng.random() < 0.5:
        return _began(rng, who, relation, period)
    return f"{who} {relation.since.format(period.value)} {period.since}."
