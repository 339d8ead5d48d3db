"""Settings of control policies and their algorithms: network, PPO, SAC, DQN, and learning from logged episodes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import NonNegative, Positive, PositiveInt, Share
from loomrl.config.optimizer import Clip, ConstantRate, Schedule
from loomrl.schema import Config, merge


class Recurrent(Config):
    """A recurrent layer whose state is carried through the episode."""

    kind: Literal["gru", "lstm"] = "gru"
    size: PositiveInt = 64
    """Size of the vector added to the observation."""


class Frames(Config):
    """The latest observations of the episode, stacked; zeros before the first."""

    kind: Literal["frames"] = "frames"
    count: int = Field(4, ge=2)
    """Number of observations, including the present one."""


class Attention(Config):
    """Attention over the latest observations of the episode."""

    kind: Literal["attention"] = "attention"
    window: int = Field(32, ge=2)
    """Number of observations attended to, including the present one."""
    size: PositiveInt = 64
    """Size of the vector added to the observation."""
    heads: PositiveInt = 4
    """Number of attention heads; must divide `size`."""

    @model_validator(mode="after")
    def _heads_share_the_size(self) -> Self:
        if self.size % self.heads:
            raise ValueError(f"size={self.size} cannot be divided among heads={self.heads}: choose a multiple")
        return self


Memory = Annotated[Recurrent | Frames | Attention, Field(discriminator="kind")]


class Network(Config):
    """The network between observation and action."""

    hidden: tuple[PositiveInt, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Literal["tanh", "relu", "silu", "gelu"] = "tanh"
    """Activation function between the layers."""
    shared: bool = False
    """One trunk for policy and value function, instead of separate towers."""
    layer_norm: bool = False
    """Normalise the output of every hidden layer."""
    orthogonal: bool = True
    """Orthogonal initial weights, with a small last layer of the policy."""
    log_std: float = 0.0
    """Initial log standard deviation of real-valued actions; it is learnt and does not depend on the state."""
    features: PositiveInt | None = None
    """Features that the convolutions extract from a picture; null means 256."""
    memory: Memory | None = None
    """Memory of the episode's earlier observations, placed before the hidden layers; null for none."""

    @model_validator(mode="after")
    def _trunk_has_layers(self) -> Self:
        if self.shared and not self.hidden:
            raise ValueError("shared=true needs at least one hidden layer: set hidden, or shared=false")
        return self


class ControlAlgorithm(Config):
    """Settings that all control algorithms share."""

    network: Network = Network()
    gamma: Share = 0.99
    """Discount of later rewards, per step."""
    normalize_observations: bool = False
    """Normalise observations by their running mean and deviation, which are part of the policy."""
    normalize_rewards: bool = False
    """Divide rewards by the standard deviation of the discounted return."""
    clip_norm: Positive | None = 0.5
    """Maximum gradient norm; longer gradients are clipped to it."""

    @model_validator(mode="before")
    @classmethod
    def _rest_of_the_network_is_the_algorithms(cls, given: Any) -> Any:
        """Settings left out of `network` keep this algorithm's own defaults, which differ between algorithms."""
        if not isinstance(given, Mapping) or not isinstance(given.get("network"), Mapping):
            return given
        return {**given, "network": merge(cls.model_fields["network"].default.model_dump(), given["network"])}


class Curiosity(Config):
    """A reward for novelty: the error of a network trained to predict a fixed random network's output."""

    coefficient: Positive = 1.0
    """Weight of novelty relative to the reward; novelty is measured in its standard deviations."""
    hidden: tuple[PositiveInt, ...] = (64, 64)
    """Width of each hidden layer of both networks."""
    features: PositiveInt = 32
    """Output size of the random network."""
    learning_rate: Positive = 3e-4
    """Learning rate of the predictor; the higher it is, the sooner novelty fades."""


class ControlPPO(ControlAlgorithm):
    """Proximal policy optimisation on arrays of steps."""

    kind: Literal["ppo"] = "ppo"
    # The rate needs the normalisation: LunarLander fails without it (docs/log.md), MountainCar is solved with it.
    learning_rate: Positive = 1e-3
    """Learning rate of Adam, before the schedule."""
    normalize_observations: bool = True
    """Normalise numeric observations by their running mean and deviation, which are part of the policy."""
    normalize_rewards: bool = True
    """Divide rewards by the standard deviation of the discounted return."""
    schedule: Schedule = ConstantRate()
    """The learning rate over the training."""
    gae_lambda: Share = 0.95
    """Decay of GAE: 0 trusts the value function, 1 the returns."""
    clip: Clip = Clip()
    value_clip: Positive | None = None
    """Clip range of a value around the old one; null for no clipping."""
    value_coefficient: NonNegative = 0.5
    """Weight of the value loss."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """Compression of gradients between learners; bf16 needs GPUs."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    entropy_floor: float | None = None
    """Final entropy coefficient of a linear schedule; null keeps it constant."""
    epochs: PositiveInt = 10
    """Passes over the steps of an update."""
    minibatch_size: PositiveInt = 256
    """Steps per optimizer step, over all learners."""
    normalize_advantages: bool = True
    """Normalise advantages to mean 0 and standard deviation 1."""
    target_kl: Positive | None = None
    """Stop the passes over a batch once the policy has moved this far (KL) from the one that collected it."""
    curiosity: Curiosity | None = None
    """A reward for novelty, added to the environment's."""


class Prioritized(Config):
    """Prioritised replay: sampled by error to the power of `alpha`, with importance weights to the power of `beta`."""

    alpha: Share = 0.6
    """Strength of prioritisation: 0 samples uniformly, 1 in proportion to the error."""
    beta: Share = 0.4
    """Strength of the importance-sampling correction: 0 leaves the bias, 1 corrects it fully."""


