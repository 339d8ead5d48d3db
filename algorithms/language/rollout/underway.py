"""Attempts that runners play while something else goes on: whoever is slow or dies delays only its own.

Every runner with something to play is visited now and then, for what it has finished; what comes next is sent at once.
A runner whose process has ended is buried: what it left on its node says which attempt hung it. That one has failed;
all others are played again, by whoever lives.
"""

import heapq
import time
import traceback
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from loomrl.algorithms.language.rollout.playing import Life
from loomrl.algorithms.language.rollout.runners import LOST, NOBODY, Crew
from loomrl.errors import PolicyError
from loomrl.gym.episode import failed_trajectory, hang
from loomrl.gym.host.actor import RETRIES
from loomrl.gym.host.local import Plan
from loomrl.gym.host.watch import Autopsy, examine
from loomrl.types import Failure, Trajectory

SHORTEST_S, LONGEST_S = 0.02, 2.0
"""Between two visits to a runner …"""
VISITS_PER_S = 128
"""… so that there are about so many in a second, however many runners there are."""
AGAIN_S = 0.2
"""Until a runner that could not be reached is tried again."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a runner says. `error` is what went wrong outside of any attempt."""

    life: Life | None = None
    admitted: int | None = None
    finished: Sequence[Trajectory] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Visit:
    """Our message to the life of a runner that we know; any other one forgets what it plays, and says who it is."""

    life: Life | None
    plans: Sequence[Plan]

    def __call__(self, runner: Any) -> _Answer:
        try:
            if runner.life != self.life:
                runner.playing.forget()
            elif runner.admitted is not None:
                return _Answer(runner.life, runner.admitted, runner.playing.exchange(self.plans))
            return _Answer(runner.life, runner.admitted)
        except Exception:  # noqa: BLE001 - the boundary: RLlib would end the runner
            return _Answer(error=traceback.format_exc())


@dataclass(frozen=True, slots=True)
class _Drop:
    """Gives attempts up, if they are being played there."""

    ids: Collection[str]

    def __call__(self, runner: Any) -> None:
        runner.playing.drop(self.ids)


