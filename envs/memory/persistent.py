"""Families whose memory outlives the episode: notes of an earlier episode are needed in a later one.

A task of these families may carry, as `parameters["memory"]`, what an earlier attempt left: its notes, and what was
true then. Without it the notes of an earlier self are invented from the seed, so that every task stands for itself.
Asked is only what the notes say rightly when the episode begins, or what the episode tells itself. So every task can be
solved, even if an earlier attempt forgot some.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from pydantic import Field

from loomrl.envs.memory.family import LONGEST
from loomrl.envs.memory.note import LONGEST_NAME, Note, NoteMemory, memory_of
from loomrl.envs.memory.story import PEOPLE, PLAIN, VALUES, Chronicle, MemoryStory, StoryDay, ask_now, notes_now
from loomrl.errors import ConfigError
from loomrl.gym.generate import between
from loomrl.schema import Config
from loomrl.types import Task

TOPIC = "pet"
PEOPLE_KNOWN = PEOPLE[:12]
CAPACITY = len(PEOPLE_KNOWN)
LAST_DAY = 10**6


class MemorySnapshot(Config):
    """A memory between two episodes."""

    day: int = Field(ge=0, le=LAST_DAY)
    """The last one that was told."""
    notes: tuple[tuple[str, str, str, int], ...] = Field(max_length=CAPACITY)
    facts: dict[str, str] = Field(max_length=CAPACITY)
    """Person → the topic's true value."""


def persistent_story(task: Task, rng: Random) -> MemoryStory:
    """Goes on where the task's memory ends."""
    given = task.parameters.get("memory")
    found = None if given is None else _recall(_parse_memory(given))
    chronicle, notes = found or _invent(task.level, rng)
    chronicle.rng = rng
    chronicle.plain = task.level <= PLAIN
    memory = memory_of(notes, capacity=CAPACITY, longest=LONGEST)
    # only what the notes say rightly is asked, so that every task can be solved even after a bad episode
    kept = [who for who in _people(chronicle) if _says(memory, who) == chronicle.now(who, TOPIC)]
    old = rng.sample(kept, min(len(kept), between(task.level, 1, 3)))
    return _tell_days(task, rng, chronicle=chronicle, notes=notes, old=old)


def snapshot_of(story: MemoryStory, memory: NoteMemory) -> dict[str, Any]:
    """The memory that an episode leaves, as JSON."""
    notes = [list(note) for note in memory.notes.values()]
    return {"day": story.days[-1].number, "notes": notes, "facts": dict(story.facts)}


def _tell_days(
    task: Task, rng: Random, *, chronicle: Chronicle, notes: tuple[Note, ...], old: list[str]
) -> MemoryStory:
    """The days of this episode; people in `old` have no part in the news."""
    level = task.level
    begin = chronicle.day
    others = [who for who in PEOPLE_KNOWN if who not in old]
    known = [who for who in others if chronicle.now(who, TOPIC)]
    new = [who for who in others if who not in known]
    first, second = (known, new) if task.family == UPDATE else (new, known)
    order = rng.sample(first, len(first)) + rng.sample(second, len(second))
    noise = [attribute for attribute in VALUES if attribute != TOPIC]
    days: list[StoryDay] = []
    told: dict[str, None] = {}
    for number in range(between(level, 1, 4)):
        chronicle.day = begin + number + 1
        todays = order[: between(level, 1, 2)]
        order = order[len(todays) :]
        news = [chronicle.news(who, TOPIC) for who in todays]
        told |= dict.fromkeys(todays)
        if level >= 7 and number:
            one, other = rng.sample(list(told), 2)
            if chronicle.now(one, TOPIC) != chronicle.now(other, TOPIC):
                news.append(chronicle.swap(one, other, TOPIC))
        news += [chronicle.news(rng.choice(PEOPLE), rng.choice(noise)) for _ in range(between(level, 0, 3))]
        days.append(StoryDay(chronicle.day, " ".join(news), notes_now(chronicle, TOPIC)))
    fresh = rng.sample(list(told), min(len(told), between(level, 1, 3)))
    questions = [ask_now(chronicle, who, TOPIC, old=True) for who in old]
    questions += [ask_now(chronicle, who, TOPIC) for who in fresh]
    rng.shuffle(questions)
    facts = {who: str(chronicle.now(who, TOPIC)) for who in _people(chronicle)}
    return MemoryStory(TOPIC, tuple(days), tuple(questions), CAPACITY, LONGEST, notes, facts)


def _parse_memory(given: Any) -> MemorySnapshot:
    snapshot = MemorySnapshot.parse(given, origin="parameters.memory of a MemoryBuffer task")
    for key, category, text, _ in snapshot.notes:
        short = max(len(key), len(category)) <= LONGEST_NAME and len(text) <= LONGEST
        if not (short and (key + category + text).isprintable()):
            raise ConfigError(f"parameters.memory: {text!r:.60} is no note. Give what an episode of this family left.")
    strangers = [f"{who}: {value}" for who, value in snapshot.facts.items() if not _possible(who, value)]
    if strangers:
        raise ConfigError(f"parameters.memory.facts: {strangers[0]!r:.60} cannot be. Give what an episode left.")
    return snapshot


def _possible(who: str, value: str) -> bool:
    return who in PEOPLE_KNOWN and value in VALUES[TOPIC]


def _recall(snapshot: MemorySnapshot) -> tuple[Chronicle, tuple[Note, ...]] | None:
    """The earlier facts that were noted correctly; None without any, or if there is no day left."""
    notes = tuple(Note(*note) for note in snapshot.notes)
    memory = memory_of(notes, capacity=CAPACITY, longest=LONGEST)
    if snapshot.day >= LAST_DAY - 10 or not any(_says(memory, who) == what for who, what in snapshot.facts.items()):
        return None
    chronicle = Chronicle(Random(0), plain=True)
    for who in sorted(snapshot.facts):
        chronicle.set(who, TOPIC, snapshot.facts[who])
    chronicle.day = snapshot.day
    return chronicle, notes


def _invent(level: int, rng: Random) -> tuple[Chronicle, tuple[Note, ...]]:
    """The days of an earlier self, and its notes of them."""
    chronicle = Chronicle(rng, plain=True)
    notes = []
    for who in rng.sample(PEOPLE_KNOWN, between(level, 2, 10)):
        chronicle.day += 1
        chronicle.news(who, TOPIC)
        notes.append(Note(who, TOPIC, str(chronicle.now(who, TOPIC)), chronicle.day))
    return chronicle, tuple(notes)


def _people(chronicle: Chronicle) -> list[str]:
    return sorted(who for who, what in chronicle.history if what == TOPIC)


def _says(memory: NoteMemory, who: str) -> str | None:
    return memory.says(who, TOPIC, values=VALUES[TOPIC])


UPDATE = "persistent.update"
PERSISTENT: Mapping[str, str] = {
    "persistent.topic": "news of people that were not heard of before",
    UPDATE: "news that make old notes wrong",
}
