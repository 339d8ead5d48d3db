"""Settings of WEAVE: several experts in one policy, several critics and objectives."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt, Share
from loomrl.config.control import ControlPPO
from loomrl.schema import Config

INNER = {"weight", "parts"}
"""Keys of a nested group."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """Preferences weigh `names`; the environment pays `leaves`, which share the weight of their name.

    Axes: `_G` names, `_H` leaves.
    """

    names: tuple[str, ...]
    leaves: tuple[str, ...]
    shares_GH: tuple[tuple[float, ...], ...]
    """Share of each leaf in its name's weight; the shares of a name sum to 1."""

    @classmethod
    def of(cls, given: Sequence[Any]) -> "Objectives":
        """From the form of `listed`: names that are paid directly, and `{name: parts}`. A ValueError names a
        mistake.
        """
        rows = [_row(entry) for entry in given]
        leaves = tuple(leaf for _, pairs in rows for leaf, _ in pairs)
        every = [*leaves, *(name for name, pairs in rows if pairs != [(name, 1.0)])]
        twice = sorted({name for name in every if every.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(map(repr, twice))} more than once: every name once")
        shares_GH = tuple(tuple(dict(pairs).get(leaf, 0.0) for leaf in leaves) for _, pairs in rows)
        return cls(tuple(name for name, _ in rows), leaves, shares_GH)

    @property
    def is_flat(self) -> bool:
        """True if the environment pays exactly the names that a preference weights."""
        return self.names == self.leaves


def listed(given: Any) -> Any:
    """Mappings as lists of one-key mappings, so that storage keeps their order, which is that of the reward vector."""
    if isinstance(given, Mapping):
        return [{name: _below(node)} for name, node in given.items()]
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [{name: _below(node) for name, node in e.items()} if isinstance(e, Mapping) else e for e in given]
    return given


def _below(node: Any) -> Any:
    if isinstance(node, Mapping) and node.keys() == INNER and isinstance(node["parts"], Mapping | list | tuple):
        return {"weight": node["weight"], "parts": listed(node["parts"])}
    return listed(node)


def _row(entry: Any) -> tuple[str, list[tuple[str, float]]]:
    """A top-level name, and the share of each of its leaves."""
    if isinstance(entry, str) and entry:
        return entry, [(entry, 1.0)]
    name, node = _pair(entry)
    if isinstance(node, list):
        return name, list(_leaves(name, node))
    if node != 1:
        raise ValueError(f"{name}={node!r}: what a preference weighs has weight 1, or parts with weights")
    return name, [(name, 1.0)]


def _leaves(path: str, parts: list[Any]) -> Iterator[tuple[str, float]]:
    """Each leaf with the product of the weights above it."""
    pairs = [_pair(part) for part in parts]
    weights = [_weight(f"{path}.{name}", node) for name, node in pairs]
    if not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
        raise ValueError(f"{path}: the weights of its parts sum to {sum(weights):g}, and must sum to 1")
    for (name, node), weight in zip(pairs, weights, strict=True):
        if isinstance(node, Mapping):
            yield from ((leaf, weight * share) for leaf, share in _leaves(f"{path}.{name}", node["parts"]))
        else:
            yield name, weight


def _weight(path: str, node: Any) -> float:
    given = node["weight"] if isinstance(node, Mapping) else node
    if isinstance(node, list):
        raise ValueError(f"{path}: a group within a group is {{weight: ..., parts: {{...}}}}")
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise ValueError(f"{path}: a weight is a positive number, got {given!r}")
    return float(given)


def _pair(entry: Any) -> tuple[str, Any]:
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise ValueError(f"{entry!r:.80}: a name, or one name with its parts, is needed")
    ((name, node),) = entry.items()
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r}: a name is needed")
    return name, node


class _Drawn(Config):
    """The source of episodes' preferences."""

    @property
    def always(self) -> tuple[float, ...] | None:
        """The preference of every episode; None if they differ."""
        return None


