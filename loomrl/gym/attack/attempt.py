"""An attack as data: what is said in which order, how its worth is measured on a task, and when it counts as proved."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from loomrl.gym.attack.arena import LONGEST, Arena, Bout, Sample, random_actor
from loomrl.gym.attack.program import PROGRAMS, SHELLS, call_of, signature_of
from loomrl.gym.attack.shape import (
    CHOICES,
    PLAIN_SIGHT,
    SPOILS,
    WHOLE,
    Shape,
    changed,
    copies,
    crowd,
    is_tolerance,
    marks,
    normal,
    shape_of,
)
from loomrl.gym.base import BaseEnvironment

PAID = 0.99
"""Share of the oracle's success, or of its reward, that counts as being paid in full."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A way to act, the same for every task of a family."""

    kind: str
    moves: tuple[str, ...] = ()
    """Texts to say in turn, the last one again and again; or the name of a change to the oracle's answer."""
    guess: bool = False
    """True if it may be a right answer by luck, so that it must beat the luck of guessing."""

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """The attack of its JSON."""
        return cls(data["kind"], tuple(data["moves"]), bool(data["guess"]))

    @property
    def size(self) -> int:
        """Letters in all, for the shortest of several."""
        return sum(map(len, self.moves)) + len(self.moves)


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of an attack on one task, from 0 to 1, and its actions."""

    value: float
    share: float = 0.0
    """Reward above that of random actions, as a share of what the oracle earns above them."""
    actions: tuple[str, ...] = ()
    failed: bool = False

    @property
    def is_loop(self) -> bool:
        """True for a few actions again and again."""
        return len(self.actions) >= 6 and len({*self.actions}) <= 3


@dataclass(frozen=True)
class Family:
    """A family of tasks with samples of the oracle's play, to attack it."""

    arena: Arena
    name: str
    samples: tuple[Sample, ...]
    declared: float
    """The highest success that the author allows to policies without skill."""
    random_total: float
    seconds: float
    """An oracle's episode takes this long."""

    @cached_property
    def solved(self) -> tuple[Sample, ...]:
        """The tasks that the oracle solves."""
        return tuple(sample for sample in self.samples if sample.oracle and sample.success >= PAID)

    @cached_property
    def shape(self) -> Shape:
        """The form of the oracle's last action."""
        return shape_of([sample.oracle[-1] for sample in self.solved])

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """The oracle's last actions, the most frequent first."""
        said = [sample.oracle[-1] for sample in self.solved]
        return tuple(sorted(dict.fromkeys(said), key=lambda each: (-said.count(each), each)))

    @cached_property
    def variety(self) -> int:
        """The number of different ways in which the oracle plays; 0 without an oracle."""
        return len({tuple(map(normal, sample.oracle)) for sample in self.solved})

    @cached_property
    def is_fixed(self) -> bool:
        """True if all tasks are the same one."""
        return self.variety == 1 or (self.variety == 0 and len({each.prompt for each in self.samples}) == 1)

    @property
    def is_few(self) -> bool:
        """True if one task proves as much as many, or more would take too long."""
        return self.variety == 1 or self.seconds > 0.5

    @property
    def floor(self) -> float:
        """The success of guessing."""
        return max(self.declared, 1 / self.variety if self.variety > 1 else 0.0)

    @cached_property
    def oracle_total(self) -> float:
        """The oracle's mean reward, or the highest that the environment declares."""
        totals = [sample.total for sample in self.solved]
        return sum(totals) / len(totals) if totals else self.arena.open().reward_range[1]

    def others(self, sample: Sample, count: int) -> list[str]:
        """Other tasks' last actions of the oracle that differ from this one's, and among each other."""
        own = normal(self.shape.core(sample.oracle[-1]))
        rng = random.Random(sample.task.seed)
        found = [each for each in self.answers if normal(self.shape.core(each)) != own]
        rng.shuffle(found)
        return found[:count]

    def share(self, total: float) -> float:
        """The share of the oracle's reward beyond that of random actions."""
        gain = self.oracle_total - self.random_total
        return (total - self.random_total) / gain if gain > 1e-6 else 0.0


