"""Settings of algorithms that learn control from logged episodes: behaviour cloning and IQL."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import Positive, PositiveInt, Share
from loomrl.config.control import ControlAlgorithm, Network, Replay, refuse_memory
from loomrl.schema import Config


class LoggedData(Config):
    """The episodes that bc and iql learn from: a Minari data set or a data set of LoomDB."""

    minari: str | None = None
    """Id of a Minari data set, such as `cartpole/mixed-v0`."""
    dataset: str | None = None
    """Id or name of a data set of LoomDB (`loomrl data freeze`) with sessions of a served control policy."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.minari is None) == (self.dataset is None):
            raise ValueError("name either minari, a Minari data set, or dataset, one of LoomDB")
        return self

    @property
    def name(self) -> str:
        """The data set's id."""
        return str(self.minari or self.dataset)

    @property
    def source(self) -> dict[str, str]:
        """The data set as a version's record has it."""
        return {"minari": self.minari} if self.minari is not None else {"dataset": self.name}


class BC(ControlAlgorithm):
    """Behaviour cloning: maximises the likelihood of the logged actions, without a value function."""

    kind: Literal["bc"] = "bc"
    learning_rate: Positive = 1e-3
    """Learning rate of Adam."""
    batch: PositiveInt = 256
    """Steps per update, over all learners."""

    @model_validator(mode="after")
    def _no_rewards(self) -> Self:
        refuse_memory(self.network, "bc")
        usual = {name: field.default for name, field in ControlAlgorithm.model_fields.items()}
        for name in ("gamma", "normalize_rewards"):
            _refuse_idle(f"{name}={getattr(self, name)}", getattr(self, name) != usual[name], "bc uses no rewards")
        return self


class Online(Config):
    """Continued learning in the environment, from new steps and the data together."""

    updates_per_step: Positive = 1.0
    """Updates per environment step."""
    data_share: Share = 0.5
    """Share of an update's steps that come from the data; 0 ignores the data."""
    replay: Replay = Replay(capacity=100_000)
    """The replay memory of new steps."""

    @model_validator(mode="after")
    def _even_draws(self) -> Self:
        _refuse_idle("replay.prioritized", self.replay.prioritized is not None, "iql draws evenly")
        return self


class IQL(ControlAlgorithm):
    """Implicit Q-learning: twin critics that never ask about an action outside the data, and a policy that prefers the
    better ones in it.
    """

    kind: Literal["iql"] = "iql"
    network: Network = Network(hidden=(256, 256), activation="relu")
    clip_norm: Positive | None = None
    learning_rate: Positive = 3e-4
    """Learning rate of Adam for policy, value function and critics."""
    batch: PositiveInt = 256
    """Steps per update, over all learners."""
    expectile: float = Field(0.7, gt=0, lt=1)
    """Expectile of the critics' estimates over the data's actions that is a state's value: 0.5 is the mean, towards 1
    the best action."""
    sharpness: float = Field(3.0, ge=0)
    """Actions weigh exp(sharpness · advantage) in the policy's loss (β of the paper); 0 is behaviour cloning."""
    most_weight: Positive = 100.0
    """Maximum weight of an action."""
    tau: float = Field(0.005, gt=0, le=1)
    """Update rate of the target networks."""
    online: Online | None = None
    """Continue learning in the environment; null learns from the data alone."""

    @model_validator(mode="after")
    def _towers(self) -> Self:
        refuse_memory(self.network, "iql")
        if self.network.shared:
            raise ValueError(
                "network.shared=true: policy, value function and critics of iql have a tower each, set false"
            )
        return self


def offline_faults(algorithm: Any, data: LoggedData | None, idle: dict[str, bool]) -> None:
    """A ValueError if an algorithm has no data, cannot use them, or ignores a setting of `idle` that is given."""
    learns = isinstance(algorithm, BC | IQL)
    if data is not None and not learns and algorithm.kind != "custom":
        raise ValueError(f"data has no effect with {algorithm.kind}, which learns from its own steps: use bc or iql")
    if not learns:
        return
    if data is None:
        raise ValueError(f"{algorithm.kind} learns from logged episodes: name them, data={{minari: ID}}")
    if isinstance(algorithm, BC) or algorithm.online is None:
        for name, is_given in idle.items():
            _refuse_idle(name, is_given, f"{algorithm.kind} takes no step in the environment, except to be evaluated")


def _refuse_idle(what: str, is_given: bool, why: str) -> None:
    if is_given:
        raise ValueError(f"{what} has no effect: {why}. Leave it out")
