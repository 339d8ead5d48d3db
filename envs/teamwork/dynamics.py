"""The rules of the team environments, over a batch of worlds at once.

A step: the task at the head of the line goes to the highest bidder; agents work on what they hold, or help others;
finished tasks are paid, late ones are lost; a new task may arrive; who worked hard is tired.

Axes: `_M` worlds, `_N` agents, `_K` task slots, `_S` skills, `_F` tasks that finished or were lost in this step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from loomrl.envs.teamwork.settings import TeamSettings
from loomrl.errors import PolicyError

Floats = NDArray[np.float64]

EXPERT = (0.8, 1.0)
"""Expertise of an agent in its own field."""
LAYMAN = (0.05, 0.45)
"""Expertise in every other one."""
STRENGTH = (0.7, 1.3)
"""Capacity of an agent that is rested."""
PRIORITY = (0.2, 1.0)


@dataclass(frozen=True, slots=True)
class Chance:
    """The teams' members, and all arrivals by time. World i follows from its own generator alone."""

    expertise_MNS: Floats
    strength_MN: Floats
    arrives_TM: NDArray[np.bool_]
    """Before the arrivals of the steps, from step 0 on, those that wait at the reset."""
    skill_TM: NDArray[np.int64]
    complexity_TM: Floats
    priority_TM: Floats
    allowed_TM: Floats
    """Steps until the deadline."""


def draw(settings: TeamSettings, generators: Sequence[np.random.Generator]) -> Chance:
    """One episode for every generator. Fields are handed out evenly: with S agents or more, each has its expert."""
    agents = settings.agents
    skills = settings.skills
    rows = settings.waiting + settings.steps + 1
    sizes = (agents * skills, agents, skills, 5 * rows)
    luck = np.stack([generator.random(sum(sizes)) for generator in generators])
    breadth, strength, fields, tasks = np.split(luck, np.cumsum(sizes)[:-1], axis=1)

    fields_MS = fields.argsort(axis=1)
    expert_MNS = fields_MS[:, np.arange(agents) % skills, None] == np.arange(skills)
    breadth_MNS = breadth.reshape(-1, agents, skills)
    arrives, skill, complexity, priority, allowed = tasks.reshape(-1, rows, 5).transpose(2, 1, 0)
    low, high = settings.deadline
    return Chance(
        expertise_MNS=np.where(expert_MNS, _between(breadth_MNS, EXPERT), _between(breadth_MNS, LAYMAN)),
        strength_MN=_between(strength, STRENGTH),
        arrives_TM=(arrives < settings.arrival) | (np.arange(rows) < settings.waiting)[:, None],
        skill_TM=(skill * skills).astype(np.int64),
        complexity_TM=_between(complexity, settings.complexity),
        priority_TM=_between(priority, PRIORITY),
        allowed_TM=np.floor(_between(allowed, (low, high + 1))),
    )


def _between(luck: Floats, bounds: tuple[float, float]) -> Floats:
    low, high = bounds
    return low + (high - low) * luck


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Parts = dict[str, Floats]
"""Rewards `[M, N]` by name, each credited to the agent that earned it."""

PARTS = ("match", "completion", "collaboration", "backlog", "overdue")
COMPLETION = 10.0
COLLABORATION = 2.0
BACKLOG = 0.05
"""For every task that is not finished, in hand or not, per step."""
OVERDUE = 5.0
"""For every lost task, times its priority: more than its match ever paid."""

