"""The search for sequences of commands: a beam over those that change something, and changes to the oracle's episodes.

A sequence counts by success and reward, and is kept in the beam as well where the environment says something new.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from loomrl.gym.attack.arena import Clock, Sample
from loomrl.gym.attack.attempt import Attack, Family
from loomrl.gym.attack.commands import NUMBERS, WORDS, commands, mutants
from loomrl.gym.attack.source import Source

DEPTH = 6
WIDTH = 24
LIVE = 40
"""Commands that do something at once, of which sequences are made."""
LATE = 40
"""Further commands of the oracle and of the source that may do something later."""
SAME_REPLY = 4
ENDS = 5
"""Commands that end an episode, tried behind each other one."""
READINGS = ("the last number", "the first number", "the last word", "the last line", "the last quoted text")
"""Places where the reply to a command that no text names may give the answer away."""
IDLE = 20_000
"""Random sequences in a row without news, after which the search ends."""
KEPT = 48


@dataclass(frozen=True, slots=True)
class Trial:
    """A sequence that was played on one task."""

    moves: tuple[str, ...]
    value: float
    share: float
    ended: bool
    news: tuple[str, float]
    """Its last reply without what differs by chance, and its reward so far."""


class Search:
    """The sequences of an environment that is played in turns."""

    def __init__(self, family: Family, source: Source, clock: Clock, tell: Callable[[str], None]) -> None:
        self.family = family
        self.source = source
        self.clock = clock
        self.tell = tell
        self.tried = 0
        self.until_s = 0.35 * clock.left_s
        self.live: list[str] = []
        self._texts: list[str] = []
        self._ends: dict[str, None] = {}
        self._seen: set[tuple[str, float]] = set()
        self._best: dict[tuple[str, ...], float] = {}

    @property
    def has_time(self) -> bool:
        """False where the rest is needed to confirm."""
        return self.clock.left_s > self.until_s

    async def run(self) -> list[Attack]:
        """The sequences to judge, the best first."""
        await self._find_live()
        changes = list(self._changes())
        await self._beam()
        await self._mutate()
        await self._wander()
        best = sorted(self._best, key=lambda each: (-self._best[each], len(each)))[:KEPT]
        return [*(Attack("say", each, guess=self._may_be_right(each)) for each in best), *changes]

    def _may_be_right(self, moves: Sequence[str]) -> bool:
        """False for commands that the oracle does not know, where it needs far more of them."""
        known = {action for each in self.family.solved for action in each.oracle}
        least = min((len(each.oracle) for each in self.family.solved), default=0)
        return not (3 * len(moves) <= least and known.isdisjoint(moves))

    async def _try(self, moves: tuple[str, ...], sample: Sample) -> Trial:
        self.tell(f"a sequence: {moves!r:.200}")
        self.tried += 1
        replies: list[str] = []

        def act(turn: int, _: object) -> str | None:
            return moves[turn] if turn < len(moves) else None

        bout = await self.family.arena.bout(sample.task, act, replies=replies)
        reply = (replies[-1] if replies else bout.failure).replace(moves[-1], "")
        news = re.sub(r"\d+", "#", reply)[-300:]
        share = self.family.share(bout.total)
        value = bout.success if bout.ended else 0.0
        return Trial(moves, value, share, bout.ended or bool(bout.failure), (news, round(bout.total, 3)))

    async def _weigh(self, trial: Trial) -> float:
        """The mean worth on some tasks, kept if it is worth a judgement."""
        worth = max(trial.value, trial.share)
        if worth < 0.3 or trial.moves in self._best:
            return worth
        others = [await self._try(trial.moves, sample) for sample in self.family.samples[1:4]]
        worth = sum(max(each.value, each.share) for each in (trial, *others)) / (1 + len(others))
        if worth >= 0.2:
            self._best[trial.moves] = worth
        return worth

    async def _find_live(self) -> None:
        """The commands that the environment answers in another way than nonsense, a few for each reply."""
        first = self.family.samples[0]
        texts = self._texts = [each.prompt for each in self.family.samples[:4]]
        for question in ("help", "?", "/help", "commands", ""):
            replies: list[str] = []
            actor = partial(_only, question)
            await self.family.arena.bout(first.task, actor, replies=replies)
            texts += replies[:1]
        refused = {(await self._try((text,), first)).news for text in ("zzqx", "zzqx 1", "zzqx zzqx zzqx")}
        said: dict[tuple[str, float], list[Trial]] = {}
        said_there = [move for each in self.family.samples[:8] for move in (*each.oracle[:8], *each.moves[:8])]
        literals = [each for each in self.source.literals if re.fullmatch(r"/?[\w-]{2,40}", each)][:60]
        known = {*said_there, *literals}
        dead: list[str] = []
        ends = self._ends = dict.fromkeys(each.oracle[-1] for each in self.family.solved[:2])
        every = commands(self.family, self.source, texts)
        for command in every:
            if not self.has_time:
                break
            trial = await self._try((command,), first)
            await self._weigh(trial)
            if trial.ended and not trial.news[1]:
                ends[command] = None
            if trial.news not in refused:
                said.setdefault(trial.news, []).append(trial)
            elif command in known:
                dead.append(command)
        self._seen = {*said, *refused}
        # What a command has done may show only when the episode is ended.
        for end in list(ends)[:ENDS]:
            for command in every:
                if self.has_time:
                    await self._weigh(await self._try((command, end), first))
        trials = [trial for same in said.values() for trial in same[:SAME_REPLY]]
        trials.sort(key=lambda each: -max(each.value, each.share))
        literal = [each for each in dead if each in literals]
        late = [*[each for each in dead if each not in literals][: LATE // 2], *literal[: LATE // 2]]
        self.live = [*(trial.moves[0] for trial in trials[:LIVE]), *late]

    async def _beam(self) -> None:
        """Sequences of two and more commands."""
        rng = random.Random(0)
        beam: list[tuple[str, ...]] = [(command,) for command in self.live]
        for _ in range(2, DEPTH + 1):
            ranked: list[tuple[float, bool, float, tuple[str, ...]]] = []
            for prefix in beam:
                for command in self.live:
                    if not self.has_time:
                        return
                    trial = await self._try((*prefix, command), self.family.samples[0])
                    worth = await self._weigh(trial)
                    if not trial.ended:
                        # What was said before may hide another state: it comes last.
                        ranked.append((-worth, trial.news in self._seen, rng.random(), trial.moves))
                        self._seen.add(trial.news)
            beam = [moves for *_, moves in sorted(ranked)[:WIDTH]]
            if not beam:
                return

    async def _mutate(self) -> None:
        """Changed episodes of the oracle, where a second check says whether their success is right."""
        solved = self.family.solved
        if not solved:
            return
        first = await self.family.arena.say(solved[0].task, solved[0].oracle, again=False)
        if first.correct is None:
            return
        rng = random.Random(0)
        until_s = 0.6 * self.clock.left_s
        for number in range(4000):
            if self.clock.left_s <= until_s or self.family.arena.disagreements:
                return
            sample = solved[number % len(solved)]
            moves = _mutated(list(sample.oracle), self.live, rng)
            self.tell(f"a changed episode: {moves!r:.200}")
            self.tried += 1
            await self.family.arena.say(sample.task, moves)

    async def _wander(self) -> None:
        """Random sequences until the time is over, or until nothing is new any more."""
        rng = random.Random(0)
        idle = 0
        while self.has_time and idle < IDLE and self.live:
            moves = tuple(rng.choices(self.live, k=rng.randint(2, 6)))
            if self._ends and rng.random() < 0.7:
                moves = (*moves, rng.choice(list(self._ends)[:ENDS]))
            trial = await self._try(moves, self.family.samples[0])
            known = len(self._best)
            await self._weigh(trial)
            idle = 0 if len(self._best) > known else idle + 1

    def _changes(self) -> Iterator[Attack]:
        """Commands that are put into the oracle's episode, and steps of it that are changed."""
        longest = max((len(each.oracle) for each in self.family.solved), default=0)
        if longest < 1:
            return
        for index in range(min(longest, 6)):
            yield from (Attack("step", (str(index), "number", each)) for each in NUMBERS)
            yield from (Attack("step", (str(index), "word", each)) for each in WORDS)
            yield from (Attack("repeat", (str(index), str(length))) for length in (2, 3, 4))
        for command in self.live:
            yield from (Attack("insert", (where, command)) for where in ("-1", "1", "2", "0"))
        known = [move for each in self.family.samples for move in (*each.oracle, *each.moves)]
        told = " ".join([*self._texts, *known]).lower()
        for command in self.live:
            if command.split() and command.split()[0].lower() not in told:
                yield from (Attack("ask", (command, name), guess=True) for name in READINGS)
        rng = random.Random(2)
        for _ in range(120 if self.live else 0):
            pair = tuple(rng.choices(self.live, k=rng.randint(2, 3)))
            yield Attack("insert", (rng.choice(("-1", "1", "2")), *pair))


def _only(action: str, turn: int, _: object) -> str | None:
    return action if turn < 1 else None


def _mutated(moves: list[str], live: Sequence[str], rng: random.Random) -> list[str]:
    """The episode with one or two random changes."""
    for _ in range(rng.randint(1, 2)):
        index = rng.randrange(len(moves))
        choice = rng.randrange(6)
        if choice == 0 and len(moves) > 1:
            del moves[index]
        elif choice == 1:
            moves.insert(index, moves[index])
        elif choice == 2 and len(moves) > 1:
            other = rng.randrange(len(moves))
            moves[index], moves[other] = moves[other], moves[index]
        elif choice == 3 and live:
            moves.insert(index, rng.choice(live))
        elif choice == 4 and live:
            moves[index] = rng.choice(live)
        else:
            changes = list(mutants(moves[index]))
            moves[index] = rng.choice(changes) if changes else moves[index]
    return moves
