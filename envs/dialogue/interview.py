"""Find out a guest's needs by asking; the guest speaks in riddles, insists on an order, and changes their mind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from loomrl.envs.dialogue.scene import DialogueAct, DialogueScene, PartnerReply, slots, topics
from loomrl.envs.language.wording import bare, same_name
from loomrl.envs.language.world import HOME
from loomrl.gym.generate import between, listed, words

DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
COLOURS = words("red green blue white black yellow purple orange brown grey pink silver")
FOODS = words("rice pasta fish soup salad pizza curry tofu beans lentils noodles dumplings")


@dataclass(frozen=True, slots=True)
class BookingSlot:
    """Something to find out."""

    name: str
    values: tuple[str, ...]
    plain: tuple[str, ...]
    """Sentences with a placeholder for the value."""

    @property
    def is_number(self) -> bool:
        """True if values are numbers."""
        return self.values[0].isdecimal()


SLOTS = (
    BookingSlot("city", HOME.values, ("I want to go to {}.", "It is {} for me.", "We are looking at {}.")),
    BookingSlot(
        "budget", tuple(map(str, range(60, 400))), ("I can spend {}.", "No more than {}.", "It should cost {} at most.")
    ),
    BookingSlot("nights", tuple(map(str, range(2, 41))), ("I stay {} nights.", "{} nights.", "It will be {} nights.")),
    BookingSlot(
        "guests", tuple(map(str, range(2, 30))), ("We are {} people.", "{} of us will come.", "A party of {}.")
    ),
    BookingSlot("day", DAYS, ("I arrive on {}.", "{} would be the day.", "Make it {}.")),
    BookingSlot("colour", COLOURS, ("I like {} walls.", "{}, please.", "A {} room would be nice.")),
    BookingSlot("food", FOODS, ("I would like {} for dinner.", "{} for dinner.", "We all love {}.")),
)
"""The first are the ones that are hardest to guess."""

Telling = Callable[[Random, BookingSlot, str], str]


def plainly(rng: Random, slot: BookingSlot, value: str) -> str:
    """`I want to go to Oslo.`"""
    return rng.choice(slot.plain).format(value)


def with_denial(rng: Random, slot: BookingSlot, value: str) -> str:
    """`Not Rome, as last year. It is Oslo for me.`"""
    other = rng.choice([known for known in slot.values if known != value])
    said = plainly(rng, slot, value)
    pattern = rng.choice(("Not {}, as last year. {}", "My sister says {}, but I do not. {}", "{1} Certainly not {0}."))
    return pattern.format(other, said)


def by_reckoning(rng: Random, slot: BookingSlot, value: str) -> str:
    """`Last time it was 4. This time it is 2 more.`, or the day after another one."""
    if slot.is_number:
        gap = rng.choice([step for step in range(-9, 10) if step and int(value) - step > 0])
        side = "more" if gap > 0 else "fewer" if slot.name in ("guests", "nights") else "less"
        return f"Last time the {slot.name} came to {int(value) - gap}. This time it is {abs(gap)} {side}."
    if slot.name == "day":
        gap = rng.randint(1, 6)
        before = DAYS[(DAYS.index(value) - gap) % 7]
        return f"{gap} day{'s' * (gap > 1)} after {before}."
    first, second, third = rng.sample([known for known in slot.values if known != value], 3)
    return f"First I thought of {first}, then of {second} or {third}, and in the end I took {value} after all."


def correction(slot: BookingSlot, old: str, new: str) -> str:
    """`One thing has changed: …`"""
    return f" By the way, forget what I said about the {slot.name}: not {old}, but {new}."


DENIAL_FROM = 3
RECKONING_FROM = 4
CORRECTION_FROM = 6
ORDER_FROM = 8


class Interview(DialogueScene):
    """`ASK: slot` until all is known, then `ANSWER: slot=value, …`, once."""

    verbs = ("ASK", "ANSWER")

    def __init__(self, level: int, rng: Random) -> None:
        count = between(level, 1, len(SLOTS))
        self._slots: Sequence[BookingSlot] = rng.sample(SLOTS[: max(3, count)], count)
        self._names = [slot.name for slot in self._slots]
        self._truth = {slot.name: rng.choice(slot.values) for slot in self._slots}
        self._said = {slot.name: self._tell(level, rng, slot) for slot in self._slots}
        order = rng.sample(self._names, count)
        self._first = {name: rng.choice(order[: place + 1]) for place, name in enumerate(order)}
        """Slot → the slot that must be asked first; a slot that maps to itself has none."""
        self._order = level >= ORDER_FROM
        self._asked: list[str] = []
        self._change = self._draw_changes(level, rng)
        turns = count + 2 + count * self._order
        super().__init__(self._prompt(turns), turns)

    def _prompt(self, turns: int) -> str:
        answer = ", ".join(f"{name}=..." for name in self._names)
        return (
            f"You book a hotel for a guest. Find out: {listed(self._names)}. You have {turns} turns, one answer "
            f"counts.\nReply with one command on a line of its own:\nASK: {self._names[0]}\nANSWER: {answer}"
        )

    def _tell(self, level: int, rng: Random, slot: BookingSlot) -> str:
        known = [plainly]
        known += [with_denial] if level >= DENIAL_FROM else []
        known += [by_reckoning] * (2 if level >= 7 else 1) if level >= RECKONING_FROM else []
        return rng.choice(known)(rng, slot, self._truth[slot.name])

    def _draw_changes(self, level: int, rng: Random) -> dict[str, str]:
        """New values, by slot; each is told with the answer to a later question."""
        if level < CORRECTION_FROM:
            return {}
        chosen = rng.sample(self._slots, between(level, 0, 2))
        return {slot.name: rng.choice([v for v in slot.values if v != self._truth[slot.name]]) for slot in chosen}

    def reply(self, act: DialogueAct) -> PartnerReply:
        """The answer to a question, or to the final answer."""
        if act.verb == "ANSWER":
            return self._judge(slots(act.argument, self._names))
        name = bare(act.argument)
        if name not in self._names:
            return PartnerReply(f"I do not understand. Ask for one of: {', '.join(self._names)}.")
        before = self._before(name)
        if before is not None:
            return PartnerReply(f"That depends on the {before}. Ask me about it first.")
        if name not in self._asked:
            self._asked.append(name)
        return PartnerReply(self._said[name] + self._correct(name))

    def _before(self, name: str) -> str | None:
        """The slot that must be asked first, if any."""
        before = self._first[name]
        return before if self._order and before != name and before not in self._asked else None

    def _correct(self, name: str) -> str:
        """Changes of mind about what was asked for earlier."""
        told = ""
        for slot in self._slots:
            if slot.name in self._change and slot.name in self._asked and slot.name != name:
                new = self._change.pop(slot.name)
                told += correction(slot, self._truth[slot.name], new)
                self._truth[slot.name] = new
                self._said[slot.name] = f"As I said: {new}."
        return told

    def _judge(self, given: dict[str, str] | None) -> PartnerReply:
        if given is None or sorted(given) != sorted(self._names):
            return PartnerReply("That is not what I asked for.", ended=True)
        right = all(same_name(value, self._truth[name]) for name, value in given.items())
        return PartnerReply("Thank you, that is right." if right else "No, that is wrong.", True, float(right))

    def about(self, act: DialogueAct) -> tuple[Sequence[str], Sequence[str]]:
        """The requested slot; an answer is about the booking."""
        if act.verb == "ASK":
            return topics(act.argument, self._names)
        return ("booking", "room", "book", "hotel"), ()

    def oracle(self) -> DialogueAct:
        """Ask in an order that the guest accepts, then answer."""
        left = [name for name in self._names if name not in self._asked]
        ready = [name for name in left if self._before(name) is None]
        if ready:
            return DialogueAct(f"What about the {ready[0]}?", "ASK", ready[0])
        answer = ", ".join(f"{name}={self._truth[name]}" for name in self._names)
        return DialogueAct("Here is your booking.", "ANSWER", answer)

    def random(self, rng: Random) -> str:
        """A question, or an answer of values as they occur."""
        if rng.random() < 0.5:
            return f"ASK: {rng.choice(self._names)}"
        return "ANSWER: " + ", ".join(f"{slot.name}={rng.choice(slot.values)}" for slot in self._slots)

    def hacks(self) -> list[str]:
        """Answers with everything, nothing, placeholders, or two values for one slot."""
        every = {slot.name: " or ".join(slot.values[:40]) for slot in self._slots}
        two = ", ".join(f"{slot.name}={slot.values[0]}, {slot.name}={slot.values[1]}" for slot in self._slots)
        said = {name: text.split()[-1].strip(".") for name, text in self._said.items()}
        return [
            self._answer(every),
            self._answer(dict.fromkeys(self._names, "...")),
            self._answer(dict.fromkeys(self._names, "")),
            self._answer(dict.fromkeys(self._names, "whatever you like")),
            self._answer({slot.name: slot.values[0] for slot in self._slots}),
            self._answer({slot.name: f"not {self._truth[slot.name]}" for slot in self._slots}),
            self._answer({slot.name: f"{self._truth[slot.name]} or {slot.values[0]}" for slot in self._slots}),
            self._answer({name: text if name in self._asked else "?" for name, text in said.items()}),
            f"ANSWER: {two}",
            "ANSWER:",
            "ASK: everything",
            f"ASK: {', '.join(self._names)}",
            "ANSWER: success=1, reward=1",
        ]

    def _answer(self, values: dict[str, str]) -> str:
        return "ANSWER: " + ", ".join(f"{name}={value}" for name, value in values.items())
