"""Attempts played by runners in the background: a slow or dead runner delays only its own.

Every runner with plans is visited at intervals for its results; new plans are sent at once. If a runner's process has
ended, the files on its node tell which attempt hung it. That attempt has failed; its others are played again elsewhere.
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

from loomrl.algorithms.language.runner import Life
from loomrl.algorithms.language.runner_group import LOST, NO_RUNNER, RunnerGroup
from loomrl.errors import PolicyError
from loomrl.gym.episode import Plan, failure_trajectory, hang
from loomrl.gym.host.actor import RETRIES
from loomrl.gym.host.watch import Autopsy, examine
from loomrl.types import Failure, Trajectory

SHORTEST_S = 0.02
LONGEST_S = 2.0
"""Interval between two visits to a runner …"""
VISITS_PER_S = 128
"""… chosen so that there are about this many visits per second in all."""
AGAIN_S = 0.2
"""Delay before an unreachable runner is tried again."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A runner's answer. `error` is an error outside of any attempt."""

    life: Life | None = None
    admitted: int | None = None
    finished: Sequence[Trajectory] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Visit:
    """A message to a known life of a runner; any other life drops its plans and identifies itself."""

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
    """Cancels attempts, if they are being played there."""

    ids: Collection[str]

    def __call__(self, runner: Any) -> None:
        runner.playing.drop(self.ids)


@dataclass(slots=True)
class _Desk:
    """One runner, as seen by the driver."""

    id: int
    life: Life | None = None
    """The life that has the plans; None if none is known to be ready."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """Its plans, by attempt."""
    messages: int = 0
    """Messages without an answer yet."""
    silent_since: float = 0.0
    """Time since which an answer is missing, errors not counted; 0 if none is."""
    not_before: float = 0.0
    """Time of the next visit."""


class Underway:
    """The attempts that a runners's runners are playing."""

    def __init__(self, runners: RunnerGroup, *, turn_timeout_s: float) -> None:
        self._runners = runners
        self._turn_timeout_s = turn_timeout_s
        self._desks = {id: _Desk(id) for id in runners.actors}
        self._wait_s = min(max(len(self._desks) / VISITS_PER_S, SHORTEST_S), LONGEST_S)
        self._messages: dict[Any, tuple[_Desk, Life | None]] = {}
        """References to answers, and the runners that owe them."""
        self._quiet = dict(self._desks)
        """Runners without a pending message that may need one."""
        self._burials: dict[Any, list[Plan]] = {}
        """References to autopsies, and the plans of the dead."""
        self._where: dict[str, _Desk] = {}
        """Attempt → the runner that plays it."""
        self._waiting: deque[Plan] = deque()
        self._deaths: Counter[str] = Counter()
        self._found: list[Trajectory] = []

    def start(self, plans: Sequence[Plan]) -> None:
        """Play these plans, at once if a runner is ready."""
        self._waiting.extend(plans)
        self._deal()

    def drop(self, ids: Collection[str]) -> None:
        """Cancel these attempts; their results are never returned."""
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
            self._runners.actors[runner].apply.remote(_Drop(theirs))

    def take_finished(self) -> list[Trajectory]:
        """The results since the last call, after a short wait if there are none yet."""
        self._deal()
        self._visit()
        references = [*self._messages, *self._burials]
        if references:
            ray.wait(references, num_returns=1, timeout=self._wait_s)
            for reference in ray.wait(references, num_returns=len(references), timeout=0)[0]:
                self._judge(reference) if reference in self._burials else self._read(reference)
        else:
            time.sleep(self._wait_s)
        self._replace_silent_runners()
        found = self._found
        self._found = []
        return found

    # -- who plays what ---------------------------------------------------------------------------------------------

    def _deal(self) -> None:
        """Send waiting plans to the runners with the fewest; groups stay together if there are enough for all
        runners.
        """
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
        """Visit every runner that has plans or whose state is unknown."""
        now = time.monotonic()
        later = {}
        for desk in self._quiet.values():
            if now < desk.not_before:
                later[desk.id] = desk
            elif not desk.messages and (desk.plans or not desk.life):
                self._write(desk, ())
        self._quiet = later

    def _write(self, desk: _Desk, plans: Sequence[Plan]) -> None:
        desk.messages += 1
        desk.silent_since = desk.silent_since or time.monotonic()
        self._messages[self._runners.actors[desk.id].apply.remote(_Visit(desk.life, plans))] = desk, desk.life

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
        if answer.admitted != self._runners.version:
            self._runners.equip(desk.id)
            desk.life = desk.life if answer.admitted is not None else None
        for trajectory in answer.finished:
            if desk.plans.pop(trajectory.id, None) is not None:
                del self._where[trajectory.id]
                self._found.append(trajectory)

    def _bury(self, desk: _Desk) -> None:
        """Request an autopsy, on its node, of the life that had the plans."""
        life = desk.life
        desk.life = None
        lost = [*desk.plans.values()]
        desk.plans = {}
        for plan in lost:
            del self._where[plan.attempt.id]
        if lost and life is not None:
            there = NodeAffinitySchedulingStrategy(life.node, soft=False)
            autopsy = ray.remote(examine).options(num_cpus=0, scheduling_strategy=there)
            self._burials[autopsy.remote(Path(life.folder))] = lost
        else:
            self._waiting.extend(lost)

    def _judge(self, reference: Any) -> None:
        """Decide about all attempts of a dead life of a runner."""
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
        self._found.append(failure_trajectory(plan.attempt, failure))

    def _replace_silent_runners(self) -> None:
        """Kill runners that do not answer; if none comes back, raise an error."""
        now = time.monotonic()
        limit_s = self._runners.timeout_s
        for desk in {desk.id: desk for desk, _ in self._messages.values()}.values():
            if desk.life and now - desk.silent_since > limit_s:
                self._runners.replace(desk.id)
                self._bury(desk)
        if all(desk.silent_since and now - desk.silent_since > 2 * limit_s for desk in self._desks.values()):
            for plan in self._waiting:
                self._fail(plan, NO_RUNNER)
            self._waiting.clear()
