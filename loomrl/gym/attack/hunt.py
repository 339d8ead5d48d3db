"""The search for attacks on one family of tasks: screen many on few tasks, confirm the best on fresh ones, shorten."""

import itertools
import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from loomrl.gym.attack.arena import Arena, Bout, Clock, Sample, random_actor, tasks_of
from loomrl.gym.attack.attempt import KIND_RULES, PAID, Attack, Family, Finding, Worth, measure, verdict
from loomrl.gym.attack.program import PROGRAMS, SHELLS, call_of
from loomrl.gym.attack.search import Search
from loomrl.gym.attack.shape import SPOILS, WHOLE, copies, marks
from loomrl.gym.attack.source import Source, read_source
from loomrl.gym.attack.stand_in import StandIn, find_stand_in
from loomrl.gym.attack.words import MARK, QUESTIONS, constants, execution_payloads
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.check.probe import CheckProbe, EnvironmentCheck
from loomrl.named import named
from loomrl.types import Task

Tell = Callable[[str], None]
Open = Callable[[Mapping[str, Any]], BaseEnvironment]
SCREENS = (6, 18)
"""Tasks on which an attack is tried before it is confirmed."""
CONFIRM = 60
FINALISTS = 24
SLOW_S = 0.5
"""From this length of an oracle's episode on, few tasks must do."""
VERY_SLOW_S = 5.0
LEVEL_SEEDS = 2_000_000
STAGES = ("spoil", "more", "blind", "execute", "search", "learn")


