"""WEAVE: PPO of several threads. Beside `ppo.py`: what differs between the files is what differs.

π(a|s) = Σ wₖ(s) πₖ(a|s)   weighted experts: `Mixture`, `WeaveNet.policy`
V(s) = Σ αⱼ Vⱼ(s) / Z      critics by their trust: `WeaveNet.woven`
R(s, a) = Σ βₕ Rₕ(s, a)    objectives by the episode's preference: `WeaveLearner._combine_advantages`

Axes: `_T` steps, `_N` environments, `_S` steps of the table, `_B` of a minibatch, `_K` experts, `_M` critics, `_G`
objectives that a preference weighs, `_H` those that are paid, `_C` columns of value: those, then the utility.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.metrics import LEARNER_RESULTS
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.advantage import explained_variance, gae, has_signal
from loomrl.algorithms.control.algorithm import Brought
from loomrl.algorithms.control.learner import ControlWork
from loomrl.algorithms.control.module import WeaveModule
from loomrl.algorithms.control.ppo import PPO, PPOConfig, PPOLearner
from loomrl.algorithms.control.probe import probe
from loomrl.algorithms.control.rollout import WINDOW, Rollout, Table, flatten_observations
from loomrl.algorithms.control.weave_runner import WeaveRunner, collect_steered, earns, nodes
from loomrl.algorithms.control.weave_threads import Experts, Wonder, learn_trust
from loomrl.algorithms.losses import value_loss
from loomrl.algorithms.moving import by, open_moving, warn_of_constants
from loomrl.config.weave import Weave as Settings
from loomrl.control.network import Normalizer
from loomrl.control.preference import Preferred, Steering, group_returns, preference_in, returns_in
from loomrl.control.weave import CriticJudgement, Mixture, Threads
from loomrl.errors import ConfigError
from loomrl.evaluation.front import ParetoFront
from loomrl.telemetry.metric import Metric

Floats = NDArray[np.floating[Any]]


def chebyshev(returns_H: Floats, preference_H: Floats, *, best_H: Floats, width_H: Floats, slope: float) -> Floats:
    """Minus the greatest weighted distance from the best known returns, and a small share of their sum.

    Distances are in widths of the front. Leading axes may be any.
    """
    behind_H = preference_H * (best_H - returns_H) / width_H
    utility: Floats = -(behind_H.max(-1) + slope * behind_H.sum(-1))
    return utility


def utility_gain(
    earned_TNH: Floats, preference_TNH: Floats, *, best_H: Floats, width_H: Floats, slope: float
) -> NDArray[np.float32]:
    """Each step's change in the utility of the returns so far, `[T, N]`; `earned` has one step more.

    Over an episode it sums to the utility of its return, up to the initial constant.
    """
    before, after = (
        chebyshev(earned, preference_TNH, best_H=best_H, width_H=width_H, slope=slope)
        for earned in (earned_TNH[:-1], earned_TNH[1:])
    )
    return (after - before).astype(np.float32)


Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WeaveWork(ControlWork):
    """PPO's work with the scale for distances to the front: the best and the width of every objective.

    Multipliers are for objectives held above thresholds.
    """

    best_G: Array = field(default_factory=lambda: np.zeros(0))
    width_G: Array = field(default_factory=lambda: np.ones(0))
    multipliers_G: Array = field(default_factory=lambda: np.zeros(0))


class WeaveLearner(PPOLearner):
    """Learns experts, their weights and critics from steps of the current policy."""

    @override
    def build(self) -> None:
        """Build, with a scale for every objective."""
        super().build()
        settings = self.config.settings
        paid = max(1, len(settings.tree.leaves))
        self._scale = Normalizer(paid)
        self._wonder = Wonder(self, settings.wonder, columns=paid) if settings.wonder else None
        self.parts["wonder"] = self._wonder
        self._is_vector = self.own.net.threads.is_vector
        self._experts = Experts(self, settings)

    def _loss(self, batch: Table, work: ControlWork) -> tuple[Tensor, Tensor]:
        inputs, values_BMC = self.forward(batch)
        mixture = self.distribution
        distribution, folded = mixture.fold(inputs) if isinstance(mixture, Mixture) else (mixture, inputs)
        loss, kl = self._whole_loss(distribution, folded, self._value_loss(values_BMC, batch), batch, work)
        return loss + self._experts.loss(inputs, batch["actions"], work.entropy), kl

    def _value_loss(self, values_BMC: Tensor, batch: Table) -> Tensor:
        """The loss of every critic over its share of the steps."""
        old, returns = (batch[name].view(len(values_BMC), 1, -1) for name in ("values", "returns"))
        loss_BMC = value_loss(values_BMC, old, returns, clip=self.config.settings.value_clip)
        if "share" in batch:
            loss_BMC = loss_BMC * batch["share"][:, :, None]
        return loss_BMC.mean()

    def _table(self, work: ControlWork) -> Table:
        """Every step with an action, with all data that must be computed before the policy changes."""
        settings = self.config.settings
        rollouts = work.rollouts
        rewards = self.scale_rewards(rollouts)
        if self._curiosity is not None and not settings.pays_novelty:
            rewards = self._curiosity.add_reward(rollouts, rewards)
        if earns(settings):
            rewards = [self._with_utility(*pair, work) for pair in zip(rollouts, rewards, strict=True)]
        judged = [self._judge_observations(rollout) for rollout in rollouts]
        if settings.pays_novelty:
            rewards = self._with_novelty(rollouts, rewards, judged)
        parts = [self._rows(*each) for each in zip(rollouts, rewards, judged, strict=True)]
        table = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        explained = [
            explained_variance(values.numpy(), returns.numpy())
            for values, returns in zip(self._columns(table["values"]), self._columns(table["returns"]), strict=True)
        ]
        self.log(Metric.VALUE_EXPLAINED_VARIANCE, torch.tensor(float(np.mean(explained))))
        learn_trust(self, rollouts, judged, table["returns"], memory=settings.trust_memory)
        self._experts.tell(rollouts)
        table["advantages"] = self._combine_advantages(table, work)
        if settings.critics > 1 and settings.critic_share < 1:
            drawn_SM = torch.rand(len(table["logp"]), settings.critics, generator=self._chance)
            table["share"] = (drawn_SM < settings.critic_share) / settings.critic_share
        return {name: column.to(self._device) for name, column in table.items()}

    def _judge_observations(self, rollout: Rollout) -> CriticJudgement:
        """Every critic's judgement of all observations, by step and environment."""
        net = self.own.net
        with torch.no_grad():
            features_KF = net.features(*flatten_observations(rollout, self._device))
            return CriticJudgement(*(numbers.cpu() for numbers in net.judge(features_KF)))

    def _rows(self, rollout: Rollout, rewards_TN: Tensor, judged: CriticJudgement) -> Table:
        values_TN = self.own.net.woven(judged).unflatten(0, rollout.seen.shape[:2])
        rows = self._select_rows(rollout, values_TN, self._advantages(rollout, rewards_TN, values_TN))
        if self.config.settings.pays_novelty:
            inputs = torch.from_numpy(rollout.inputs)[torch.from_numpy(rollout.valid)]
            rows["curious"] = self._experts.curious(inputs, rows["actions"])
        return rows

    def _advantages(self, rollout: Rollout, rewards: Tensor, values: Tensor) -> Tensor:
        """Advantages of every column; utility covers whole episodes and is not discounted again."""
        settings = self.config.settings
        columns = []
        for c, (paid, expected) in enumerate(zip(self._columns(rewards), self._columns(values), strict=True)):
            gamma = 1.0 if earns(settings) and c == len(settings.tree.leaves) else settings.gamma
            found = gae(
                paid.numpy(),
                expected.numpy(),
                rollout.terminated,
                rollout.ended,
                gamma=gamma,
                lam=settings.gae_lambda,
            )
            columns.append(torch.from_numpy(found))
        return torch.stack(columns, -1) if self._is_vector else columns[0]

    def _columns(self, numbers: Tensor) -> Sequence[Tensor]:
        """`[…, C]` by column; a scalar reward has one."""
        return numbers.unbind(-1) if self._is_vector else (numbers,)

    # -- objectives -------------------------------------------------------------------------------------------------

    def scale_rewards(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Scaled rewards; with objectives, each is divided by its own standard deviation."""
        if not self.config.settings.objectives:
            return super().scale_rewards(rollouts)
        rewards = [torch.from_numpy(rollout.rewards) for rollout in rollouts]
        if not self.config.settings.normalize_rewards:
            return rewards
        returns = [torch.from_numpy(r.discounted[r.valid]) for r in rollouts if r.discounted is not None]
        self.gather(self._scale, torch.cat(returns))
        return [(reward / (self._scale.variance.sqrt() + 1e-8)).clamp(-10, 10) for reward in rewards]

    def _with_utility(self, rollout: Rollout, rewards_TNH: Tensor, work: Any) -> Tensor:
        """Rewards with one more column: the change of the episode's utility at each step."""
        count = len(self.config.settings.objectives)
        scalarisation = self.config.settings.scalarisation
        utility_TN = utility_gain(
            returns_in(rollout.seen, count),
            preference_in(rollout.seen[:-1], count, earns=True),
            best_H=work.best_G,
            width_H=work.width_G,
            slope=scalarisation.slope,
        )
        utility_TN[~rollout.valid] = 0
        return torch.cat([rewards_TNH, torch.from_numpy(utility_TN)[..., None]], -1)

    def _combine_advantages(self, table: Table, work: Any) -> Tensor:
        """Â = (Σ βₕ Âₕ + Σ λₕ Âₕ) / (1 + Σ λₕ), each normalised separately; the first sum may be the utility's.

        Novelty is added for the experts that it trains.
        """
        settings = self.config.settings
        advantages = table["advantages"]
        if not self._is_vector:
            return self._normal(advantages)
        novelty = table.pop("curious") * self._normal(advantages[:, -1]) if settings.pays_novelty else 0.0
        if not settings.objectives:
            return self._normal(advantages[:, 0]) + novelty
        held_G = torch.as_tensor(work.multipliers_G, dtype=torch.float32)
        tree_GH = torch.tensor(settings.tree.shares_GH)
        paid = tree_GH.shape[1]
        if earns(settings) and not held_G.any():
            return self._normal(advantages[:, paid]) + novelty
        each_SH = torch.stack([self._normal(column) for column in advantages.unbind(-1)[:paid]], -1)
        if earns(settings):
            asked_S = self._normal(advantages[:, paid])
        else:
            weights_SG: Tensor = preference_in(table["seen"], len(settings.objectives), earns=False)
            asked_S = (weights_SG @ tree_GH * each_SH).sum(-1)
        return (asked_S + each_SH @ (held_G @ tree_GH)) / (1 + held_G.sum()) + novelty

    def _normal(self, advantages_S: Tensor) -> Tensor:
        """Normalised if configured; a constant column has no signal and becomes zero."""
        if not self.config.settings.normalize_advantages:
            return advantages_S
        if self._is_vector and not self.reduce(torch.tensor(has_signal(advantages_S.numpy()), dtype=torch.float)):
            return torch.zeros_like(advantages_S)
        return self.whiten(advantages_S)

    # -- critics and novelty ----------------------------------------------------------------------------------------

    def _with_novelty(
        self, rollouts: Sequence[Rollout], rewards: Sequence[Tensor], judged: Sequence[CriticJudgement]
    ) -> list[Tensor]:
        """Rewards with one more column for novelty: curiosity, and the critics' disagreement."""
        paid = [torch.zeros(rollout.valid.shape) for rollout in rollouts]
        if self._curiosity is not None:
            paid = self._curiosity.add_reward(rollouts, paid)
        if self._wonder is not None:
            paid = [one + more for one, more in zip(paid, self._wonder.reward(rollouts, judged), strict=True)]
        wide = rewards if self.config.settings.objectives else [reward[..., None] for reward in rewards]
        return [torch.cat([reward, one[..., None]], -1) for reward, one in zip(wide, paid, strict=True)]


class WeaveConfig(PPOConfig):
    """`WeaveConfig().environment("CartPole-v1").training(experts=2, critics=3).build_algo()`."""

    settings_class = Settings
    fast_learner = WeaveLearner
    team_learner = None
    fast_runner = WeaveRunner

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class or Weave)

    def look(self) -> None:
        """Refuse an environment that cannot be trained on, or whose rewards do not match the named objectives."""
        steering = Steering.of(self.settings)
        wrap = partial(Preferred, steering=steering) if self.settings.objectives else (lambda made: made)
        probe(self.env, self.env_config, wrap=wrap)

    def our_spec(self) -> RLModuleSpec:
        """The module, with this many experts and critics."""
        settings = self.settings
        spec = super().our_spec()
        spec.module_class = WeaveModule
        count = len(settings.tree.leaves)
        spec.model_config["threads"] = Threads(
            experts=settings.experts,
            critics=settings.critics,
            columns=max(1, count) + earns(settings) + settings.pays_novelty,
            is_vector=count > 0 or settings.pays_novelty,
            temperatures=_unless_all(1.0, [way.temperature for way in settings.exploration]),
            epsilons=_unless_all(0.0, [way.epsilon for way in settings.exploration]),
            squashed=settings.squashed,
            pessimism=settings.pessimism,
        )
        return spec

    def _use_rllib_learner(self) -> None:
        raise ConfigError(
            f"weave has no way through RLlib's own runner and learner, which are needed because of "
            f"{'; '.join(self.fallback_reasons)}. Leave that out, or use ppo."
        )