class Replay(Config):
    """The replay memory of SAC and DQN."""

    capacity: PositiveInt = 1_000_000
    """Maximum number of steps; the oldest are overwritten."""
    memory_gb: Positive = 4.0
    """Size above which the replay memory is kept in a memory-mapped file."""
    prioritized: Prioritized | None = None


def refuse_memory(network: Network, kind: str) -> None:
    """A ValueError if the network of an algorithm that learns from single steps has one."""
    if network.memory is not None:
        raise ValueError(
            f"network.memory={network.memory.kind}: {kind} learns from single steps, which have no past. Leave it out, "
            "or use ppo"
        )


class OffPolicy(ControlAlgorithm):
    """Settings of algorithms that learn from a replay memory."""

    batch: PositiveInt = 256
    """Steps per gradient step."""
    warmup: int = Field(100, ge=0)
    """Random steps before the first update."""
    updates_per_step: Positive = 1.0
    """Gradient steps per environment step."""
    n_step: PositiveInt = 1
    """Steps of reward in a target before the critic's estimate."""
    tau: float = Field(0.005, gt=0, le=1)
    """Update rate of the target networks."""
    products: Literal["float32", "bfloat16"] = "float32"
    """Format of the factors of matrix products in updates; weights and sums are float32. bfloat16 takes a quarter of
    the time of a large product, on a CPU or GPU that has it."""
    replay: Replay = Replay()


class SAC(OffPolicy):
    """Soft actor–critic with twin critics: off-policy, with a replay memory."""

    kind: Literal["sac"] = "sac"
    network: Network = Network(hidden=(256, 256), activation="relu", orthogonal=False)
    clip_norm: Positive | None = None
    actor_rate: Positive = 3e-4
    """Learning rate of the actor."""
    critic_rate: Positive = 3e-4
    """Learning rate of the critics."""
    temperature_rate: NonNegative = 3e-4
    """Learning rate of the temperature; 0 keeps it as it is."""
    initial_temperature: Positive = 1.0
    """Initial weight of the entropy; it is learnt."""
    target_entropy: float | None = None
    """Entropy to aim at; null means minus the number of action dimensions, or 0.7 of the maximum for discrete
    actions."""
    batch_norm: bool = False
    """Batch normalisation in the critics instead of target networks (CrossQ): made for higher rates, such as 1e-3, and
    fewer updates."""
    noise: Literal["white", "pink"] = "white"
    """Noise of real-valued actions in rollouts: independent at every step, or pink (1/f), which also pushes one way for
    long."""

    @model_validator(mode="after")
    def _entropy_is_aimed_at(self) -> Self:
        if self.target_entropy is not None and not self.temperature_rate:
            raise ValueError(
                f"target_entropy={self.target_entropy:g} has no effect with temperature_rate=0, which keeps the "
                "temperature: leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _memory_learns_from_whole_sequences(self) -> Self:
        if self.network.memory is None:
            return self
        for said, is_set in (
            (f"n_step={self.n_step}", self.n_step > 1),
            ("replay.prioritized", self.replay.prioritized is not None),
            ("batch_norm=true", self.batch_norm),
        ):
            if is_set:
                raise ValueError(
                    f"{said} is of steps that are drawn one by one, network.memory needs sequences: leave one out"
                )
        return self

    @model_validator(mode="after")
    def _critics_are_normalized_once(self) -> Self:
        if not self.batch_norm:
            return self
        _refuse_idle(f"tau={self.tau:g}", self.tau != 0.005, "with batch_norm=true there are no target networks")
        if self.network.layer_norm:
            raise ValueError("network.layer_norm=true and batch_norm=true: critics are normalised by one of them")
        return self

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


class Exploration(Config):
    """The share of choices that are random: it falls in a line from `begin` to `end`, and stays there."""

    begin: Share = 1.0
    """The share before the first step."""
    end: Share = 0.05
    """The share after `steps`."""
    steps: PositiveInt = 10_000
    """Environment steps until `end`."""

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.end > self.begin:
            raise ValueError(f"end={self.end:g} is above begin={self.begin:g}: choose a lower end, or a higher begin")
        return self

    def at(self, steps: int) -> float:
        """The share after so many steps."""
        return self.begin + (self.end - self.begin) * min(1.0, steps / self.steps)


class DQN(OffPolicy):
    """Deep Q-learning for one choice among several, ε-greedily explored."""

    kind: Literal["dqn"] = "dqn"
    network: Network = Network(hidden=(128, 128), activation="relu", orthogonal=False)
    clip_norm: Positive | None = 10.0
    learning_rate: Positive = 1e-3
    """Learning rate of Adam."""
    batch: PositiveInt = 64
    """Steps per gradient step."""
    warmup: int = Field(1_000, ge=0)
    """Random steps before the first update."""
    tau: float = Field(1.0, gt=0, le=1)
    """Share of the new weights in the target network whenever it follows; 1 copies them."""
    target_every: PositiveInt = 500
    """Environment steps after which the target network follows."""
    double: bool = True
    """The network itself, not its target network, picks the choice whose value the target network tells."""
    dueling: bool = False
    """Separate outputs for the value of a state and the advantages of its choices."""
    quantiles: PositiveInt = 1
    """Quantiles of the return that are learnt (quantile regression); 1 learns its mean."""
    exploration: Exploration = Exploration()

    @model_validator(mode="after")
    def _network_is_one_that_dqn_can_use(self) -> Self:
        refuse_memory(self.network, "dqn")
        for name, why in (("shared", "dqn has one tower"), ("log_std", "choices have no deviation")):
            _refuse_idle(f"network.{name}={getattr(self.network, name)}", bool(getattr(self.network, name)), why)
        return self


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