class Hunt:
    """Attacks of all stages on a family, within its time."""

    def __init__(self, family: Family, fresh: "Fresh", source: Source, clock: Clock, tell: Tell) -> None:
        self.family = family
        self.source = source
        self.clock = clock
        self.tell = tell
        self._fresh = fresh
        self.skip: frozenset[str] = frozenset()
        self.tried = 0
        self.is_cut = False
        """True if candidates were left when the time was over."""

    @property
    def is_slow(self) -> bool:
        """True if an episode takes so long that few must do."""
        return self.family.seconds > SLOW_S

    async def run(self, stage: str, learner: str) -> list[Finding]:
        """The stage's findings."""
        if stage == "learn":
            return await self._learn(learner) if learner else []
        if stage == "execute":
            return await self.execute()
        if stage == "search":
            return await self._search()
        biased = await self._levels() if stage == "blind" else []
        return await self.judge(itertools.chain(biased, self._candidates(stage)))

    async def _search(self) -> list[Finding]:
        if self.is_slow or self.longest < 2:
            return []
        search = Search(self.family, self.source, self.clock, self.tell)
        attacks = await search.run()
        self.tried += search.tried
        return await self.judge(attacks)

    def _candidates(self, stage: str) -> Iterator[Attack]:
        match stage:
            case "spoil":
                yield from (Attack("spoil", (name,)) for name in SPOILS)
                yield from (Attack("whole", (name,)) for name in WHOLE)
                yield Attack("crowd")
            case "more":
                yield from self._more()
            case "blind":
                yield from self._blind()

    async def _levels(self) -> list[Attack]:
        """For each level, an answer that is right for nearly all of its tasks."""
        arena = self.family.arena
        environment = arena.open()
        levels = environment.levels(self.family.name)
        drawn = environment.count(self.family.name, levels[0], held_out=False) is None
        if not drawn or len(levels) < 2 or self.is_slow or self.family.variety < 2:
            return []
        found = []
        for level in levels:
            tasks = [environment.task(self.family.name, level, LEVEL_SEEDS + number) for number in range(16)]
            said = [(await arena.sample(task)).oracle[-1:] for task in tasks if self.clock.left_s > 0]
            common = max(said, key=said.count, default=())
            if common and said.count(common) >= 0.8 * len(tasks):
                found.append(Attack("level", (common[0], str(level)), guess=True))
        return found

    def _rules(self) -> Iterator[Attack]:
        """Answers by a number of the prompt that should say nothing, such as the task's own."""
        solved = self.family.solved
        lengths = len({len(sample.prompt) for sample in solved})
        for name, _ in marks(solved[0].prompt) if solved else ():
            said: dict[int, list[str]] = {}
            if "length" in name and lengths < 8:
                continue
            for sample in solved:
                said.setdefault(dict(marks(sample.prompt)).get(name, -1), []).append(sample.oracle[-1])
            table = {value: max(answers, key=answers.count) for value, answers in said.items()}
            right = sum(sample.oracle[-1] == table[dict(marks(sample.prompt)).get(name, -1)] for sample in solved)
            if len({*table.values()}) > 1 and right >= 0.9 * len(solved) >= 2 * len(table):
                yield Attack("rule", (name, json.dumps(table)), guess=True)

    def _more(self) -> Iterator[Attack]:
        finals = list(dict.fromkeys(sample.oracle[-1] for sample in self.family.solved))
        for kind in ("after", "abandoned", "again"):
            for text in ("", "zzqx", "next", "again", "0", *self._moves()[:6], *(finals if len(finals) == 1 else ())):
                yield Attack(kind, (text,))
        yield Attack("after")
        yield Attack("abandoned")
        longest = max((len(sample.oracle) for sample in self.family.solved), default=0)
        yield from (Attack("repeat", (str(index),)) for index in range(min(longest - 1, 8)))
        core = self.family.shape.core(self.family.answers[0]) if self.family.answers else ""
        for filler in (" very", "\nTherefore, step by step:", "\nThank you!", " because", f"\n{core}", "\n1 = 1", " ."):
            yield Attack("pad", (filler,))
        for moves in (("",), ("hint",), ("help",), ("wrong",)):
            yield Attack("stall", moves)
        if self.longest > 1:
            yield from self._cycles()

    @property
    def longest(self) -> int:
        """The turns of the longest episode, of the oracle's and of random ones."""
        return max((max(len(each.moves), len(each.oracle)) for each in self.family.samples), default=0)

    def _moves(self) -> list[str]:
        """Random actions, the most frequent first."""
        said = [move for sample in self.family.samples for move in sample.moves]
        return sorted(dict.fromkeys(said), key=lambda each: (-said.count(each), each))

    def _cycles(self) -> Iterator[Attack]:
        """Sequences of the oracles' own actions, again and again."""
        said = [action for sample in self.family.solved for action in sample.oracle]
        known = sorted(dict.fromkeys(said), key=lambda each: (-said.count(each), each))[:12]
        alphabet = list(dict.fromkeys([*known, *self._moves()[:12]]))
        if not alphabet:
            return
        finals = {sample.oracle[-1] for sample in self.family.solved}
        for action in list(alphabet):
            for other in _other_numbers(action):
                yield Attack("cycle", (other,))
                yield from (Attack("say", (other, final)) for final in sorted(finals) if len(finals) == 1)
        yield from (Attack("stall", (one,)) for one in alphabet)
        rng = random.Random(1)
        yield from (Attack("stall", tuple(rng.choices(alphabet, k=2))) for _ in range(60))
        yield from (Attack("cycle", (one,), guess=True) for one in alphabet)
        yield from (Attack("cycle", (one, two), guess=True) for one in alphabet for two in alphabet if one != two)
        rng = random.Random(0)
        for _ in range(60):
            yield Attack("cycle", tuple(rng.choices(alphabet, k=rng.randint(3, 5))), guess=True)

    def _blind(self) -> Iterator[Attack]:
        if self.is_slow:
            yield from (Attack("shell", (name,)) for name in SHELLS)
        yield Attack("random", guess=True)
        yield from self._rules()
        for name in dict.fromkeys(name for sample in self.family.samples[:8] for name, _ in copies(sample.prompt)):
            yield Attack("copy", (name,), guess=True)
        if any("def " in sample.oracle[-1] for sample in self.family.solved):
            yield from (Attack("code", (name,)) for name in PROGRAMS)
        yield from (Attack("shell", (name,)) for name in SHELLS)
        answers = self.family.answers[:24]
        shape = self.family.shape
        hacks = list(dict.fromkeys(hack for sample in self.family.samples[:2] for hack in sample.hacks))
        questions = (*QUESTIONS, *self.source.literals[:40], *self._moves()[:4]) if self.longest > 1 else ()
        for question in questions:
            for name in ("after a label, 1", "a word after a label, 1", "a word after a label, 2", "a comment"):
                yield Attack("ask", (question, name), guess=True)
        for separator in (", ", "\n", " "):
            every = separator.join(map(shape.core, self.family.answers))
            yield Attack("say", (shape.wrap(every),), guess=True)
        literals = (*hacks, *self.source.literals[:160])
        for text in _flagged(answers[:1], literals[:80]):
            yield Attack("say", (text,), guess=True)
        for text, is_guess in constants(shape, answers, literals, self.source.names[:60]):
            yield Attack("say", (text,), guess=is_guess)
        longest = max((len(sample.oracle) for sample in self.family.solved), default=0)
        finals = {sample.oracle[-1] for sample in self.family.solved}
        if longest > 1 and len(finals) == 1:
            yield Attack("say", (*finals,))
        if self.family.answers:
            # An environment that lets a policy answer again and again pays for a list of guesses.
            yield Attack("say", self.family.answers[:50], guess=True)
            yield Attack("say", tuple(map(self.family.shape.wrap, map(str, range(50)))), guess=True)

    async def judge(self, candidates: Iterable[Attack]) -> list[Finding]:
        """The candidates that are proved on fresh tasks, shortened; at most three of a rule."""
        best: list[tuple[float, int, int, Attack]] = []
        screens = (1, 1) if self.is_slow or self.family.variety == 1 else SCREENS
        seen: set[tuple[str, tuple[str, ...]]] = set()
        for number, attack in enumerate(candidates):
            key = (attack.kind, attack.moves)
            if key in seen or self._key(attack) in self.skip:
                continue
            seen.add(key)
            if self.clock.left_s <= 0:
                self.is_cut = True
                break
            self.tried += 1
            promise = await self._screen(attack, screens)
            if promise > 0:
                best.append((-promise, attack.size, number, attack))
        found: list[Finding] = []
        for _, _, _, attack in sorted(best, key=lambda each: each[:3])[:FINALISTS]:
            if sum(finding.rule == KIND_RULES[attack.kind] for finding in found) >= 3:
                continue
            finding = await self.confirm(attack)
            if finding is not None:
                short = await self._shorten(finding)
                if short.attack not in [each.attack for each in found]:
                    found.append(short)
        return found

    def _key(self, attack: Attack) -> str:
        return json.dumps([self.family.name, attack.kind, *[move[:200] for move in attack.moves]])

    async def _screen(self, attack: Attack, screens: Sequence[int]) -> float:
        """The mean worth on the first tasks; 0 if it is clearly below what counts."""
        self.tell(self._key(attack))
        worths: list[Worth] = []
        asked = 0
        samples = self.family.samples
        rule = KIND_RULES[attack.kind]
        wanted = min(self.family.floor, 0.9) if rule == "blind" else 0.0
        for screen in screens:
            while len(worths) < screen and asked < len(samples) and (asked < 3 * screen):
                worth = await measure(attack, self.family, samples[asked])
                asked += 1
                if worth is not None:
                    worths.append(worth)
                if worth is not None and worth.failed and len(worths) < 3:
                    return 0.0
            if not worths:
                return 0.0
            value = sum(worth.value for worth in worths) / len(worths)
            share = sum(worth.share for worth in worths) / len(worths) if rule == "blind" else 0.0
            if value <= wanted * (0.5 if screen == screens[0] else 1.0) and share < 0.5:
                return 0.0
        return max(value, share if share >= 0.5 else 0.0)

    async def confirm(self, attack: Attack) -> Finding | None:
        """The finding, if fresh tasks prove it."""
        self.tell(self._key(attack))
        count = 3 if self.is_slow else CONFIRM
        worths: list[tuple[Sample, Worth]] = []
        for number in range(min(count, len(self._fresh))):
            sample = await self._fresh.at(number)
            worth = await measure(attack, self.family, sample)
            if worth is not None:
                worths.append((sample, worth))
            if number == 11 and not any(worth.value > 0 or worth.share > 0.3 for _, worth in worths):
                return None
        return verdict(attack, self.family, worths)

    async def _shorten(self, finding: Finding) -> Finding:
        """The finding with a shorter text, where that is paid as well."""
        attack = finding.attack
        if attack.kind not in ("say", "cycle") or self.is_slow:
            return finding
        samples = self.family.samples[:8]
        goal = 0.9 * finding.value

        async def works(moves: tuple[str, ...]) -> bool:
            worths = [await measure(replace(attack, moves=moves), self.family, sample) for sample in samples]
            values = [worth.share if finding.rule == "reward" else worth.value for worth in worths if worth is not None]
            return bool(values) and sum(values) / len(values) >= goal

        moves = attack.moves
        tries = 60
        progress = True
        while progress and tries > 0 and self.clock.left_s > 0:
            progress = False
            for shorter in _shorter(moves):
                tries -= 1
                if tries <= 0 or self.clock.left_s <= 0:
                    break
                if await works(shorter):
                    moves = shorter
                    progress = True
                    break
        if moves == attack.moves:
            return finding
        return await self.confirm(replace(attack, moves=moves)) or finding

    async def execute(self) -> list[Finding]:
        """Payloads that leave a mark where they are executed."""
        found = []
        for payload in execution_payloads():
            for text in dict.fromkeys((payload, self.family.shape.wrap(payload))):
                attack = Attack("say", (text,))
                if self._key(attack) in self.skip:
                    continue
                for sample in self.family.samples[:2]:
                    self.tell(self._key(attack))
                    os.environ.pop(MARK, None)
                    await self.family.arena.say(sample.task, (text,), again=False)
                    if os.environ.pop(MARK, None) is None:
                        break
                else:
                    place = (sample.task.level, sample.task.seed)
                    found.append(Finding(self.family.name, "executed", attack, 2, 1.0, 1.0, 0.0, (text,), place))
                    return found
        return found

    async def _learn(self, learner: str) -> list[Finding]:
        """Findings of a policy that is trained for reward on the words of this family."""
        attacks = await named(learner, what="learner")(self)
        return await self.judge(attacks)

    def graders(self) -> list[Finding]:
        """Episodes so far that the environment's own second check disagreed about."""
        seen = self.family.arena.disagreements
        if not seen:
            return []
        task, bout = min(seen, key=lambda each: sum(map(len, each[1].actions)))
        attack = Attack("graders", bout.actions)
        place = (task.level, task.seed)
        size = len(seen)
        return [
            Finding(
                task.family,
                "graders",
                attack,
                size,
                bout.success,
                bout.success,
                bout.correct or 0.0,
                bout.actions,
                place,
            )
        ]