class Weave(PPO):
    """WEAVE as an RLlib Algorithm; keeps the front found so far."""

    @classmethod
    @override
    def get_default_config(cls) -> WeaveConfig:
        """The defaults of `loomrl.config.weave.Weave`."""
        return WeaveConfig(cls)

    @override
    def setup(self, config: PPOConfig) -> None:
        """With an empty front."""
        super().setup(config)
        settings = self.config.settings
        self.front = ParetoFront(settings.reference)
        self.moving = open_moving(settings)
        self._nodes: dict[str, float] = {}

    def make_request(self, random: bool) -> Callable[[Any], Brought]:
        """Sampling with the current regions of preferences; those of lost nodes go to the others."""
        if not self.config.settings.objectives:
            return super().make_request(random)
        alive = sorted(self.env_runner_group.healthy_env_runner_ids()) if self.config.num_env_runners else [0]
        sources = {index: self.moving.source(part, len(alive)) for part, index in enumerate(alive)}
        return partial(collect_steered, random=random, sources=sources)

    def record_rollouts(self, rollouts: Sequence[Rollout], counted: Sequence[Any]) -> None:
        """Count results as PPO does; episodes may also extend the front, and move preferences and multipliers."""
        super().record_rollouts(rollouts, counted)
        settings = self.config.settings
        self._nodes = nodes(rollouts, settings) if self.config.num_env_runners else {}
        parts = [episode.parts for rollout in rollouts for episode in rollout.episodes]
        if not settings.objectives or not parts:
            return
        returns_PG = group_returns(parts, settings.tree)
        self.front.observe(returns_PG)
        warn_of_constants(settings.tree.leaves, [episode.parts for episode in self.window.latest], enough=WINDOW)
        best_G, width_G = self.front.span(len(settings.objectives))
        self.moving.observe(returns_PG, best_G=best_G, width_G=width_G)

    def work(self, share: tuple[Rollout, ...]) -> ControlWork:
        """PPO's work, with the scale for distances to the front."""
        work = super().work(share)
        best_G, width_G = self.front.span(len(self.config.settings.objectives))
        return WeaveWork(work.rollouts, work.rate, work.entropy, best_G, width_G, self.moving.multipliers_G)

    def metrics_of(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Includes the use of every expert, returns and weights of every objective, and figures of every node."""
        found = super().metrics_of(result)
        learnt = result.get(LEARNER_RESULTS, {}).get(DEFAULT_MODULE_ID, {})
        found |= {name: float(learnt[name]) for name in learnt if name.startswith(Metric.EXPERT_USE.of(""))}
        parts = [episode.parts for episode in self.window.latest if episode.parts]
        tree = self.config.settings.tree
        if parts:
            leaves = np.mean(parts, axis=0)
            names = group_returns(np.mean(parts, axis=0), tree)
            found |= by(Metric.RETURN_OBJECTIVE, tree.names, names) | by(Metric.RETURN_OBJECTIVE, tree.leaves, leaves)
        return found | self.moving.metrics() | self._nodes

    @override
    def state_dict(self) -> dict[str, Any]:
        moving = self.moving.state_dict() | {"kind": self.config.settings.preference.kind}
        return super().state_dict() | {"front": self.front.state_dict(), "moving": moving}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Preferences that moved by other settings start fresh."""
        super().load_state_dict(state)
        self.front.load_state_dict(state["front"])
        moved = state.get("moving", {})
        if moved.get("kind") == self.config.settings.preference.kind:
            self.moving.load_state_dict(moved)


def _unless_all(usual: float, numbers: Sequence[float]) -> tuple[float, ...]:
    return () if all(number == usual for number in numbers) else tuple(numbers)