LAYMAN_PACE = 0.2
"""Pace of work without any expertise, as a share of a perfect expert's."""
HELP_PACE = (0.4, 0.8)
"""Pace of a helper: without trust, and what full trust adds."""
JOINT_SHARE = 0.1
"""A task is completed jointly if at least two agents did this much of it."""
TRUST = 0.3
"""In the beginning, between any two."""
TRUST_GAIN = 0.2
TRUST_LOSS = 0.002
"""Share of the missing trust that a joint completion brings, and share of all trust that a step takes."""
RECORD_RATE = 0.1
"""Weight of the latest task in an agent's records."""
DOUBT_LEFT, RECORD_LEFT = ((1 - rate) ** np.arange(65) for rate in (TRUST_GAIN, RECORD_RATE))
"""Remainder of missing trust, and of a record, after so many tasks in one step: at most one per agent."""
REST = 0.1
FATIGUE = 0.06
"""Per step: what comes back of missing capacity, and what full effort takes of it."""
DONE = 1e-9
"""Work that is less than this is none."""


@dataclass(slots=True)
class TeamTally:
    """Counts of the episode so far."""

    reward_M: Floats
    arrived_M: Ints
    """Tasks, those that were turned away included."""
    completed_M: Ints
    joint_M: Ints
    lost_M: Ints
    active_MN: Ints
    """Steps in which an agent worked."""
    work_MNS: Floats
    """Work done, by the skill that it needed."""

    @classmethod
    def empty(cls, settings: TeamSettings, worlds: int) -> Self:
        """Nothing yet."""
        arrived, completed, joint, lost = np.zeros((4, worlds), np.int64)
        active_MN = np.zeros((worlds, settings.agents), np.int64)
        work_MNS = np.zeros((worlds, settings.agents, settings.skills))
        return cls(np.zeros(worlds), arrived, completed, joint, lost, active_MN, work_MNS)


def completion(tally: TeamTally) -> Floats:
    """Share of the tasks that arrived which were completed, `[M]`; 0 where none arrived."""
    return np.where(tally.arrived_M > 0, tally.completed_M / np.maximum(tally.arrived_M, 1), 0.0)


