"""How a control policy is made and taught: network, PPO, SAC. Parameters as data."""

from typing import Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Share
from loomrl.config.optimizer import Clip, ConstantRate, Schedule
from loomrl.schema import Config


class Network(Config):
    """The layers between observation and action."""

    hidden: tuple[PositiveInt, ...] = (64, 64)
    activation: Literal["tanh", "relu", "silu", "gelu"] = "tanh"
    shared: bool = False
    """Policy and value function on one trunk, instead of a tower each."""
    layer_norm: bool = False
    orthogonal: bool = True
    """Orthogonal first weights, with a small last layer of the policy."""
    log_std: float = 0.0
    """Of real-valued actions in the beginning; learnt, and the same in every state."""

    @model_validator(mode="after")
    def _trunk_has_layers(self) -> Self:
        if self.shared and not self.hidden:
            raise ValueError("shared=true needs at least one hidden layer: set hidden, or shared=false")
        return self


class ControlAlgorithm(Config):
    """What every algorithm over control policies has."""

    network: Network = Network()
    gamma: Share = 0.99
    normalize_observations: bool = False
    normalize_rewards: bool = False
    """By the deviation of the discounted return."""
    clip_norm: Positive | None = 0.5
    """Gradients longer than this are shortened to it."""


class Curiosity(Config):
    """Pays for novelty: by how wrong a network is that learns what a fixed random one says of where a step led."""

    coefficient: Positive = 1.0
    """Of novelty, in its deviations, beside the reward."""
    hidden: tuple[PositiveInt, ...] = (64, 64)
    features: PositiveInt = 32
    """Numbers that the random network says of an observation."""
    learning_rate: Positive = 3e-4
    """How soon what was seen is known: the higher it is, the sooner curiosity ends."""


class ControlPPO(ControlAlgorithm):
    """Proximal policy optimisation on arrays of steps."""

    kind: Literal["ppo"] = "ppo"
    learning_rate: Positive = 3e-4
    schedule: Schedule = ConstantRate()
    gae_lambda: Share = 0.95
    clip: Clip = Clip()
    value_clip: Positive | None = None
    value_coefficient: NonNegative = 0.5
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """How gradients are made smaller on their way between learners; bf16 needs GPUs."""
    entropy_coefficient: float = 0.0
    entropy_floor: float | None = None
    """Where the coefficient ends, in a straight line; None keeps it."""
    epochs: PositiveInt = 4
    minibatch: PositiveInt = 256
    """Steps per optimizer step, over all learners."""
    normalize_advantages: bool = True
    target_kl: Positive | None = None
    """Stop going through a batch once the policy has moved this far from the one that collected it."""
    curiosity: Curiosity | None = None
    """Beside the environment's reward, one for novelty."""


class Prioritized(Config):
    """Replay what surprised most: sampled by error to the power of `alpha`, corrected by weights to that of `beta`."""

    alpha: Share = 0.6
    beta: Share = 0.4


class Replay(Config):
    """What SAC remembers."""

    capacity: PositiveInt = 1_000_000
    memory_gb: Positive = 4.0
    """Beyond it the steps are kept in a file that is mapped into memory."""
    prioritized: Prioritized | None = None


class SAC(ControlAlgorithm):
    """Soft actor–critic with twin critics, off the policy, from a replay buffer."""

    kind: Literal["sac"] = "sac"
    network: Network = Network(hidden=(256, 256), activation="relu", orthogonal=False)
    clip_norm: Positive | None = None
    actor_rate: Positive = 3e-4
    critic_rate: Positive = 3e-4
    temperature_rate: Positive = 3e-4
    initial_temperature: Positive = 1.0
    target_entropy: float | None = None
    """None: minus the number of actions, or 0.7 of the greatest possible one for choices."""
    tau: float = Field(0.005, gt=0, le=1)
    """How far the targets follow with every update."""
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
                f"network.log_std={self.network.log_std} has no effect: the deviation of sac's actions follows the "
                "state, leave it out (initial_temperature says how much chance is worth in the beginning)"
            )
        return self
