"""All runners of a run as one: whoever plays the plans, with the weights that were published last."""

from collections.abc import Callable, Sequence
from typing import Any

from ray.rllib.env.env_runner_group import EnvRunnerGroup

from loomrl.gym.episode import failed_trajectory
from loomrl.gym.host import Plan
from loomrl.inference.engine import Weights
from loomrl.types import Failure, Trajectory

TRIES = 3
"""How often attempts are made whose runner dies or does not answer in time."""


class Crew:
    """`restore` brings dead runners back, as RLlib does it; `timeout_s` is how long a runner may take for its share."""

    def __init__(self, group: EnvRunnerGroup, *, restore: Callable[[EnvRunnerGroup], Any], timeout_s: float) -> None:
        self._group = group
        self._restore = restore
        self._timeout_s = timeout_s
        self._load: _Load | None = None

    def load(self, weights: Weights, version: int) -> None:
        """Act with these weights from now on."""
        self._load = _Load(weights, version)
        self._group.foreach_env_runner(self._load)

    def play(self, plans: Sequence[Plan]) -> list[Trajectory]:
        """Every plan's trajectory. What remote runners do not deliver is tried again, and fails in the end."""
        if self._group.num_remote_env_runners() == 0:
            return self._group.local_env_runner.sample(plans=plans)  # type: ignore[no-any-return]
        finished: dict[str, Trajectory] = {}
        for _ in range(TRIES):
            left = [plan for plan in plans if plan.attempt.id not in finished]
            if not left:
                break
            for played in self._deal(left):
                finished |= {trajectory.id: trajectory for trajectory in played}
        lost = Failure("runner", "Lost", f"no runner delivered it in {TRIES} tries of {self._timeout_s:g} s")
        return [finished.get(plan.attempt.id) or failed_trajectory(plan.attempt, lost) for plan in plans]

    def worked(self) -> tuple[int, float]:
        """Tokens that the engines sampled since they were made, and the seconds they computed, on average."""
        found = self._group.foreach_env_runner(lambda runner: runner.engine.statistics)
        return sum(each.sampled_tokens for each in found), sum(each.busy_s for each in found) / max(1, len(found))

    def _deal(self, plans: Sequence[Plan]) -> list[list[Trajectory]]:
        """The plans dealt to healthy runners, what came back in time, and the dead ones replaced."""
        self._group.foreach_env_runner(self._load)
        ids = self._group.healthy_env_runner_ids()
        shares = [_Share(plans[i :: len(ids)]) for i in range(len(ids))]
        played: list[list[Trajectory]] = self._group.foreach_env_runner(
            shares, local_env_runner=False, remote_worker_ids=ids, timeout_seconds=self._timeout_s
        )
        self._restore(self._group)
        return played


class _Share:
    """What one runner has to play."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans = plans

    def __call__(self, runner: Any) -> list[Trajectory]:
        return runner.sample(plans=self.plans)  # type: ignore[no-any-return]


class _Load:
    """Weights for every runner that does not have them; one that was restarted has none."""

    def __init__(self, weights: Weights, version: int) -> None:
        self.weights, self.version = weights, version

    def __call__(self, runner: Any) -> None:
        if runner.loaded != self.version:
            runner.load(self.weights, self.version)
