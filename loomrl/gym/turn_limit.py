"""The turn limit of a run's attempts, checked against its environments."""

from loomrl.config import TurnLimit
from loomrl.errors import ConfigError
from loomrl.gym.adapters.harness.environment import Harness
from loomrl.gym.registry import make
from loomrl.gym.task_mixture import TaskMixture


def check_turn_limit(limit: TurnLimit | None, mixture: TaskMixture) -> None:
    """A ConfigError if it changes nothing, or where an environment cannot do with so few turns."""
    if limit is None:
        return
    shortened = []
    for name, member in mixture.members.items():
        environment = member.environment
        if isinstance(environment, Harness):
            raise ConfigError(
                f"rollout.turn_limit has no effect on {name}, whose agents end their attempts themselves: leave it out."
            )
        if environment.settings.max_steps > limit.first:
            make(f"{name}@{environment.version}", {**member.config.settings, "max_steps": limit.first})
            shortened.append(name)
    if not shortened:
        longest = max(member.environment.settings.max_steps for member in mixture.members.values())
        raise ConfigError(
            f"rollout.turn_limit.first={limit.first} shortens nothing: no attempt has more than max_steps={longest} "
            "turns. Lower it, raise max_steps in the environment's settings, or leave turn_limit out."
        )
