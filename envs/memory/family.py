"""The families: which people, which news, which questions."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from envs.memory.fact import PEOPLE, PLAIN, VALUES, Chronicle
from envs.memory.story import (
    Day,
    Generator,
    Question,
    Story,
    ask_count,
    ask_now,
    ask_then,
    ask_who,
    wanted_history,
    wanted_now,
)
from loomrl.gym.generate import between

LONGEST = 30
"""Characters of a note about the present."""
LONGEST_HISTORY = 120
"""Characters of a note about the past, too."""


def topic_story(level: int, rng: Random) -> Story:
    """Things said once, among others that will not be asked for; from level 7 on, what matters changes half-way."""
    attributes = rng.sample(tuple(VALUES), 4)
    topics, later, noise = attributes[:1], attributes[1:2], attributes[2:]
    people = rng.sample(PEOPLE, between(level, 2, 12))
    numbers = _days(rng, between(level, 1, 6))
    change = numbers[len(numbers) // 2] if level >= 7 else 0
    chronicle = Chronicle(rng, plain=level <= PLAIN)
    days: list[Day] = []
    spread = _spread(rng, people if level > 1 else people[:1], len(numbers))
    for number, todays in zip(numbers, spread, strict=True):
        chronicle.day = number
        topic = later[0] if change and number >= change else topics[0]
        news = [chronicle.news(who, topic) for who in todays]
        news += _noise(chronicle, level, people, noise)
        rng.shuffle(news)
        if number == change:
            news.insert(0, f"From now on you will be asked about {topic} only, not about {topics[0]}.")
        days.append(Day(number, " ".join(news), wanted_now(chronicle, (topic,))))
    asked = [who for who, what in chronicle.history if what == (later if change else topics)[0]]
    chosen = rng.sample(asked, min(len(asked), between(level, 1, 4)))
    questions = [ask_now(chronicle, who, (later if change else topics)[0]) for who in chosen]
    return _story(topics[0], days, questions)


def time_story(level: int, rng: Random) -> Story:
    """What was so on which day: notes have to keep the past."""
    topic, *noise = rng.sample(tuple(VALUES), 3)
    people = rng.sample(PEOPLE, between(level, 1, 6))
    numbers = _days(rng, between(level, 2, 8))
    chronicle = Chronicle(rng, plain=level <= PLAIN)
    days = []
    for place, number in enumerate(numbers):
        chronicle.day = number
        todays = people if not place else rng.sample(people, between(level, 1, 3))
        news = [chronicle.news(who, topic) for who in todays]
        news += _turns(chronicle, level if place else 0, people, topic)
        news += _noise(chronicle, level, people, noise)
        days.append(Day(number, " ".join(news), wanted_history(chronicle, topic)))
    questions = []
    for who in _some(rng, people, between(level, 1, 4)):
        questions.append(ask_then(chronicle, who, topic, rng.randint(numbers[0], numbers[-1])))
    return _story(topic, days, questions, longest=LONGEST_HISTORY)


def update_story(level: int, rng: Random) -> Story:
    """What changes again and again; only the latest counts, and there is no room for more."""
    topic, *noise = rng.sample(tuple(VALUES), 3)
    people = rng.sample(PEOPLE, between(level, 1, 10))
    numbers = _days(rng, between(level, 2, 8))
    chronicle = Chronicle(rng, plain=level <= PLAIN)
    days = []
    for place, number in enumerate(numbers):
        chronicle.day = number
        todays = people if not place else rng.sample(people, between(level, 1, 4))
        news = [chronicle.news(who, topic) for who in todays]
        news += _turns(chronicle, level if place else 0, people, topic)
        news += _noise(chronicle, level, people, noise)
        days.append(Day(number, " ".join(news), wanted_now(chronicle, (topic,))))
    questions = [ask_now(chronicle, who, topic) for who in _some(rng, people, between(level, 1, 5))]
    return _story(topic, days, questions)


def category_story(level: int, rng: Random) -> Story:
    """Of whom is it so, and of how many: every note of a category counts."""
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
        days.append(Day(number, " ".join(news), wanted_now(chronicle, (topic,))))
    values = sorted({str(chronicle.now(who, topic)) for who in people})
    kinds = (ask_who, ask_count) if level > PLAIN else (ask_who,)
    questions = [rng.choice(kinds)(chronicle, topic, value) for value in _some(rng, values, between(level, 1, 3))]
    return _story(topic, days, questions)


def _story(topic: str, days: Sequence[Day], questions: Sequence[Question], *, longest: int = LONGEST) -> Story:
    """A story for whose notes there is just enough room."""
    capacity = max(len(day.wanted) for day in days)
    return Story(topic, tuple(days), tuple(questions), capacity, longest)


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
    """News that nobody will ask about."""
    for _ in range(between(level, 0, 4)):
        yield chronicle.news(chronicle.rng.choice(people), chronicle.rng.choice(attributes))


def _turns(chronicle: Chronicle, level: int, people: Sequence[str], attribute: str) -> Iterator[str]:
    """News that can only be understood by whoever remembers: exchanges, and who follows whom."""
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
"""Those that begin with an empty memory."""
