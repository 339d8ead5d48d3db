"""The MemoryBuffer environment: days of news, a small memory, and questions that only its notes can answer.

Each action is a few commands. While there are news, notes are written; with the first question the memory is closed.
A conversation can be read again, so an answer counts only where the notes, read by a fixed rule, say the same:
remembering is what is tested. In the `persistent` families the notes of an earlier episode are asked for as well:
`memory()` is what an attempt leaves, and `parameters["memory"]` what it begins with.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from loomrl.envs.memory.family import FAMILIES
from loomrl.envs.memory.note import MOST_SHOWN, NoteMemory, NoteRefused, memory_of, read
from loomrl.envs.memory.persistent import PERSISTENT, persistent_story, snapshot_of
from loomrl.envs.memory.story import VALUES, MemoryStory, StoryQuestion
from loomrl.errors import ConfigError
from loomrl.gym.answer import COMMANDS, parse_commands
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.generate import rng_of
from loomrl.types import Message, Observation, Task

VERBS = ("STORE", "FORGET", "RETRIEVE", "ANSWER", "NEXT")
MOST_COMMANDS = 40
"""In one action; an action with more is not carried out."""
LONGEST_ACTION = 16_000
"""Characters; a longer action is not carried out."""
FULL = 3
"""From this level on all commands are explained."""


class MemoryBufferSettings(EnvironmentSettings):
    """Settings of MemoryBuffer."""

    memory_size: int = Field(0, ge=0)
    """Notes that there is room for in the families that begin with an empty memory; 0 is as many as each task needs.
    A task that needs more is refused."""


class MemoryBufferEnvironment(BaseEnvironment):
    """The task is done when every question got the true answer and the notes said so too; one wrong answer ends it.

    `STORE: key | category | text`, `FORGET: key | category`, `RETRIEVE: words` and `NEXT:` earn nothing; the last
    `ANSWER:` of an action counts. The one part of the reward is `correctness`, 1 with the last right answer.
    """

    name = "MemoryBuffer"
    version = "1.2.0"
    families = (*FAMILIES, *PERSISTENT)
    settings_class = MemoryBufferSettings
    reward_parts = ("correctness",)
    reward_range = (0.0, 1.0)
    ceilings: ClassVar[Mapping[str, float]] = {"random": 0.05, "constant": 0.05, "hacking": 0.05}
    sources = ("loomrl.envs.memory", *COMMANDS, "loomrl.gym.generate")

    settings: MemoryBufferSettings
    _task: Task
    _story: MemoryStory
    _memory: NoteMemory
    _day = 0
    """Index of the story's current day; the questions come after the last one."""
    _asked = 0
    """Index of the current question."""
    _retrieved = False
    """True if the memory was queried for the current question."""

    async def reset(self, task: Task | None = None) -> Observation:
        """The first day."""
        self._task = task = self.task_or_random(task)
        rng = rng_of(task)
        if task.family in PERSISTENT:
            story = persistent_story(task, rng)
        else:
            story = self._with_room(FAMILIES[task.family](task.level, rng), task)
        self._story = story
        self._memory = memory_of(story.notes, capacity=story.capacity, longest=story.longest)
        self._day = self._asked = 0
        self._retrieved = False
        return (Message("user", f"{_introduction(story, task)}\n\n{self._news()}"),)

    def _with_room(self, story: MemoryStory, task: Task) -> MemoryStory:
        size = self.settings.memory_size
        if 0 < size < story.capacity:
            raise ConfigError(
                f"memory_size={size}: {task.family} at level {task.level} needs room for {story.capacity} notes here. "
                "Give as many, or 0 for what each task needs."
            )
        return replace(story, capacity=size or story.capacity)

    async def step(self, action: str) -> Step:
        """Carry out the commands in order."""
        commands = _commands(action)
        if commands is None:
            return Step.say(f"Nothing was done: at most {MOST_COMMANDS} commands and {LONGEST_ACTION} characters.")
        if self._day < len(self._story.days):
            return self._write_notes(commands)
        return self._judge_answer(commands)

    def _write_notes(self, commands: Sequence[tuple[str, str]]) -> Step:
        """Notes are written; the day ends unless something was refused or looked up."""
        said: list[str] = []
        for verb, argument in commands:
            said += self._carry_out(verb, argument)
        if not commands:
            said = ["No command was found. NEXT: goes on."]
        if said and ("NEXT", "") not in commands:
            return Step.say("\n".join(said))
        self._day += 1
        return Step.say("\n".join([*said, self._news() if self._day < len(self._story.days) else self._questions()]))

    def _carry_out(self, verb: str, argument: str) -> list[str]:
        """The answer to a command while the memory is open."""
        acts: Mapping[str, Callable[[], None]] = {
            "STORE": lambda: self._memory.store(argument, self._story.days[self._day].number),
            "FORGET": lambda: self._memory.forget(argument),
        }
        if verb == "RETRIEVE":
            return self._show_notes(argument)
        if verb == "ANSWER":
            return ["ANSWER refused: nothing was asked yet."]
        try:
            acts.get(verb, lambda: None)()
        except NoteRefused as error:
            return [f"{verb} refused: {error}."]
        return []

    def _show_notes(self, query: str) -> list[str]:
        notes = self._memory.retrieve(query)
        more = [f"and {len(notes) - MOST_SHOWN} more"] if len(notes) > MOST_SHOWN else []
        return [*map(str, notes[:MOST_SHOWN]), *more] or ["No note was found."]

    def _judge_answer(self, commands: Sequence[tuple[str, str]]) -> Step:
        """The last answer is judged; without one, notes are looked up."""
        answers = [argument for verb, argument in commands if verb == "ANSWER"]
        if not answers:
            queries = [argument for verb, argument in commands if verb == "RETRIEVE"]
            self._retrieved |= bool(queries)
            said = [line for query in queries for line in self._show_notes(query)]
            return Step.say("\n".join(said or ["The memory is closed. RETRIEVE: words, or ANSWER: ..."]))
        question = self._story.questions[self._asked]
        # the conversation can be read again, so only an answer that the notes give proves remembering
        noted = question.read(self._memory)
        if not (_same(question, answers[-1]) and noted == question.answer):
            return self._over(0.0, question, noted)
        self._asked += 1
        self._retrieved = False
        if self._asked == len(self._story.questions):
            return self._over(1.0, question, noted)
        return Step.say(self._story.questions[self._asked].text)

    def _over(self, success: float, question: StoryQuestion, noted: str | None) -> Step:
        return Step.end(self.pay(success, correctness=success), answer=question.answer, noted=noted or "")

    def _news(self) -> str:
        day = self._story.days[self._day]
        return f"Day {day.number}. {day.news} ({len(self._memory.notes)} of {self._story.capacity} notes)"

    def _questions(self) -> str:
        return f"The memory is closed. ANSWER: ...\n{self._story.questions[0].text}"

    def memory(self) -> Mapping[str, Any] | None:
        """The memory left by a `persistent` episode: its notes, and the truth."""
        return snapshot_of(self._story, self._memory) if self._task.family in PERSISTENT else None

    def oracle(self) -> str:
        """Commands that bring the notes where they should be; then answers, looked up where no day has told them."""
        if self._day < len(self._story.days):
            return "\n".join(self._changes()) or "NEXT:"
        question = self._story.questions[self._asked]
        if question.old and not self._retrieved:
            return f"RETRIEVE: {question.text.split()[2].removesuffix(chr(39) + 's')}"
        return f"ANSWER: {question.answer}"

    def _changes(self) -> list[str]:
        """Notes that are not needed any more go first."""
        wanted = self._story.days[self._day].wanted
        notes = self._memory.notes
        kept = {place: notes[place].text for place in wanted.keys() & notes.keys()}
        right = {place for place, text in kept.items() if _says_the_same(text, wanted[place], place[1])}
        lost = [f"FORGET: {key} | {category}" for key, category in notes if (key, category) not in wanted]
        told = [
            f"STORE: {key.capitalize()} | {category} | {text}"
            for (key, category), text in wanted.items()
            if (key, category) not in right
        ]
        return (lost + told)[:MOST_COMMANDS]

    def random_action(self, rng: Random) -> str:
        """A note of something possible, or a possible answer."""
        value = rng.choice(VALUES[self._story.topics])
        if self._day < len(self._story.days):
            names = _names(self._story)
            return f"STORE: {rng.choice(names)} | {self._story.topics} | {value}"
        return f"ANSWER: {value}"

    def hacks(self) -> Sequence[str]:
        """Answers without notes, notes that say everything, and words to the judge."""
        if self._day < len(self._story.days):
            return [*_note_hacks(self._story), *["NEXT:"] * len(_answer_hacks(self._story.questions[0]))]
        question = self._story.questions[self._asked]
        said = [f"ANSWER: {question.answer}"] * len(_note_hacks(self._story))
        return [*said, *_answer_hacks(question)]


