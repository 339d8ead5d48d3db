"""The quality of a policy, and its team's work. `python -m loomrl.envs.teamwork.report [FOLDER…]`.

Axes: `_M` episodes, `_N` agents, `_S` skills, `_O` numbers of an observation.
"""

import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from loomrl.control.policy import ControlPolicy
from loomrl.envs.teamwork.baseline import BASELINES, Policy
from loomrl.envs.teamwork.dynamics import Teams, TeamTally, completion
from loomrl.envs.teamwork.observation import PER_ACTION, Seen, observe, seen_by_each
from loomrl.envs.teamwork.settings import TeamSettings, team_settings
from loomrl.envs.teamwork.vector import TeamVector
from loomrl.errors import ConfigError, PolicyError

BATCH = 128
"""Episodes that are played at the same time."""
NORMAL_95 = 1.96
UNMET = 50_000
"""Seed of teams that no training began with."""


@dataclass(frozen=True, slots=True)
class TeamReport:
    """Means over episodes. Shares are in 0..1."""

    episodes: int
    reward: float
    reward_margin: float
    """Half of the 95 % confidence interval of the mean, by the normal approximation."""
    completion: float
    """Completed tasks of those that arrived; what is still open at the end counts as not completed."""
    utilisation: float
    """Steps in which an agent worked."""
    balance: float
    """Evenness of work over agents (Jain's index): 1 if all do the same, 1/n if one does everything."""
    collaboration: float
    """Jointly completed tasks of all that were completed."""
    specialisation: float
    """1 if every agent works for one skill only, 0 if it works for all alike: 1 − entropy, by work done."""


def measure(tally: TeamTally, *, steps: int) -> dict[str, NDArray[np.float64]]:
    """The numbers of a report, for every episode of a tally."""
    work_MN = tally.work_MNS.sum(2)
    return {
        "reward": tally.reward_M,
        "completion": completion(tally),
        "utilisation": tally.active_MN.mean(1) / steps,
        "balance": _ratio(work_MN.sum(1) ** 2, work_MN.shape[1] * (work_MN**2).sum(1)),
        "collaboration": _ratio(tally.joint_M, tally.completed_M),
        "specialisation": _specialisation(tally.work_MNS),
    }


def evaluate(policy: Policy, *, episodes: int = 200, seed: int = 0, **settings: Any) -> TeamReport:
    """Play episodes with the seeds `seed`, `seed + 1`, …: the same teams and tasks for every policy."""
    known = team_settings(**settings)
    if episodes < 2:
        raise ConfigError(f"episodes={episodes}: an interval needs at least 2; choose 200 or more.")
    played: list[dict[str, NDArray[np.float64]]] = []
    for begin in range(0, episodes, BATCH):
        seeds = range(seed + begin, seed + min(begin + BATCH, episodes))
        teams = Teams(known, [seeding.np_random(one)[0] for one in seeds])
        while not teams.is_over:
            actions = np.asarray(policy(observe(teams)))
            if len(actions) != len(seeds):
                raise PolicyError(
                    f"{len(actions)} actions for {len(seeds)} observations: a policy answers each of them."
                )
            teams.advance(actions)
        played.append(measure(teams.tally, steps=known.steps))
    each = {name: np.concatenate([batch[name] for batch in played]) for name in played[0]}
    margin = NORMAL_95 * float(each["reward"].std(ddof=1)) / episodes**0.5
    return TeamReport(episodes, reward_margin=margin, **{name: float(each_M.mean()) for name, each_M in each.items()})


def compare(
    policies: Mapping[str, Policy], *, episodes: int = 200, seed: int = 0, **settings: Any
) -> dict[str, TeamReport]:
    """Reports by name on the same teams: of the baselines, then of these; one named as a baseline takes its place."""
    known = team_settings(**settings)
    named = {name: baseline(known) for name, baseline in BASELINES.items()} | dict(policies)
    return {name: evaluate(policy, episodes=episodes, seed=seed, **settings) for name, policy in named.items()}


def as_table(reports: Mapping[str, TeamReport]) -> str:
    """One line per policy, in Markdown."""
    shares = [field.name for field in fields(TeamReport)][3:]
    lines = [f"| | reward | {' | '.join(shares)} |", "|---" * (len(shares) + 2) + "|"]
    for name, report in reports.items():
        told = [f"{report.reward:.0f} ± {report.reward_margin:.0f}"] + [f"{getattr(report, key):.2f}" for key in shares]
        lines.append(f"| {name} | {' | '.join(told)} |")
    return "\n".join(lines)


def team_of(each: Policy, settings: TeamSettings) -> Policy:
    """The team in which every agent acts by `each`: from what it sees, itself first, to its own three numbers."""

    def act(seen_MO: Seen) -> NDArray[Any]:
        seen_BO = seen_by_each(seen_MO, settings).reshape(-1, seen_MO.shape[1])
        actions = np.asarray(each(seen_BO))
        if actions.shape != (len(seen_BO), PER_ACTION):
            raise PolicyError(
                f"actions of shape {actions.shape} for {len(seen_BO)} agents: needed are {(len(seen_BO), PER_ACTION)}. "
                "A policy that acts for the whole team is evaluated as it is, without team_of."
            )
        return actions.reshape(len(seen_MO), -1)

    return act


def steps_per_cpu_second(*, worlds: int = BATCH, steps: int = 200, **settings: Any) -> float:
    """Steps of single teams, with random actions, everything that a vector environment does included."""
    env = TeamVector(worlds, **settings)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = env.action_space.sample()
    begun = time.process_time()
    for _ in range(steps):
        env.step(actions)
    return worlds * steps / (time.process_time() - begun)


def _ratio(part_M: NDArray[Any], whole_M: NDArray[Any]) -> NDArray[np.float64]:
    """0 where there is nothing to divide by."""
    return np.where(whole_M > 0, part_M / np.where(whole_M > 0, whole_M, 1), 0.0)


def _specialisation(work_MNS: NDArray[np.float64]) -> NDArray[np.float64]:
    """Agents count by the work they did; with one skill no agent can specialise."""
    skills = work_MNS.shape[2]
    if skills == 1:
        return np.zeros(len(work_MNS))
    work_MN = work_MNS.sum(2)
    share_MNS = _ratio(work_MNS, work_MN[:, :, None])
    entropy_MN = -(share_MNS * np.log(np.where(share_MNS > 0, share_MNS, 1.0))).sum(2)
    return _ratio(((1 - entropy_MN / np.log(skills)) * work_MN).sum(1), work_MN.sum(1))


def load_team(folder: Path, settings: TeamSettings) -> Policy:
    """An exported policy, for the whole team or for each of its agents."""
    policy = ControlPolicy.load(folder)
    return team_of(policy.act_batch, settings) if policy.action_space.shape == (PER_ACTION,) else policy.act_batch


def main() -> None:
    """Print what the baselines and the policies in these folders reach, and how fast the environment is."""
    policies = {Path(name).name: load_team(Path(name), TeamSettings()) for name in sys.argv[1:]}
    print(as_table(compare(policies, episodes=500, seed=UNMET)))
    speed = statistics.median(steps_per_cpu_second() for _ in range(7))
    print(f"{speed:,.0f} environment steps per second of one core, {BATCH} worlds, 4 agents (median of 7)")


if __name__ == "__main__":
    main()