class SampledPreference(_Drawn):
    """A preference per episode, drawn uniformly over all weights that sum to 1."""

    kind: Literal["sampled"] = "sampled"


def _sum_to_one(weights: tuple[float, ...]) -> tuple[float, ...]:
    if not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
        raise ValueError(f"weights={weights} sum to {sum(weights):g}: they must sum to 1")
    return weights


Weights = Annotated[tuple[NonNegative, ...], AfterValidator(_sum_to_one)]
"""One for each objective; they sum to 1."""


class FixedPreference(_Drawn):
    """The same preference in every episode."""

    kind: Literal["fixed"] = "fixed"
    weights: Weights
    """Weight of each objective; they sum to 1."""

    @property
    def always(self) -> tuple[float, ...]:
        """The fixed weights."""
        return self.weights


class AdaptivePreference(_Drawn):
    """Adapts to the objectives whose mean return is furthest behind the best on the front.

    A share of the episodes has it; the others are drawn as `sampled` ones, so that the policy stays steerable.
    """

    kind: Literal["adaptive"] = "adaptive"
    momentum: Fraction = 0.9
    """Momentum of the preference between updates."""
    share: Share = 0.5
    """Share of episodes with the adapted preference; the others are sampled."""
    episodes: PositiveInt = 32
    """Episodes between updates of the preference, over which distances are measured."""


class ConstrainedPreference(_Drawn):
    """Keeps objectives above thresholds, with priority over the others.

    An objective below its threshold gets a multiplier that grows until the threshold is met; the rest is `weights`, or
    is drawn as `sampled` ones.
    """

    kind: Literal["constrained"] = "constrained"
    least: dict[str, float] = Field(min_length=1)
    """Minimum mean discounted return per objective."""
    weights: Weights | None = None
    """Weights while all thresholds are met; null draws them for every episode."""
    rate: Positive = 0.1
    """Growth of a multiplier while the mean is one width of the front below its threshold."""
    damping: NonNegative = 1.0
    """Weight of the current shortfall in the multiplier; without it the multiplier oscillates."""
    ceiling: Positive = 20.0
    """Maximum of a multiplier; reaching it logs that the threshold is out of reach."""
    episodes: PositiveInt = 32
    """Episodes between updates of the multipliers, over which means are taken."""

    @property
    def always(self) -> tuple[float, ...] | None:
        """The fixed weights, if any."""
        return self.weights


Preference = Annotated[
    SampledPreference | FixedPreference | AdaptivePreference | ConstrainedPreference, Field(discriminator="kind")
]


class Linear(Config):
    """The weighted sum of objectives, which reaches only the convex part of a front."""

    kind: Literal["linear"] = "linear"


class Chebyshev(Config):
    """The weighted distance of the worst objective from the best known, which reaches every part of a front.

    Distances are in units of the front found so far. Returns up to now become part of the observation.
    """

    kind: Literal["chebyshev"] = "chebyshev"
    slope: Positive = 0.05
    """Share of the weighted sum that is added so that every objective counts."""


Scalarisation = Annotated[Linear | Chebyshev, Field(discriminator="kind")]


class Exploration(Config):
    """Exploration of one expert, relative to the others."""

    temperature: Positive = 1.0
    """Divisor of logits and factor of standard deviations."""
    epsilon: Fraction = 0.0
    """Probability of a uniformly random action; discrete actions only."""
    entropy: NonNegative = 1.0
    """Factor of `entropy_coefficient` for this expert."""
    curiosity: NonNegative = 1.0
    """Weight of novelty in this expert's training."""


def _sound(given: tuple[Any, ...]) -> tuple[Any, ...]:
    Objectives.of(given)
    return given