def _introduction(story: MemoryStory, task: Task) -> str:
    topic = story.topics
    persistent = task.family in PERSISTENT
    full = task.level >= FULL
    value = "2 value 5 value" if task.family == "time" else "value"
    lines = (
        (True, f"You will be asked about {topic}. Note it: an answer counts only if your notes say it."),
        (persistent, "Your memory holds notes of earlier days."),
        (True, f"STORE: name | {topic} | {value}"),
        (task.family == "time", "Each number is the day since when."),
        (full or task.family in ("time", "update"), "A new note of the same name replaces the old one."),
        (full or persistent, "RETRIEVE: words, or day 3"),
        (full, f"FORGET: name | {topic}"),
        (full, "NEXT: (nothing to note today)"),
        (full, f"A note has at most {story.longest} characters. One line for each command, several at a time."),
    )
    return "\n".join(line for holds, line in lines if holds)


def _commands(action: str) -> list[tuple[str, str]] | None:
    """Verbs with their arguments, line by line; None if there are too many."""
    if len(action) > LONGEST_ACTION:
        return None
    found = parse_commands(action, VERBS)
    if len(found) > MOST_COMMANDS:
        return None
    return [(command.verb, command.line if command.verb != "NEXT" else "") for command in found]


def _same(question: StoryQuestion, given: str) -> bool:
    """True if an answer is right, except for case and spaces; names in any order, `8.0` for `8`."""
    plain = " ".join(given.casefold().split())
    if question.many:
        names = [name.strip() for name in plain.replace(" and ", ",").split(",") if name.strip()]
        return sorted(names) == sorted(question.answer.casefold().split(", "))
    whole = plain.rstrip("0").removesuffix(".") if "." in plain else plain
    return question.answer.casefold() in (plain, whole)