def _flagged(answers: Sequence[str], literals: Sequence[str]) -> Iterator[str]:
    """Another task's JSON with one more key of the source, or with that key set."""
    for answer in answers:
        with suppress(ValueError, RecursionError):
            data = json.loads(answer)
            for literal in literals if isinstance(data, dict) else ():
                yield from (json.dumps({**data, literal: value}) for value in (True, 1, "*"))


def _shorter(moves: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Sequences with one move less, then texts with a part left out."""
    if len(moves) > 1:
        half = len(moves) // 2
        yield from (moves[:half], moves[half:])
        if len(moves) <= 12:
            yield from (moves[:index] + moves[index + 1 :] for index in range(len(moves)))
    for index, move in enumerate(moves):
        words = move.split(" ")
        pieces = (
            [" ".join(part) for part in (words[: len(words) // 2], words[len(words) // 2 :])] if len(words) > 1 else []
        )
        if len(move) > 1:
            pieces += [move[: len(move) // 2], move[len(move) // 2 :], move[1:], move[:-1]]
        for piece in dict.fromkeys(each for each in pieces if len(each) < len(move)):
            yield (*moves[:index], piece, *moves[index + 1 :])


_DIGITS = re.compile(r"-?\d+(\.\d+)?")


def _other_numbers(action: str) -> list[str]:
    """The action with its first number negative, zero, huge, or none."""
    if len(action) > 300 or not _DIGITS.search(action):
        return []
    return [_DIGITS.sub(other, action, count=1) for other in ("-1", "-100", "0", "1000000", "nan", "0.5")]


class Fresh:
    """Tasks to confirm on; the oracle plays each when it is first asked for."""

    def __init__(self, arena: Arena, tasks: Sequence[Task], substitute: StandIn | None) -> None:
        self._arena = arena
        self._tasks = tasks
        self._substitute = substitute
        self._played: list[Sample] = []

    def __len__(self) -> int:
        return len(self._tasks)

    async def at(self, index: int) -> Sample:
        """The task with this number."""
        while len(self._played) <= index:
            sample = await self._arena.sample(self._tasks[len(self._played)])
            self._played.append(await self._substitute.play(self._arena, sample) if self._substitute else sample)
        return self._played[index]


_OPENED: dict[str, tuple[Family, Fresh, Source]] = {}


async def open_family(
    kind: Open,
    settings: Mapping[str, Any],
    name: str,
    clock: Clock,
    tell: Tell,
) -> tuple[Family, Fresh, Source]:
    """A family with its oracles' episodes, once per process."""
    if name in _OPENED:
        return _OPENED[name]
    tell(f"the oracle of {name}")
    arena = Arena(kind, settings)
    environment = arena.open()
    first = tasks_of(environment, name, 1, fresh=False)[0]
    seconds = math.inf
    for _ in range(2):  # the first time includes imports and loading
        began = time.monotonic()
        await arena.sample(first)
        seconds = min(seconds, time.monotonic() - began)
    count = 24 if seconds <= SLOW_S else 2 if seconds < VERY_SLOW_S else 1
    samples = []
    for task in tasks_of(environment, name, count, fresh=False):
        tell(f"the oracle of {name}, seed {task.seed}")
        samples.append(await arena.sample(task))
        if clock.left_s <= 0:
            break
    substitute = None
    if not any(sample.oracle and sample.success >= PAID for sample in samples):
        tell(f"a stand-in for the oracle of {name}")
        substitute = await find_stand_in(arena, samples)
        samples = [await substitute.play(arena, each) for each in samples] if substitute else samples
    fresh = Fresh(arena, tasks_of(environment, name, 3 if seconds > SLOW_S else CONFIRM, fresh=True), substitute)
    ceilings = [environment.ceilings.get(each, 0.0) for each in ("random", "constant", "hacking")]
    declared = max(environment.guess_floor.get(name, 0.0), *ceilings)
    family = Family(arena, name, tuple(samples), declared, 0.0, seconds)
    totals = []
    moves = []
    for sample in samples[: 12 if seconds <= SLOW_S else 1]:
        tell(f"random actions in {name}, seed {sample.task.seed}")
        rng = random.Random(sample.task.seed)
        bout = await arena.bout(sample.task, random_actor(rng))
        totals.append(bout.total)
        moves.append(bout.actions)
    played = [replace(each, moves=said) for each, said in zip(samples, moves, strict=False)]
    family = replace(
        family, samples=(*played, *samples[len(played) :]), random_total=sum(totals) / len(totals) if totals else 0.0
    )
    runs_programs = any("def " in each.oracle[-1] or call_of(each) for each in family.solved)
    arena.turn_s = 30.0 if runs_programs else 3.0
    _OPENED[name] = (family, fresh, read_source(environment))
    return _OPENED[name]


async def hunt(
    kind: Open,
    settings: Mapping[str, Any],
    request: Mapping[str, Any],
    tell: Tell,
) -> dict[str, Any]:
    """The findings of one job of the parent process, as JSON."""
    clock = Clock(float(request["seconds"]))
    family, fresh, source = await open_family(kind, settings, request["family"], clock, tell)
    before = family.arena.bouts
    work = Hunt(family, fresh, source, clock, tell)
    work.skip = frozenset(request["skip"])
    found = await work.run(request["stage"], request["learner"])
    found += work.graders()
    return {
        "findings": [finding.data() for finding in found],
        "bouts": family.arena.bouts - before,
        "tried": work.tried,
        "cut": work.is_cut,
        "oracle": bool(family.solved),
    }


async def replay(probe: CheckProbe, data: Mapping[str, Any]) -> EnvironmentCheck:
    """The check that a kept finding is no longer proved."""
    finding = Finding.read(data)
    if finding.family not in probe.families:
        return EnvironmentCheck("attacks", True, f"{finding.family!r} is no longer a family")
    clock = Clock(math.inf)
    family, fresh, source = await open_family(probe.kind, probe.settings, finding.family, clock, probe.tell)
    work = Hunt(family, fresh, source, clock, probe.tell)
    again: Finding | None
    if finding.rule == "graders":
        again = await _replay_graders(family, finding)
    elif finding.rule == "executed":
        again = next(iter(await work.execute()), None)
    else:
        again = await work.confirm(finding.attack)
    if again is None:
        return EnvironmentCheck("attacks", True, "no longer paid")
    moves = ", ".join(repr(move)[:60] for move in finding.attack.moves[:3])
    detail = f"{finding.family}: {finding.rule}, {finding.attack.kind} {moves} is paid {again.value:.2f}"
    return EnvironmentCheck("attacks", False, detail)


async def _replay_graders(family: Family, finding: Finding) -> Finding | None:
    level, seed = finding.task
    task = family.arena.open().task(finding.family, level, seed)
    bout: Bout = await family.arena.say(task, finding.attack.moves, again=False)
    still = bout.correct is not None and bout.success > bout.correct + 0.01
    return finding if still else None