@dataclass(slots=True)
class _Desk:
    """One runner, as seen from here."""

    id: int
    life: Life | None = None
    """The one that has the plans; None where none is known to be ready."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """What it has to play, by attempt."""
    messages: int = 0
    """On their way."""
    silent_since: float = 0.0
    """Since when an answer is missing, errors being none; 0 where none is."""
    not_before: float = 0.0
    """When it is visited again."""


class Underway:
    """What the runners of a crew are playing."""

    def __init__(self, crew: Crew, *, turn_timeout_s: float) -> None:
        self._crew = crew
        self._turn_timeout_s = turn_timeout_s
        self._desks = {id: _Desk(id) for id in crew.actors}
        self._wait_s = min(max(len(self._desks) / VISITS_PER_S, SHORTEST_S), LONGEST_S)
        self._messages: dict[Any, tuple[_Desk, Life | None]] = {}
        """References to answers, and who owes them."""
        self._quiet = dict(self._desks)
        """Those with no message on its way that may need one."""
        self._burials: dict[Any, list[Plan]] = {}
        """References to autopsies, and what the dead had to play."""
        self._where: dict[str, _Desk] = {}
        """Who plays an attempt."""
        self._waiting: deque[Plan] = deque()
        self._deaths: Counter[str] = Counter()
        self._found: list[Trajectory] = []

    def start(self, plans: Sequence[Plan]) -> None:
        """Have them played, from now on if anybody is ready."""
        self._waiting.extend(plans)
        self._deal()

    def drop(self, ids: Collection[str]) -> None:
        """Give these attempts up: nothing more is heard of them."""
        gone = set(ids)
        self._waiting = deque(plan for plan in self._waiting if plan.attempt.id not in gone)
        for lost in self._burials.values():
            lost[:] = [plan for plan in lost if plan.attempt.id not in gone]
        desks: dict[int, list[str]] = {}
        for id in gone & self._where.keys():
            desk = self._where.pop(id)
            del desk.plans[id]
            desks.setdefault(desk.id, []).append(id)
        for runner, theirs in desks.items():
            self._crew.actors[runner].apply.remote(_Drop(theirs))

    def finished(self) -> list[Trajectory]:
        """What has finished since it was asked last, after a short wait for something if nothing has."""
        self._deal()
        self._visit()
        references = [*self._messages, *self._burials]
        if references:
            ray.wait(references, num_returns=1, timeout=self._wait_s)
            for reference in ray.wait(references, num_returns=len(references), timeout=0)[0]:
                self._judge(reference) if reference in self._burials else self._read(reference)
        else:
            time.sleep(self._wait_s)
        self._look_after_the_silent()
        found, self._found = self._found, []
        return found

    # -- who plays what ---------------------------------------------------------------------------------------------

    def _deal(self) -> None:
        """Plans that wait, to whoever has least to do; siblings together where there are enough groups for all."""
        ready = [desk for desk in self._desks.values() if desk.life] if self._waiting else []
        if not ready:
            return
        groups: dict[str, list[Plan]] = {}
        for plan in self._waiting:
            groups.setdefault(plan.attempt.group, []).append(plan)
        self._waiting.clear()
        together = len(groups) >= len(ready)
        loads = [(len(desk.plans), desk.id) for desk in ready]
        heapq.heapify(loads)
        mail: dict[int, list[Plan]] = {}
        for part in groups.values() if together else ([plan] for plans in groups.values() for plan in plans):
            load, id = loads[0]
            mail.setdefault(id, []).extend(part)
            heapq.heapreplace(loads, (load + len(part), id))
        for id, plans in mail.items():
            desk = self._desks[id]
            desk.plans |= {plan.attempt.id: plan for plan in plans}
            self._where |= dict.fromkeys((plan.attempt.id for plan in plans), desk)
            self._write(desk, plans)

    def _visit(self) -> None:
        """Everyone who has something to play, or of whom nothing is known."""
        now, later = time.monotonic(), {}
        for desk in self._quiet.values():
            if now < desk.not_before:
                later[desk.id] = desk
            elif not desk.messages and (desk.plans or not desk.life):
                self._write(desk, ())
        self._quiet = later

    def _write(self, desk: _Desk, plans: Sequence[Plan]) -> None:
        desk.messages += 1
        desk.silent_since = desk.silent_since or time.monotonic()
        self._messages[self._crew.actors[desk.id].apply.remote(_Visit(desk.life, plans))] = desk, desk.life

    # -- what comes back --------------------------------------------------------------------------------------------

    def _read(self, reference: Any) -> None:
        desk, asked = self._messages.pop(reference)
        desk.messages -= 1
        desk.not_before = time.monotonic() + self._wait_s
        self._quiet[desk.id] = desk
        try:
            answer: _Answer = ray.get(reference)
        except RayError:
            if desk.life == asked:
                self._bury(desk)
            desk.not_before = time.monotonic() + AGAIN_S
            return
        if answer.error:
            raise PolicyError(f"runner {desk.id} failed outside of any attempt:\n{answer.error}")
        desk.silent_since = time.monotonic() if desk.messages else 0.0
        if answer.life != desk.life:
            self._bury(desk)
            desk.life = answer.life
        if answer.admitted != self._crew.version:
            self._crew.equip(desk.id)
            desk.life = desk.life if answer.admitted is not None else None
        for trajectory in answer.finished:
            if desk.plans.pop(trajectory.id, None) is not None:
                del self._where[trajectory.id]
                self._found.append(trajectory)

    def _bury(self, desk: _Desk) -> None:
        """Ask on its node what the life that had the plans was doing when it ended."""
        life, desk.life = desk.life, None
        lost, desk.plans = [*desk.plans.values()], {}
        for plan in lost:
            del self._where[plan.attempt.id]
        if lost and life is not None:
            there = NodeAffinitySchedulingStrategy(life.node, soft=False)
            autopsy = ray.remote(examine).options(num_cpus=0, scheduling_strategy=there)
            self._burials[autopsy.remote(Path(life.folder))] = lost
        else:
            self._waiting.extend(lost)

    def _judge(self, reference: Any) -> None:
        """What becomes of everything that a life of a runner took with it."""
        lost = self._burials.pop(reference)
        try:
            autopsy: Autopsy = ray.get(reference)
        except RayError:
            autopsy = Autopsy()
        for plan in lost:
            id = plan.attempt.id
            suspect = autopsy.running == id
            self._deaths[id] += suspect or not autopsy.running
            if suspect and autopsy.trace:
                self._fail(plan, hang(autopsy.trace, self._turn_timeout_s))
            elif self._deaths[id] > RETRIES:
                self._fail(plan, LOST)
            else:
                self._waiting.append(plan)

    def _fail(self, plan: Plan, failure: Failure) -> None:
        self._found.append(failed_trajectory(plan.attempt, failure))

    def _look_after_the_silent(self) -> None:
        """End runners that do not answer; where none of them comes back, nothing can be played."""
        now, limit_s = time.monotonic(), self._crew.timeout_s
        for desk in {desk.id: desk for desk, _ in self._messages.values()}.values():
            if desk.life and now - desk.silent_since > limit_s:
                self._crew.replace(desk.id)
                self._bury(desk)
        if all(desk.silent_since and now - desk.silent_since > 2 * limit_s for desk in self._desks.values()):
            for plan in self._waiting:
                self._fail(plan, NOBODY)
            self._waiting.clear()
