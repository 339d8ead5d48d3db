"""The short door to control: one environment class, a policy for it, and how good that is."""

from pathlib import Path
from typing import Any

from loomrl.config import ControlExperiment
from loomrl.errors import ConfigError
from loomrl.evaluation.returns import ReturnReport
from loomrl.experiments.judge_control import evaluate_control
from loomrl.experiments.train import TrainResult, train
from loomrl.schema import merge


class AgenticRLSystem:
    """`AgenticRLSystem(env_class=TeamParallel, n_envs=32).train(total_timesteps=400_000)`.

    `env_class` is a Gymnasium environment, or a PettingZoo `ParallelEnv` whose agents then share one policy; a class,
    `"pkg.module:Class"`, or a name that Gymnasium knows. All else is the control Experiment's, in `settings`:
    `{"algorithm": {"learning_rate": 1e-3}}`.
    """

    def __init__(
        self,
        env_class: type | str,
        n_envs: int = 4,
        *,
        env_settings: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        base = {
            "name": "agentic",
            "environment": _choice(env_class) | {"settings": env_settings or {}},
            "rollout": {"environments": n_envs},
        }
        given = merge(merge(ControlExperiment.defaults(), base), settings or {})
        self.experiment = ControlExperiment.parse(given, origin="AgenticRLSystem")
        """All that a run of it does."""
        self.result: TrainResult | None = None
        """Of the latest training."""

    def train(self, *, total_timesteps: int, run: str | None = None) -> TrainResult:
        """Train for so many steps of all environments together, as `loomrl train` does; a run that exists goes on."""
        self.result = train(self.experiment.override({"train.steps": total_timesteps}), run=run)
        return self.result

    def evaluate(self, *, episodes: int = 20, policy: str | Path | None = None) -> ReturnReport:
        """The return of the best policy that was trained, of a version, an exported folder, or of `random`."""
        if policy is None and self.result is None:
            raise ConfigError("nothing was trained yet: call train(), or name a policy, such as policy='random'.")
        chosen = str(policy) if policy is not None or self.result is None else self.result.best
        experiment = self.experiment.override({"evaluation.episodes": episodes})
        return evaluate_control(experiment, [chosen]).reports[0]


def _choice(env_class: type | str) -> dict[str, Any]:
    if isinstance(env_class, type):
        return {"kind": "custom", "entry_point": f"{env_class.__module__}:{env_class.__qualname__}"}
    if ":" in env_class and "-v" not in env_class:
        return {"kind": "custom", "entry_point": env_class}
    return {"kind": "gymnasium", "id": env_class}
