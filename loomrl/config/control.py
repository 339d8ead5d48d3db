"""Settings of control policies and their algorithms: network, PPO, SAC."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Share
from loomrl.config.optimizer import Clip, ConstantRate, Schedule
from loomrl.schema import Config


class Network(Config):
    """The layers between observation and action."""

    hidden: tuple[PositiveInt, ...] = (64, 64)
    activation: Literal["tanh", "relu", "silu", "gelu"] = "tanh"
    shared: bool = False
    """One trunk for policy and value function, instead of separate towers."""
    layer_norm: bool = False
    orthogonal: bool = True
    """Orthogonal initial weights, with a small last layer of the policy."""
    log_std: float = 0.0
    """Initial log standard deviation of real-valued actions; it is learnt, and equal in every state."""

    @model_validator(mode="after")
    def _trunk_has_layers(self) -> Self:
        if self.shared and not self.hidden:
            raise ValueError("shared=true needs at least one hidden layer: set hidden, or shared=false")
        return self


class ControlAlgorithm(Config):
    """Settings that all control algorithms share."""

    network: Network = Network()
    gamma: Share = 0.99
    normalize_observations: bool = False
    normalize_rewards: bool = False
    """Divide rewards by the standard deviation of the discounted return."""
    clip_norm: Positive | None = 0.5
    """Longer gradients are clipped to this norm."""


class Curiosity(Config):
    """A reward for novelty: the error of a network trained to predict a fixed random network's output."""

    coefficient: Positive = 1.0
    """Weight of novelty, in its standard deviations, relative to the reward."""
    hidden: tuple[PositiveInt, ...] = (64, 64)
    features: PositiveInt = 32
    """Output size of the random network."""
    learning_rate: Positive = 3e-4
    """Learning rate of the predictor: the higher it is, the sooner novelty fades."""


class ControlPPO(ControlAlgorithm):
    """Proximal policy optimisation on arrays of steps."""

    former: ClassVar = {"minibatch": "minibatch_size"}
    kind: Literal["ppo"] = "ppo"
    learning_rate: Positive = 3e-4
    schedule: Schedule = ConstantRate()
    gae_lambda: Share = 0.95
    clip: Clip = Clip()
    value_clip: Positive | None = None
    value_coefficient: NonNegative = 0.5
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """Compression of gradients between learners; bf16 needs GPUs."""
    entropy_coefficient: float = 0.0
    entropy_floor: float | None = None
    """Final entropy coefficient of a linear schedule; None keeps it constant."""
    epochs: PositiveInt = 4
    minibatch_size: PositiveInt = 256
    """Steps per optimizer step, over all learners."""
    normalize_advantages: bool = True
    target_kl: Positive | None = None
    """Stop the passes over a batch once the policy has moved this far (KL) from the one that collected it."""
    curiosity: Curiosity | None = None
    """A reward for novelty, added to the environment's."""


class Prioritized(Config):
    """Prioritised replay: sampled by error to the power of `alpha`, with importance weights to the power of `beta`."""

    alpha: Share = 0.6
    beta: Share = 0.4


class Replay(Config):
    """The replay memory of SAC."""

    capacity: PositiveInt = 1_000_000
    memory_gb: Positive = 4.0
    """Larger memories are kept in a memory-mapped file."""
    prioritized: Prioritized | None = None


class SAC(ControlAlgorithm):
    """Soft actor–critic with twin critics: off-policy, with a replay memory."""

    kind: Literal["sac"] = "sac"
    network: Network = Network(hidden=(256, 256), activation="relu", orthogonal=False)
    clip_norm: Positive | None = None
    actor_rate: Positive = 3e-4
    critic_rate: Positive = 3e-4
    temperature_rate: Positive = 3e-4
    initial_temperature: Positive = 1.0
    target_entropy: float | None = None
    """None: minus the number of action dimensions, or 0.7 of the maximum entropy for discrete actions."""
    tau: float = Field(0.005, gt=0, le=1)
    """Update rate of the target networks."""
    batch: PositiveInt = 256
    warmup: int = Field(100, ge=0)
    """Steps of random actions before the first update."""
    updates_per_step: Positive = 1.0
    n_step: PositiveInt = 1
    replay: Replay = Replay()

    @model_validator(mode="after")
    def _network_is_one_that_sac_can_use(self) -> Self:
        if self.network.shared:
            raise ValueError("network.shared=true: actor and critics of sac have a tower each, set shared=false")
        if self.network.log_std:
            raise ValueError(
                f"network.log_std={self.network.log_std} has no effect: sac's standard deviation depends on the "
                "state, leave it out (initial_temperature sets the initial randomness)"
            )
        return self
