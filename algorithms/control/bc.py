"""Behaviour cloning. Compare with `iql.py`: the files differ only where the algorithms do."""

from typing import Any

from typing_extensions import override

from loomrl.algorithms.control import translation
from loomrl.algorithms.control.offline import Batch, LoggedConfig, LoggedLearner, LoggedStep
from loomrl.config import control as settings
from loomrl.telemetry.metric import Metric

ACTOR = "actor"


class BCLearner(LoggedLearner):
    """Makes the logged actions likely."""

    @override
    def improve(self, batch: Batch) -> None:
        """A step of the policy."""
        net = self.own.net
        inputs = net.decide(net.features(batch["seen"]), batch["seen"])
        loss = -self.distribution.logp(inputs, batch["actions"]).mean()
        self.tend(ACTOR, loss)
        self.keep_spread()
        self.log(Metric.POLICY_LOSS, loss)
        self.log(Metric.POLICY_ENTROPY, self.distribution.entropy(inputs).mean())

    @override
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam over everything but the value function, which is not learnt."""
        net = self._module[module_id].net
        self.adam(
            module_id,
            ACTOR,
            [p for name, p in net.named_parameters() if not name.startswith("critic.")],
            rate=self.config.settings.learning_rate,
        )


class BCConfig(LoggedConfig):
    """`BCConfig().environment("CartPole-v1").logged(minari="cartpole/mixed-v0").build_algo()`."""

    settings_class = settings.BC
    words = translation.OFFLINE
    fast_learner = BCLearner

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class or BC)


class BC(LoggedStep):
    """Behaviour cloning as an RLlib Algorithm."""

    needs_rewards = False

    @classmethod
    @override
    def get_default_config(cls) -> BCConfig:
        """The defaults of `BC`'s settings."""
        return BCConfig(cls)
