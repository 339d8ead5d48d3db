"""Attempts that runners play while something else goes on: whoever is slow or dies delays only its own.

Every runner with something to play is visited now and then, for what it has finished and with what comes next. A runner
says which life of its actor answers. Another life than last time has lost what it had to play, and knows what the one
before was doing when it ended: an attempt that hung it has failed, all others are played again.
"""

import heapq
import time
import traceback
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from algorithms.language.crew import LOST, NOBODY, Crew
from loomrl.errors import PolicyError
from loomrl.gym.episode import failed_trajectory, hang
from loomrl.gym.host import RETRIES, Plan
from loomrl.gym.watch import Autopsy
from loomrl.types import Failure, Trajectory

SHORTEST_S, LONGEST_S = 0.02, 2.0
"""Between two visits to a runner …"""
VISITS_PER_S = 128
"""… so that there are about so many in a second, however many runners there are."""
AGAIN_S = 0.2
"""Until a runner that could not be reached is tried again."""


_UNKNOWN = Autopsy()


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a runner says. `error` is what went wrong outside of any attempt."""

    life: str = ""
    admitted: int | None = None
    autopsy: Autopsy = _UNKNOWN
    finished: Sequence[Trajectory] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Visit:
    """Our message to the life of a runner that we know; none of it is for any other."""

    life: str
    plans: Sequence[Plan]

    def __call__(self, runner: Any) -> _Answer:
        try:
            finished: Sequence[Trajectory] = ()
            if runner.life == self.life and runner.admitted is not None:
                finished = runner.playing.exchange(self.plans)
            return _Answer(runner.life, runner.admitted, runner.autopsy, finished)
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
    life: str = ""
    """The one that has the plans; empty where none is known to be ready."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """What it has to play, by attempt."""
    mail: list[Plan] = field(default_factory=list)
    asked_at: float = 0.0
    """When the message was sent that is on its way; 0 without one."""
    silent_since: float = 0.0
    """When the first message was sent that has no answer yet, not even an error's; 0 where all have."""
    not_before: float = 0.0
    """When it is visited again, unless there is mail."""


class Underway:
    """What the runners of a crew are playing."""

    def __init__(self, crew: Crew, *, turn_timeout_s: float) -> None:
        self._crew = crew
        self._turn_timeout_s = turn_timeout_s
        self._desks = {id: _Desk(id) for id in crew.actors}
        self._wait_s = min(max(len(self._desks) / VISITS_PER_S, SHORTEST_S), LONGEST_S)
        self._messages: dict[Any, _Desk] = {}
        """References to answers, and who owes them."""
        self._silent = dict(self._desks)
        """Those with no message on its way that may need one."""
        self._where: dict[str, _Desk] = {}
        """Who plays an attempt."""
        self._waiting: deque[Plan] = deque()
        self._deaths: Counter[str] = Counter()
        self._found: list[Trajectory] = []

    def start(self, plans: Sequence[Plan]) -> None:
        """Have them played."""
        self._waiting.extend(plans)

    def drop(self, ids: Collection[str]) -> None:
        """Give these attempts up: nothing more is heard of them."""
        gone = set(ids)
        self._waiting = deque(plan for plan in self._waiting if plan.attempt.id not in gone)
        desks: dict[int, list[str]] = {}
        for id in gone & self._where.keys():
            desk = self._where.pop(id)
            del desk.plans[id]
            desk.mail = [plan for plan in desk.mail if plan.attempt.id != id]
            desks.setdefault(desk.id, []).append(id)
        for runner, theirs in desks.items():
            self._crew.actors[runner].apply.remote(_Drop(theirs))

    def finished(self) -> list[Trajectory]:
        """What has finished since it was asked last, after a short wait for something if nothing has."""
        self._deal()
        self._write()
        references = list(self._messages)
        if references:
            ray.wait(references, num_returns=1, timeout=self._wait_s)
            ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
            for reference in ready:
                self._read(reference)
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
        together = len(groups) >= len(ready)
        self._waiting.clear()
        loads = [(len(desk.plans), desk.id) for desk in ready]
        heapq.heapify(loads)
        for part in groups.values() if together else ([plan] for plans in groups.values() for plan in plans):
            load, id = loads[0]
            desk = self._desks[id]
            for plan in part:
                desk.plans[plan.attempt.id] = plan
                self._where[plan.attempt.id] = desk
            desk.mail += part
            self._need(desk)
            heapq.heapreplace(loads, (load + len(part), id))

    def _need(self, desk: _Desk) -> None:
        if not desk.asked_at:
            self._silent[desk.id] = desk

    def _write(self) -> None:
        """To everyone who has something to play, or of whom nothing is known."""
        now, later = time.monotonic(), {}
        for desk in self._silent.values():
            if desk.life and not desk.plans:
                continue
            if now < desk.not_before and not desk.mail:
                later[desk.id] = desk
                continue
            visit = _Visit(desk.life, desk.mail)
            desk.mail, desk.asked_at = [], now
            desk.silent_since = desk.silent_since or now
            self._messages[self._crew.actors[desk.id].apply.remote(visit)] = desk
        self._silent = later

    # -- what comes back --------------------------------------------------------------------------------------------

    def _read(self, reference: Any) -> None:
        desk = self._messages.pop(reference)
        desk.asked_at, desk.not_before = 0.0, time.monotonic() + self._wait_s
        self._silent[desk.id] = desk
        try:
            answer: _Answer = ray.get(reference)
        except RayError:
            desk.life, desk.not_before = "", time.monotonic() + AGAIN_S
            return
        if answer.error:
            raise PolicyError(f"runner {desk.id} failed outside of any attempt:\n{answer.error}")
        desk.silent_since = 0.0
        if answer.life != desk.life:
            self._judge(desk, answer.autopsy)
        desk.life = answer.life
        if answer.admitted != self._crew.version:
            self._crew.equip(desk.id)
            desk.life = "" if answer.admitted is None else desk.life
        for trajectory in answer.finished:
            if desk.plans.pop(trajectory.id, None) is not None:
                self._where.pop(trajectory.id)
                self._found.append(trajectory)

    def _judge(self, desk: _Desk, autopsy: Autopsy) -> None:
        """What becomes of everything that a life of a runner took with it."""
        lost, desk.plans, desk.mail = desk.plans, {}, []
        for id, plan in lost.items():
            del self._where[id]
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
        for desk in self._messages.values():
            if desk.life and now - desk.asked_at > limit_s:
                self._crew.replace(desk.id)
                desk.life = ""
        if all(desk.silent_since and now - desk.silent_since > 2 * limit_s for desk in self._desks.values()):
            for desk in self._desks.values():
                self._judge(desk, _UNKNOWN)
            for plan in self._waiting:
                self._fail(plan, NOBODY)
            self._waiting.clear()