class Woven(Config):
    """Settings of WEAVE that control and language share."""

    experts: PositiveInt = 4
    """Number of experts in the policy."""
    critics: PositiveInt = 4
    """Number of critics."""
    objectives: Annotated[tuple[Any, ...], BeforeValidator(listed), AfterValidator(_sound)] = ()
    """Names of the objectives: one per entry of the reward vector, or names of parts of the reward (`info["parts"]` for
    control); empty for a scalar reward. Or a tree such as `{task: {completion: 0.8, creativity: 0.2}, safety:
    {collisions: 1}}`: preferences weigh the top level, the environment pays the leaves."""
    preference: Preference = SampledPreference()
    """How the preference among objectives is chosen per episode."""
    reference: tuple[float, ...] | None = None
    """Reference returns, one per objective, for the hypervolume of a front."""
    least_use: Fraction = 0.8
    """Minimum use of an expert, as a share of an equal split; below it, use is rewarded."""
    balance: NonNegative = 1.0
    """Loss per e-fold by which an expert's use is below `least_use`."""
    pessimism: NonNegative = 0.0
    """Number of standard deviations among critics by which value estimates are lowered."""
    critic_share: float = Field(0.8, gt=0, le=1)
    """Share of steps on which each of several critics is trained, so that they differ where data is scarce."""
    trust_memory: Fraction = 0.9
    """Decay of the critics' error estimates between updates; trust is their inverse."""

    @model_validator(mode="after")
    def _check_threads(self) -> Self:
        if self.pessimism and self.critics == 1:
            raise ValueError("pessimism: one critic agrees with itself, ask for more critics")
        if not self.objectives:
            self._refuse_without_objectives("preference", "reference")
            return self
        names = self.tree.names
        asked = self.preference
        for name, given in (("preference.weights", asked.always), ("reference", self.reference)):
            if given is not None and len(given) != len(names):
                raise ValueError(f"{name}={given}: {len(names)} are needed, one for each of objectives")
        strange = sorted({*asked.least} - {*names}) if isinstance(asked, ConstrainedPreference) else ()
        if strange:
            raise ValueError(f"preference.least: no objective is named {', '.join(strange)}; known: {', '.join(names)}")
        return self

    @property
    def tree(self) -> Objectives:
        """The objectives as a tree."""
        return Objectives.of(self.objectives)

    def _refuse_without_objectives(self, *names: str) -> None:
        """Refuse settings that have no effect without objectives."""
        for name in names:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect without objectives: name the objectives, or leave it out")


class Weave(ControlPPO, Woven):
    """PPO with experts for the policy, critics for the value, and objectives for the reward."""

    kind: Literal["weave"] = "weave"  # type: ignore[assignment]
    exploration: tuple[Exploration, ...] = ()
    """Exploration of each expert; empty means the same for all."""
    squashed: bool = False
    """Keep real-valued actions within bounds by a hyperbolic tangent, with state-dependent standard deviations;
    otherwise they are clipped."""
    diversity: NonNegative = 0.0
    """Reward per nat of information that an action carries about its expert."""
    scalarisation: Scalarisation = Linear()
    """Scalarisation of several objectives."""
    wonder: NonNegative = 0.0
    """Reward for the critics' disagreement about the next observation, in its standard deviations."""

    @property
    def pays_novelty(self) -> bool:
        """True if novelty has a value function of its own, so that experts can weight it differently."""
        apart = bool(self.objectives) or any(way.curiosity != 1 for way in self.exploration)
        return self.wonder > 0 or (self.curiosity is not None and apart)

    @model_validator(mode="after")
    def _check_ways(self) -> Self:
        if self.exploration and len(self.exploration) != self.experts:
            raise ValueError(f"exploration: {len(self.exploration)} are given, one for each of {self.experts} experts")
        if self.diversity and self.experts == 1:
            raise ValueError("diversity: one expert differs from none, ask for more experts")
        if self.wonder and self.critics == 1:
            raise ValueError("wonder: one critic agrees with itself, ask for more critics")
        if not self.objectives:
            self._refuse_without_objectives("scalarisation")
        return self