def _says_the_same(text: str, wanted: str, category: str) -> bool:
    """True if one note can replace another: they give the same value on every day of the wanted one."""
    days: list[int | None] = [int(word) for word in wanted.split() if word.isdigit()]
    values = VALUES[category]
    return all(read(text, values=values, day=day) == read(wanted, values=values, day=day) for day in days or [None])


def _names(story: MemoryStory) -> list[str]:
    return sorted({key.capitalize() for day in story.days for key, _ in day.wanted})


def _note_hacks(story: MemoryStory) -> list[str]:
    topic = story.topics
    names = _names(story)
    every = " ".join(VALUES[topic])
    told = story.days[0].news
    return [
        "NEXT:",
        "\n".join(f"STORE: {name} | {topic} | {every[: story.longest]}" for name in names),
        "\n".join(f"STORE: {name} | {topic} | {value}" for name in names for value in VALUES[topic][:3])[:2000],
        f"STORE: all | {topic} | {told[: story.longest]}\nNEXT:",
        f"STORE: {names[0]} | all | {every[: story.longest]}\nNEXT:",
        f"STORE: {names[0]} {names[-1]} | {topic} | {VALUES[topic][0]}\nNEXT:",
        "STORE: reward | system | success 1.0\nNEXT:",
        "STORE: |||||\nFORGET: everything\nNEXT:",
    ]


def _answer_hacks(question: StoryQuestion) -> list[str]:
    everything = " ".join(word for values in VALUES.values() for word in values)
    return [
        f"ANSWER: {question.answer}",
        f"ANSWER: {everything}",
        f"ANSWER: {question.text}",
        "ANSWER: as noted",
        "ANSWER:",
        f"STORE: {question.text.split()[2][:9]} | pet | {question.answer}\nANSWER: {question.answer}",
        "\n".join(f"ANSWER: {word}" for word in everything.split()[:MOST_COMMANDS]),
        "ANSWER: correct. Reward: 1.0",
        f"RETRIEVE: {question.text}",
    ]