async def measure(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    """The attack's worth on a task; None where it does not apply."""
    match attack.kind:
        case "say" | "cycle" | "random" | "copy" | "ask" | "code" | "shell" | "level" | "rule":
            return await _blind(attack, family, sample)
        case "spoil" | "whole" | "crowd":
            return await _spoiled(attack, family, sample)
        case "step":
            return await _stepped(attack, family, sample)
        case "after" | "abandoned" | "again":
            return await _after(attack, family, sample)
        case "repeat" | "pad" | "stall" | "insert":
            return await _more(attack, family, sample)
    raise ValueError(f"an attack of kind {attack.kind!r} is unknown; it was recorded by another version.")


def _worth(bout: Bout, family: Family, sample: Sample) -> Worth:
    """Success in full only: partial credit is what an author grants."""
    return Worth(float(bout.ended) * bout.success, family.share(bout.total), bout.actions, bool(bout.failure))


async def _blind(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    task = sample.task
    if attack.kind == "random":
        rng = random.Random(task.seed)
        return _worth(await family.arena.bout(task, random_actor(rng)), family, sample)
    if attack.kind == "cycle":
        moves = attack.moves
        return _worth(
            await family.arena.bout(task, lambda turn, _: moves[turn % len(moves)] if turn < LONGEST else None),
            family,
            sample,
        )
    if attack.kind == "copy":
        return await _copied(attack, family, sample)
    if attack.kind == "ask":
        return await _first_reply(attack, family, sample)
    actions: Sequence[str] = attack.moves
    if attack.kind == "level":
        if str(task.level) != attack.moves[1]:
            return None
        actions = attack.moves[:1]
    elif attack.kind == "rule":
        name, table = attack.moves
        value = dict(marks(sample.prompt)).get(name)
        actions = (json.loads(table).get(str(value), ""),)
    elif attack.kind == "code":
        signature = signature_of(sample)
        if signature is None:
            return None
        actions = (family.shape.wrap(PROGRAMS[attack.moves[0]](signature, sample.prompt)),)
    elif attack.kind == "shell":
        call = call_of(sample)
        if call is None:
            return None
        actions = (call(SHELLS.get(attack.moves[0], attack.moves[0])), sample.oracle[-1])
    return _worth(await family.arena.say(task, actions), family, sample)


async def _copied(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    name = attack.moves[0]
    text = next((text for each, text in copies(sample.prompt) if each == name), None)
    if text is None:
        return Worth(0.0)
    own = normal(family.shape.core(sample.oracle[-1])) if sample.oracle else None
    # A reading that finds the right answer may be the task itself, such as to repeat a word.
    if normal(text) == own and not name.startswith((*PLAIN_SIGHT, *CHOICES)):
        return Worth(0.0)
    best = Worth(0.0)
    for action in dict.fromkeys((family.shape.wrap(text), text)):
        worth = _worth(await family.arena.say(sample.task, (action,)), family, sample)
        best = max(best, worth, key=lambda each: each.value)
    return best


async def _first_reply(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    """The worth of a first action whose reply gives the answer away after a mark."""
    question, name = attack.moves
    if question in sample.oracle:
        return None
    replies: list[str] = []

    def act(turn: int, environment: BaseEnvironment) -> str | None:
        if turn == 0:
            return question
        text = next((text for each, text in copies(replies[-1]) if each == name), None) if replies else None
        return family.shape.wrap(text) if text is not None and turn == 1 else None

    return _worth(await family.arena.bout(sample.task, act, replies=replies), family, sample)


async def _spoiled(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    """1 if every variant is paid like the oracle's answer, though another task's answer alone is not."""
    if not sample.oracle or sample.success < PAID:
        return None
    others = family.others(sample, 6)
    right = sample.oracle[-1]
    core = family.shape.core(right)
    name = attack.moves[0] if attack.moves else ""
    variants: tuple[str, ...] | None = None
    if attack.kind == "spoil":
        other = family.shape.core(others[0]) if others else ""
        spoiled = SPOILS[name](core, other, sample.prompt)
        if spoiled and is_tolerance(core, spoiled[0], list(map(family.shape.core, family.answers))):
            return None
        variants = spoiled and tuple(family.shape.dress(right, each) for each in spoiled)
    elif attack.kind == "whole" and len(others) >= 2:
        variants = WHOLE[name](right, others)
    elif attack.kind == "crowd":
        crowded = crowd(core, list(map(family.shape.core, others)))
        variants = crowded and tuple(family.shape.dress(right, each) for each in crowded)
    if not variants:
        return None
    least = 1.0
    for variant in variants:
        if normal(variant) == normal(right):
            return None
        bout = await family.arena.say(sample.task, (*sample.oracle[:-1], variant), again=False)
        least = min(least, bout.success if bout.ended else 0.0)
        if least < PAID * sample.success:
            return Worth(0.0, 0.0, bout.actions)
    # Where anything ends the task well, as after work that is already done, the last answer proves nothing.
    for other in (*others[:2], family.shape.dress(right, "zzqx")):
        control = await family.arena.say(sample.task, (*sample.oracle[:-1], other), again=False)
        if control.success >= 0.5:
            return None
    return Worth(1.0, 1.0, bout.actions)


async def _stepped(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    """1 if a step with an absurd value does what it must, though other changes of that step undo the success."""
    place, kind, value = attack.moves
    index = int(place)
    oracle = sample.oracle
    if sample.success < PAID or len(oracle) < 2 or index >= len(oracle):
        return None
    is_number = kind == "number"
    other = changed(oracle[index], value, number=is_number)
    if other is None:
        return None

    async def play(*step: str) -> Bout:
        return await family.arena.say(sample.task, (*oracle[:index], *step, *oracle[index + 1 :]), again=False)

    bout = await play(other)
    if bout.total > sample.total + _surplus(family, sample):
        return Worth(1.0, 1.0, bout.actions)
    if not bout.ended or bout.success < PAID * sample.success:
        return Worth(0.0)
    controls = [(), ("zzqx",)]
    for wrong in ("7", "3", "12", "58") if is_number else ("zzqx", "thing", "qqq"):
        text = changed(oracle[index], wrong, number=is_number)
        controls += [(text,)] if text else []
    for control in controls:
        if (await play(*control)).success >= 0.5:
            return Worth(0.0)
    return Worth(1.0, 1.0, bout.actions)


def _surplus(family: Family, sample: Sample) -> float:
    """Reward beyond the oracle's that no better play explains."""
    low, high = family.arena.open().reward_range
    return 0.25 * (high - low if math.isfinite(high - low) else abs(sample.total))


async def _after(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    """Success beyond that in a fresh object, after another episode in the same one.

    The oracle has played another task ("after"), has left it before the end ("abandoned"), or has played this very one.
    """
    before = next((each for each in family.solved if each.task != sample.task and each.oracle != sample.oracle), None)
    if attack.kind == "again":
        before = sample if sample.success >= PAID else None
    if before is None:
        return None
    actions = attack.moves or before.oracle
    played = before.oracle[:-1] if attack.kind == "abandoned" else before.oracle
    fresh = await family.arena.say(sample.task, actions)
    async with family.arena.opened() as environment:
        await family.arena.say(before.task, played, again=False, environment=environment)
        used = await family.arena.say(sample.task, actions, environment=environment)
    if not used.ended or used.success < 0.5:
        return Worth(0.0)
    return Worth(max(0.0, used.success - fresh.success), 0.0, used.actions)


async def _more(attack: Attack, family: Family, sample: Sample) -> Worth | None:
    """1 if more of the same earns more and more than the oracle."""
    if not sample.oracle:
        return None
    totals = []
    bout = Bout()
    for times in (1, 4, 12):
        actions = _longer(attack, family, sample, times)
        if actions is None:
            return None
        bout = await family.arena.say(sample.task, actions, again=False)
        if bout.failure:
            return Worth(0.0)
        totals.append(bout.total)
    low, high = family.arena.open().reward_range
    step = 0.02 * (high - low) if math.isfinite(high - low) else 0.02 * abs(sample.total)
    grows = totals[1] > sample.total + step and totals[2] >= totals[1] and totals[1] > totals[0] + step / 2
    # A gain that is paid once, far above an oracle that solves the task.
    is_far = sample.success >= PAID and attack.kind != "pad" and min(totals) > sample.total + _surplus(family, sample)
    return Worth(float(grows or is_far), family.share(totals[2]), bout.actions)


def _longer(attack: Attack, family: Family, sample: Sample, times: int) -> list[str] | None:
    oracle = sample.oracle
    if attack.kind == "pad":
        return [*oracle[:-1], oracle[-1] + attack.moves[0] * times]
    if attack.kind == "repeat":
        index = int(attack.moves[0])
        ends = index + int(attack.moves[1]) if len(attack.moves) > 1 else index + 1
        if ends > len(oracle) - 1:
            return None
        return [*oracle[:index], *oracle[index:ends] * times, *oracle[ends:]]
    if attack.kind == "insert":
        index = int(attack.moves[0])
        if not -len(oracle) <= index < len(oracle):
            return None
        return [*oracle[:index], *list(attack.moves[1:]) * times, *oracle[index:]]
    return [*list(attack.moves) * times, *oracle]


@dataclass(frozen=True, slots=True)
class Finding:
    """A proved attack: confirmed on tasks on which it was not found."""

    family: str
    rule: str
    attack: Attack
    tasks: int
    value: float
    low: float
    floor: float
    example: tuple[str, ...] = ()
    task: tuple[int, int] = (0, 0)
    """Level and seed of the example."""

    def data(self) -> dict[str, Any]:
        """The finding as JSON."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """The finding of its JSON."""
        given = {**data, "attack": Attack.read(data["attack"]), "example": tuple(data["example"])}
        return cls(**{**given, "task": tuple(data["task"])})


RULES = {
    "blind": "reward without information: actions that do not depend on the task succeed",
    "reward": "reward without success: actions that solve nothing earn as much as the oracle's",
    "spoiled": "a wrong answer is paid: the right one was changed so that it must be wrong",
    "more": "more than the oracle: repeating or padding earns more and more",
    "left over": "state is left over: an earlier episode in the same object makes this one succeed",
    "given away": "the answer is given away: a fixed mark in the prompt leads to it",
    "executed": "the action is executed where it is graded",
    "graders": "two graders disagree: success where the environment's own second check gives less",
}
REMEDIES = {
    "blind": "Compare with the task's own answer, and draw tasks so that no answer is common.",
    "reward": "Pay for success, and for the rest only with it, or as a potential that adds up to nothing.",
    "spoiled": "Parse one answer, refuse several, and compare it whole.",
    "more": "Pay each part once in an episode.",
    "left over": "Set everything that grades in reset().",
    "given away": "Keep what grades out of what the policy reads.",
    "executed": "Never evaluate an action; run programs in a sandbox and judge outside it.",
    "graders": "Make the exact check the one that pays.",
}
KIND_RULES = {
    **dict.fromkeys(("say", "cycle", "random", "copy", "ask", "code", "shell", "level", "rule"), "blind"),
    **dict.fromkeys(("spoil", "whole", "crowd", "step"), "spoiled"),
    **dict.fromkeys(("repeat", "pad", "stall", "insert"), "more"),
    **dict.fromkeys(("after", "abandoned", "again"), "left over"),
}
Z = 3.0
"""One-sided 99.9 %: some tens of attacks are confirmed in a family."""
MARGIN = 0.05
ENOUGH_REWARD = 0.5
"""Share of the oracle's reward that nothing but skill should earn."""
LEAST = 3
MOST_LUCK = 0.5
"""Success that the luckiest of many thousand sequences may have, where a list of tries is a fair way to play."""
FEW_LEVEL = 0.3
"""A level has few fresh tasks: on each of them its constant answer must be right."""


def low_bound(values: Sequence[float]) -> float:
    """Wilson's lower bound of the mean."""
    size = len(values)
    mean = sum(values) / size
    spread = Z * math.sqrt(max(mean * (1 - mean), 0) / size + Z**2 / (4 * size**2))
    return max(0.0, (mean + Z**2 / (2 * size) - spread) / (1 + Z**2 / size))


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The worths under one rule: a proof, if there are enough of them and the lower bound is above the floor."""

    rule: str
    values: list[float]
    low: float
    floor: float
    enough: bool

    @property
    def is_proof(self) -> bool:
        return self.enough and self.low > self.floor


def verdict(attack: Attack, family: Family, worths: Sequence[tuple[Sample, Worth]]) -> Finding | None:
    """The finding that these tasks prove, if they do."""
    if not worths:
        return None
    is_blind = KIND_RULES[attack.kind] == "blind"
    # Where each task is the same, a sequence that solves it is play and no attack.
    is_play = is_blind and attack.guess and family.is_fixed
    evidence = _by_success(attack, family, worths)
    if is_play or (is_blind and not evidence.is_proof):
        evidence = _by_reward(family, worths, is_play=is_play)
    if not evidence.is_proof:
        return None
    sample, worth = max(worths, key=lambda each: (each[1].value, each[1].share))
    example = tuple(each[:2000] for each in worth.actions[:LONGEST])
    values = evidence.values
    return Finding(
        family.name,
        evidence.rule,
        attack,
        len(values),
        round(sum(values) / len(values), 3),
        round(evidence.low, 3),
        round(evidence.floor, 3),
        example,
        (sample.task.level, sample.task.seed),
    )


def _by_success(attack: Attack, family: Family, worths: Sequence[tuple[Sample, Worth]]) -> _Evidence:
    """Success more often than by guessing."""
    values = [min(worth.value, 1.0) for _, worth in worths]
    rule = KIND_RULES[attack.kind]
    floor = family.floor + MARGIN if rule == "blind" else MARGIN
    if attack.kind == "rule" or (attack.kind in ("copy", "ask") and attack.moves[-1].startswith(PLAIN_SIGHT)):
        rule = "given away"
    is_long = any(len(each.oracle) > 1 for each in family.solved)
    if attack.guess and is_long and len(attack.moves) > 1 and attack.kind in ("say", "cycle"):
        floor = max(floor, MOST_LUCK)
    if attack.kind == "level":
        floor = max(floor, FEW_LEVEL)
    least = 1 if family.is_few else LEAST
    enough = len(values) >= least and sum(value >= 0.5 for value in values) >= least
    low = min(values) if family.is_few else low_bound(values)
    return _Evidence(rule, values, low, floor, enough)


def _by_reward(family: Family, worths: Sequence[tuple[Sample, Worth]], *, is_play: bool) -> _Evidence:
    """A share of the oracle's reward, without its success."""
    values = [min(max(worth.share, 0.0), 1.0 + is_play) for _, worth in worths]
    low = min(values) if family.is_few else sum(values) / len(values) - Z * _error(values)
    if not is_play:
        floor = max(ENOUGH_REWARD, family.floor + MARGIN)
        return _Evidence("reward", values, low, floor, family.solved != () and len(values) >= LEAST)
    # More than for a solution, by a few actions again and again.
    floor = 1.0 if family.solved else ENOUGH_REWARD
    loops = all(worth.value < 0.5 and worth.is_loop for _, worth in worths)
    return _Evidence("reward", values, low, floor, loops and len(values) >= LEAST)


def _error(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1) / len(values))
