"""Control from a script or a notebook: one environment class, a policy for it, and how good that is."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomrl.config import ControlExperiment, CustomEnvironment
from loomrl.envs.teamwork.baseline import random_policy
from loomrl.envs.teamwork.parallel import TeamParallel
from loomrl.envs.teamwork.report import TeamReport, load_team
from loomrl.envs.teamwork.report import evaluate as evaluate_team
from loomrl.envs.teamwork.settings import TeamSettings, team_settings
from loomrl.errors import ConfigError
from loomrl.evaluation.returns import ReturnReport
from loomrl.experiments.evaluate_control import RANDOM, evaluate_control
from loomrl.experiments.policies import is_control
from loomrl.experiments.train import TrainResult, train
from loomrl.named import named
from loomrl.run.version import copied, find_version
from loomrl.schema import merge
from loomrl.store import open_store


@dataclass(frozen=True, slots=True)
class AgenticReport:
    """The quality of a policy. The shares are of a team (docs/teamwork.md), and None in other environments."""

    mean_reward: float | None
    """Return of an episode; in a team of agents that act for themselves, of one agent."""
    returns: ReturnReport
    """With its interval, least and greatest."""
    team: TeamReport | None = None

    @property
    def task_completion_rate(self) -> float | None:
        """Completed tasks of those that arrived."""
        return self.team.completion if self.team else None

    @property
    def utilisation(self) -> float | None:
        """Share of steps in which an agent worked."""
        return self.team.utilisation if self.team else None

    @property
    def collaboration_frequency(self) -> float | None:
        """Jointly completed tasks of all that were completed."""
        return self.team.collaboration if self.team else None


class AgenticRLSystem:
    """`AgenticRLSystem(env_class=MultiAgentTaskEnvironment, n_envs=32).train(total_timesteps=400_000)`.

    `env_class` is a Gymnasium environment, or a PettingZoo `ParallelEnv` whose agents then share one policy; a class,
    `"pkg.module:Class"`, or a name that Gymnasium knows. Observations and rewards are normalised by running statistics
    of the batches, with `batch_normalization` also the layers between. `epsilon` is the share of choices that are drawn
    evenly (ε-greedy), of discrete actions such as tools. All else is the control Experiment's, in `settings`:
    `{"algorithm": {"learning_rate": 1e-3}}`.
    """

    def __init__(
        self,
        env_class: type | str,
        n_envs: int = 4,
        *,
        batch_normalization: bool = False,
        epsilon: float = 0.0,
        env_settings: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        base: dict[str, Any] = {
            "name": "agentic",
            "environment": environment_choice(env_class) | {"settings": env_settings or {}},
            "rollout": {"environments": n_envs},
        }
        if batch_normalization:
            base["algorithm"] = {"network": {"layer_norm": True}}
        if epsilon:  # WEAVE with one expert and one critic is PPO, and explores so
            way = {"kind": "weave", "experts": 1, "critics": 1, "exploration": [{"epsilon": epsilon}]}
            base["algorithm"] = base.get("algorithm", {}) | way
        given = merge(merge(ControlExperiment.defaults(), base), settings or {})
        self.experiment = ControlExperiment.parse(given, origin="AgenticRLSystem")
        """All that a run of it does."""
        self.result: TrainResult | None = None
        """Result of the latest training."""
        choice = self.experiment.environment
        made = named(choice.entry_point, what="env_class") if isinstance(choice, CustomEnvironment) else None
        self._team: dict[str, Any] | None = None
        if isinstance(made, type) and issubclass(made, TeamParallel):
            self._team = {**made.form, **(env_settings or {})}

    def train(
        self, *, total_timesteps: int, completion_rate: float | None = None, run: str | None = None
    ) -> TrainResult:
        """Train for so many steps of all environments together, or until so many tasks are completed.

        As `loomrl train` does; an existing run is resumed. The rate is that of the latest 100 episodes, from what the
        environment says as `info["is_success"]`; in a team it is the share of tasks that were completed.
        """
        length = {"train.steps": total_timesteps, "train.stop.success": completion_rate}
        self.result = train(self.experiment.override(length), run=run)
        return self.result

    def evaluate(self, *, n_episodes: int = 10, policy: str | Path | None = None) -> AgenticReport:
        """The best policy that was trained; or a version, an exported folder, or `random`."""
        if policy is None and self.result is None:
            raise ConfigError("nothing was trained yet: call train(), or name a policy, such as policy='random'.")
        chosen = str(policy) if policy is not None or self.result is None else self.result.best or self.result.policy
        experiment = self.experiment.override({"evaluation.episodes": n_episodes})
        report = evaluate_control(experiment, [chosen]).reports[0]
        return AgenticReport(report.overall.reward.mean, report, self._as_team(chosen, n_episodes))

    def _as_team(self, policy: str, episodes: int) -> TeamReport | None:
        """The team's report, of at least two episodes."""
        if self._team is None:
            return None
        given = {name: value for name, value in self._team.items() if name in TeamSettings.model_fields}
        known = team_settings(**given)
        if policy == RANDOM:
            return evaluate_team(random_policy(known), episodes=max(2, episodes), **given)
        if is_control(policy):
            return evaluate_team(load_team(Path(policy), known), episodes=max(2, episodes), **given)
        with open_store(self.experiment.store_url) as db:
            version = find_version(policy, db)
            assert version is not None, "evaluate_control has just judged it"
            folder = copied(version, db)
        try:
            return evaluate_team(load_team(folder / "policy", known), episodes=max(2, episodes), **given)
        finally:
            shutil.rmtree(folder.parent)


def environment_choice(env_class: type | str) -> dict[str, Any]:
    """An environment class, or its name, as a control experiment has it."""
    if isinstance(env_class, type):
        return {"kind": "custom", "entry_point": f"{env_class.__module__}:{env_class.__qualname__}"}
    if ":" in env_class and "-v" not in env_class:
        return {"kind": "custom", "entry_point": env_class}
    return {"kind": "gymnasium", "id": env_class}
