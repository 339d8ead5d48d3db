"""The families: which people, which news, which questions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from loomrl.envs.memory.note import Wanted
from loomrl.envs.memory.story import (
    PEOPLE,
    PLAIN,
    VALUES,
    Chronicle,
    Generator,
    MemoryStory,
    StoryDay,
    StoryQuestion,
    ask_count,
    ask_now,
    ask_then,
    ask_who,
    notes_history,
    notes_now,
)
from loomrl.gym.generate import between

LONGEST = 30
"""Characters of a note about the present."""
LONGEST_HISTORY = 120
"""Characters of a note about the past, too."""


def topic_story(level: int, rng: Random) -> MemoryStory:
    """Facts told once, among others that are never needed; from level 7 on, the relevant topic changes half-way."""
    first, later, *noise = rng.sample(tuple(VALUES), 4)
    people = rng.sample(PEOPLE, between(level, 2, 12))
    numbers = _days(rng, between(level, 1, 6))
    change = numbers[len(numbers) // 2] if level >= 7 else numbers[-1] + 1
    chronicle = Chronicle(rng, plain=level <= PLAIN)
    days: list[StoryDay] = []
    spread = _spread(rng, people if level > 1 else people[:1], len(numbers))
    for number, todays in zip(numbers, spread, strict=True):
        chronicle.day = number
        topic = later if number >= change else first
        news = [chronicle.news(who, topic) for who in todays]
        news += _noise(chronicle, level, people, noise)
        rng.shuffle(news)
        if number == change:
            news.insert(0, f"From now on you will be asked about {later} only, not about {first}.")
        days.append(StoryDay(number, " ".join(news), notes_now(chronicle, topic)))
    asked = _some(rng, [who for who, what in chronicle.history if what == topic], between(level, 1, 4))
    return _story(first, days, [ask_now(chronicle, who, topic) for who in asked])


def time_story(level: int, rng: Random) -> MemoryStory:
    """Facts by day: notes must keep the past."""
    told = _changing(level, rng, people=between(level, 1, 6), news=between(level, 1, 3), note=notes_history)
    first, last = told.days[0].number, told.days[-1].number
    asked = _some(rng, told.people, between(level, 1, 4))
    questions = [ask_then(told.chronicle, who, told.topic, rng.randint(first, last)) for who in asked]
    return _story(told.topic, told.days, questions, longest=LONGEST_HISTORY)


def update_story(level: int, rng: Random) -> MemoryStory:
    """Facts that change repeatedly; only the latest count, and there is no room for more."""
    told = _changing(level, rng, people=between(level, 1, 10), news=between(level, 1, 4), note=notes_now)
    asked = _some(rng, told.people, between(level, 1, 5))
    return _story(told.topic, told.days, [ask_now(told.chronicle, who, told.topic) for who in asked])


class _ChangingDays(NamedTuple):
    """Days on which the same people's affairs change."""

    chronicle: Chronicle
    topic: str
    people: list[str]
    days: list[StoryDay]


def _changing(
    level: int, rng: Random, *, people: int, news: int, note: Callable[[Chronicle, str], Wanted]
) -> _ChangingDays:
    """The first day tells of all people, each later one of so many changes; `note` says what to keep of that."""
    topic, *noise = rng.sample(tuple(VALUES), 3)
    chronicle = Chronicle(rng, plain=level <= PLAIN)
    told = _ChangingDays(chronicle, topic, rng.sample(PEOPLE, people), [])
    for place, number in enumerate(_days(rng, between(level, 2, 8))):
        chronicle.day = number
        todays = _some(rng, told.people, news) if place else told.people
        said = [chronicle.news(who, topic) for who in todays]
        said += _turns(chronicle, level if place else 0, told.people, topic)
        said += _noise(chronicle, level, told.people, noise)
        told.days.append(StoryDay(number, " ".join(said), note(chronicle, topic)))
    return told


def category_story(level: int, rng: Random) -> MemoryStory:
    """Questions about all people with a value, and their number: every note of a category counts."""
    topic, *noise = rng.sample(tuple(VALUES), 3)
    people = rng.sample(PEOPLE, between(level, 2, 12))
    few = {**VALUES, topic: tuple(rng.sample(VALUES[topic], between(level, 3, 5)))}
    numbers = _days(rng, between(level, 1, 6))
    chronicle = Chronicle(rng, plain=level <= PLAIN, values=few)
    days = []
    for place, (number, todays) in enumerate(zip(numbers, _spread(rng, people, len(numbers)), strict=True)):
        chronicle.day = number
        news = [chronicle.news(who, topic) for who in todays]
        if level >= 5 and place:
            known = [who for who, what in chronicle.history if what == topic and who not in todays]
            news += [chronicle.news(who, topic) for who in _some(rng, known, between(level, 0, 2))]
            news += _turns(chronicle, level, known, topic)
        news += _noise(chronicle, level, people, noise)
        days.append(StoryDay(number, " ".join(news), notes_now(chronicle, topic)))
    values = sorted({str(chronicle.now(who, topic)) for who in people})
    kinds = (ask_who, ask_count) if level > PLAIN else (ask_who,)
    questions = [rng.choice(kinds)(chronicle, topic, value) for value in _some(rng, values, between(level, 1, 3))]
    return _story(topic, days, questions)


def _story(
    topic: str, days: Sequence[StoryDay], questions: Sequence[StoryQuestion], *, longest: int = LONGEST
) -> MemoryStory:
    """A story for whose notes there is just enough room."""
    capacity = max(len(day.wanted) for day in days)
    return MemoryStory(topic, tuple(days), tuple(questions), capacity, longest)


def _days(rng: Random, count: int) -> list[int]:
    return sorted(rng.sample(range(1, 3 * count), count))


def _spread(rng: Random, people: Sequence[str], count: int) -> list[list[str]]:
    """Everybody on one of the days, and no day without anybody as long as there are enough."""
    days: list[list[str]] = [[] for _ in range(count)]
    for place, who in enumerate(people):
        days[place if place < count else rng.randrange(count)].append(who)
    return days


def _some(rng: Random, among: Sequence[str], count: int) -> list[str]:
    return rng.sample(among, min(len(among), count))


def _noise(chronicle: Chronicle, level: int, people: Sequence[str], attributes: Sequence[str]) -> Iterator[str]:
    """News that no question is about."""
    for _ in range(between(level, 0, 4)):
        yield chronicle.news(chronicle.rng.choice(people), chronicle.rng.choice(attributes))


def _turns(chronicle: Chronicle, level: int, people: Sequence[str], attribute: str) -> Iterator[str]:
    """News that can only be understood from memory: exchanges, and successions."""
    if level >= 5 and len(people) > 1:
        one, other = chronicle.rng.sample(people, 2)
        if chronicle.now(one, attribute) != chronicle.now(other, attribute):
            yield chronicle.swap(one, other, attribute)
    if level >= 8 and len(people) > 1:
        who, model = chronicle.rng.sample(people, 2)
        yield chronicle.follow(who, model, attribute)


FAMILIES: Mapping[str, Generator] = {
    "topic": topic_story,
    "time": time_story,
    "update": update_story,
    "category": category_story,
}
"""Families that begin with an empty memory."""