class Teams:
    """M teams in the middle of an episode each, all at the same step. A new episode is a new object."""

    def __init__(self, settings: TeamSettings, generators: Sequence[np.random.Generator]) -> None:
        worlds = len(generators)
        agents = settings.agents
        slots = settings.max_tasks
        per_agent = (worlds, agents)
        per_slot = (worlds, slots)
        self.settings = settings
        self.chance: Chance = draw(settings, generators)
        self.step = 0
        self.capacity_MN = self.chance.strength_MN.copy()
        self.completed_MN = np.zeros(per_agent, np.int64)
        """Tasks that an agent held to their end."""
        self.success_MN = np.full(per_agent, 0.5)
        self.collaboration_MN = np.zeros(per_agent)
        self.trust_MNN = np.full((*per_agent, agents), TRUST)
        self.held_MN = np.full(per_agent, -1)
        """The slot whose task an agent holds, or -1."""
        self.present_MK = np.zeros(per_slot, np.bool_)
        self.holder_MK = np.full(per_slot, -1)
        """-1 while a task waits."""
        self.skill_MK = np.zeros(per_slot, np.int64)
        self.priority_MK = np.zeros(per_slot)
        self.complexity_MK = np.zeros(per_slot)
        """Work of the whole task."""
        self.left_MK = np.zeros(per_slot)
        self.time_MK = np.zeros(per_slot)
        """Work and steps that are left."""
        self.refused_MK = np.zeros(per_slot, np.int64)
        self.advance_MK = np.zeros(per_slot)
        """Reward paid for the match when a task was taken."""
        self.work_MNK = np.zeros((*per_agent, slots))
        """Work done so far on the task in a slot."""
        self.tally = TeamTally.empty(settings, worlds)
        self._worlds_M1 = np.arange(worlds)[:, None]
        self._agents_N = np.arange(agents)
        for row in range(settings.waiting or 1):
            self._arrive(row, self.no_parts())
        self.order_MK = self._line()

    @property
    def is_over(self) -> bool:
        """True once the limit of steps is reached."""
        return self.step >= self.settings.steps

    def no_parts(self) -> Parts:
        """Every part of the reward, all of them 0."""
        return {name: np.zeros_like(self.capacity_MN) for name in PARTS}

    def advance(self, actions: NDArray[Any]) -> Parts:
        """One step by actions `[M, 3N]` or `[M, N, 3]`: accept, effort and collaborate of every agent, in -1..1."""
        assert not self.is_over, "an episode that is over has no next step"
        accept_MN, effort_MN, join_MN = self._read(actions)
        parts = self.no_parts()
        self.step += 1
        self._offer(accept_MN, parts)
        spent_MN = self._work((effort_MN + 1) / 2, join_MN)
        self._complete(parts)
        self._expire(parts)
        parts["backlog"] -= (BACKLOG / self.settings.agents) * self.present_MK.sum(1)[:, None]
        self._arrive(self.settings.waiting + self.step, parts)
        self._tire(spent_MN)
        if self.is_over:
            self._settle(parts)
        self.order_MK = self._line()
        self.tally.reward_M += sum(part_MN.sum(1) for part_MN in parts.values())
        return parts

    def _read(self, actions: NDArray[Any]) -> Floats:
        """Accept, effort and collaborate, `[3, M, N]`."""
        numbers = np.asarray(actions, np.float64)
        expected = (*self.capacity_MN.shape, 3)
        if numbers.size != np.prod(expected) or len(numbers) != expected[0] or not np.isfinite(numbers).all():
            raise PolicyError(
                f"actions of shape {numbers.shape}, of which {np.isfinite(numbers).mean():.0%} is finite: needed are "
                f"{expected} finite numbers in -1..1 (worlds, agents, accept–effort–collaborate). Look for NaN in the "
                "policy, or for an environment with other settings."
            )
        return np.clip(numbers.reshape(expected), -1.0, 1.0).transpose(2, 0, 1)

    def _offer(self, accept_MN: Floats, parts: Parts) -> None:
        """The head of the line to the highest positive bid of a free agent; refused by all, it goes to the end."""
        worlds_M = self._worlds_M1[:, 0]
        head_M = self.order_MK[:, 0]
        waits_M = self.present_MK[worlds_M, head_M] & (self.holder_MK[worlds_M, head_M] < 0)
        bid_MN = np.where(self.held_MN < 0, accept_MN, -1.0)
        best_M = bid_MN.argmax(1)
        taken_M = waits_M & (bid_MN[worlds_M, best_M] > 0)
        self.refused_MK[worlds_M, head_M] += waits_M & ~taken_M
        world = worlds_M[taken_M]
        agent = best_M[taken_M]
        slot = head_M[taken_M]
        self.held_MN[world, agent] = slot
        self.holder_MK[world, slot] = agent
        match = self.chance.expertise_MNS[world, agent, self.skill_MK[world, slot]] * self.priority_MK[world, slot]
        self.advance_MK[world, slot] = match
        parts["match"][world, agent] += match

    def _work(self, effort_MN: Floats, join_MN: Floats) -> Floats:
        """Work on the task in hand, or on one whose holder welcomes help. Returns the effort that was spent."""
        worlds = self._worlds_M1
        agents = self._agents_N
        holds_MN = self.held_MN >= 0
        skill_MN = self.skill_MK[
            worlds, self.held_MN
        ]  # an agent without a task gets an arbitrary skill; no helper comes
        match_MNN = self.chance.expertise_MNS[worlds[:, :, None], agents[:, None], skill_MN[:, None, :]]
        help_MNN = HELP_PACE[0] + HELP_PACE[1] * self.trust_MNN
        call_MNN = match_MNN * help_MNN * np.where(holds_MN, np.maximum(join_MN, 0.0), 0.0)[:, None, :]
        called_MN = call_MNN.argmax(2)
        helps_MN = ~holds_MN & (join_MN > 0) & (call_MNN[worlds, agents, called_MN] > 0)

        whose_MN = np.where(holds_MN, agents, called_MN)
        slot_MN = self.held_MN[worlds, whose_MN]
        pace_MN = np.where(holds_MN, 1.0, help_MNN[worlds, agents, whose_MN])
        pace_MN *= LAYMAN_PACE + (1 - LAYMAN_PACE) * match_MNN[worlds, agents, whose_MN]
        spent_MN = np.where(holds_MN | helps_MN, effort_MN, 0.0)
        self._progress(slot_MN, self.capacity_MN * spent_MN * pace_MN)
        self.tally.active_MN += spent_MN > 0
        return spent_MN

    def _progress(self, slot_MN: Ints, work_MN: Floats) -> None:
        """Put work into tasks; where together it is more than is left, everybody does less."""
        worlds = self._worlds_M1
        agents = self._agents_N
        work_MNK = np.zeros_like(self.work_MNK)
        work_MNK[worlds, agents, slot_MN] = work_MN
        offered_MK = work_MNK.sum(1)
        fits_MK = np.minimum(1.0, self.left_MK / np.maximum(offered_MK, DONE))
        work_MNK *= fits_MK[:, None, :]
        self.work_MNK += work_MNK
        self.left_MK -= offered_MK * fits_MK
        self.tally.work_MNS[worlds, agents, self.skill_MK[worlds, slot_MN]] += work_MNK[worlds, agents, slot_MN]

    def _complete(self, parts: Parts) -> None:
        """Pay what is finished, to those who did it, by the work they did."""
        world, slot = np.nonzero(self.present_MK & (self.left_MK < DONE))
        if not len(world):
            return
        work_FN = self.work_MNK[world, :, slot]
        share_FN = work_FN / work_FN.sum(1, keepdims=True)
        priority_F = self.priority_MK[world, slot]
        quality_F = (share_FN * self.chance.expertise_MNS[world, :, self.skill_MK[world, slot]]).sum(1)
        bonus_F = self.time_MK[world, slot] / self.settings.deadline[1]
        paid_F = COMPLETION * quality_F * priority_F * (1 + bonus_F)
        np.add.at(parts["completion"], world, paid_F[:, None] * share_FN)

        took_FN = share_FN >= JOINT_SHARE
        joint_F = took_FN.sum(1) >= 2
        mixed_F = np.where(joint_F, 1 - (share_FN**2).sum(1), 0.0)
        np.add.at(parts["collaboration"], world, (COLLABORATION * priority_F * mixed_F)[:, None] * share_FN)

        self._remember(world, took_FN, joint_F)
        self.success_MN[world, self.holder_MK[world, slot]] *= 1 - RECORD_RATE
        self.success_MN[world, self.holder_MK[world, slot]] += RECORD_RATE
        self.completed_MN[world, self.holder_MK[world, slot]] += 1  # an agent holds one task, so no pair comes twice
        np.add.at(self.tally.completed_M, world, 1)
        np.add.at(self.tally.joint_M, world, joint_F)
        self._clear(world, slot)

    def _remember(self, world: Ints, took_FN: Bools, joint_F: Bools) -> None:
        """Trust between those who finished something together, and everybody's collaboration score."""
        together_FN = took_FN & joint_F[:, None]
        pairs_MNN = np.zeros(self.trust_MNN.shape, np.int64)
        np.add.at(pairs_MNN, world, together_FN[:, :, None] & together_FN[:, None, :])
        alone_MN = np.zeros(self.collaboration_MN.shape, np.int64)
        np.add.at(alone_MN, world, took_FN & ~joint_F[:, None])
        joint_MN = np.diagonal(pairs_MNN, axis1=1, axis2=2)
        self.trust_MNN += (1 - self.trust_MNN) * (1 - DOUBT_LEFT[pairs_MNN])
        self.collaboration_MN += (1 - self.collaboration_MN) * (1 - RECORD_LEFT[joint_MN])
        self.collaboration_MN *= RECORD_LEFT[alone_MN]

    def _expire(self, parts: Parts) -> None:
        """The clocks. A task whose time is up is lost, and what its match was paid is taken back."""
        self.time_MK -= self.present_MK
        world, slot = np.nonzero(self.present_MK & (self.time_MK <= 0))
        if not len(world):
            return
        holder_F = self.holder_MK[world, slot]
        held_F = holder_F >= 0
        blamed_FN = (holder_F[:, None] == self._agents_N) | ~held_F[:, None]
        cost_F = OVERDUE * self.priority_MK[world, slot]
        np.add.at(parts["overdue"], world, -cost_F[:, None] * blamed_FN / blamed_FN.sum(1, keepdims=True))
        self._take_back(world[held_F], slot[held_F], parts)
        self.success_MN[world[held_F], holder_F[held_F]] *= 1 - RECORD_RATE
        np.add.at(self.tally.lost_M, world, 1)
        self._clear(world, slot)

    def _settle(self, parts: Parts) -> None:
        """The end of an episode: nothing stays paid for the match of a task that is not finished."""
        world, slot = np.nonzero(self.holder_MK >= 0)
        self._take_back(world, slot, parts)

    def _take_back(self, world: Ints, slot: Ints, parts: Parts) -> None:
        parts["match"][world, self.holder_MK[world, slot]] -= self.advance_MK[world, slot]

    def _clear(self, world: Ints, slot: Ints) -> None:
        """Empty slots, and free who held their tasks."""
        holder_F = self.holder_MK[world, slot]
        held_F = holder_F >= 0
        self.held_MN[world[held_F], holder_F[held_F]] = -1
        self.present_MK[world, slot] = False
        self.holder_MK[world, slot] = -1
        self.refused_MK[world, slot] = 0
        self.work_MNK[world, :, slot] = 0.0
        for numbers_MK in (self.advance_MK, self.complexity_MK, self.left_MK, self.time_MK, self.priority_MK):
            numbers_MK[world, slot] = 0.0

    def _arrive(self, row: int, parts: Parts) -> None:
        """Put arrivals into a free slot; without one they are turned away, at the price of a lost task."""
        chance = self.chance
        arrives_M = chance.arrives_TM[row]
        slot_M = self.present_MK.argmin(1)
        away_M = arrives_M & self.present_MK[self._worlds_M1[:, 0], slot_M]
        cost_M = np.where(away_M, OVERDUE * chance.priority_TM[row], 0.0)
        parts["overdue"] -= cost_M[:, None] / self.settings.agents
        self.tally.arrived_M += arrives_M
        self.tally.lost_M += away_M
        world = np.flatnonzero(arrives_M & ~away_M)
        slot = slot_M[world]
        self.present_MK[world, slot] = True
        self.skill_MK[world, slot] = chance.skill_TM[row, world]
        self.complexity_MK[world, slot] = self.left_MK[world, slot] = chance.complexity_TM[row, world]
        self.priority_MK[world, slot] = chance.priority_TM[row, world]
        self.time_MK[world, slot] = chance.allowed_TM[row, world]

    def _tire(self, spent_MN: Floats) -> None:
        """Capacity comes back, less what effort took; trust that is not renewed fades."""
        strength_MN = self.chance.strength_MN
        self.capacity_MN += REST * (strength_MN - self.capacity_MN) - FATIGUE * strength_MN * spent_MN**2
        self.trust_MNN *= 1 - TRUST_LOSS

    def _line(self) -> Ints:
        """Slots in order: the line (least refused first, then most urgent), tasks in hand by holder, empty ones."""
        urgency_MK = self.priority_MK / np.maximum(self.time_MK, 1.0)
        place_MK = np.where(self.holder_MK < 0, self.refused_MK - urgency_MK / 2, 1e6 + self.holder_MK)
        return np.where(self.present_MK, place_MK, np.inf).argsort(axis=1, kind="stable")
