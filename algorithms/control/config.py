"""The RLlib configuration that control algorithms share: our settings and RLlib's, under either's names."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.from_config import NotProvided
from ray.tune.registry import register_env
from ray.util.debug import log_once
from typing_extensions import override

from loomrl.algorithms.control import translation
from loomrl.algorithms.control.module import ActorModule, ControlModule
from loomrl.algorithms.control.probe import is_registered, probe, refuse_mask
from loomrl.algorithms.control.runner import ArrayRunner
from loomrl.algorithms.control.team import AgentMapping, TeamRunner, assign
from loomrl.algorithms.control.translation import Changes, RLlibSetting, reasons
from loomrl.algorithms.names import NamedConfig
from loomrl.algorithms.resources import place
from loomrl.canonical import content_hash
from loomrl.config import ControlExperiment, CustomAlgorithm, Placement
from loomrl.config.control import ControlAlgorithm
from loomrl.control.environment import (
    NATIVE,
    SYNC,
    Creator,
    agents_in,
    label,
    native_or_sync,
    policies_of,
    refuse_other_spaces,
)
from loomrl.errors import ConfigError
from loomrl.schema import merge, nest

_log = logging.getLogger(__name__)

OUR_LAYERS = ("layer_norm", "orthogonal", "log_std", "memory", "features")
"""Network settings that RLlib's own modules lack."""
STOCK_TRAINING = {
    *("learner_class", "learner_connector", "add_default_connectors_to_learner_pipeline", "learner_config_dict"),
}
"""Keywords of RLlib's `training` that are not settings of an algorithm."""
AUTO = "auto"
"""Value of `gym_env_vectorize_mode` for an environment's own vector form, if it has one."""


class ControlConfig(NamedConfig):
    """Mixed into RLlib's configuration of the same algorithm. `settings` define the algorithm; the rest is RLlib's.

    `training(learning_rate=1e-3)` changes settings by their names in an experiment. Tune can search any of them:
    `training(learning_rate=tune.grid_search([1e-4, 1e-3]))`.
    """

    env_runner_cls: Any
    rollout_fragment_length: Any
    """Steps, or RLlib's "auto"."""
    _rl_module_spec: Any
    settings_class: ClassVar[type[ControlAlgorithm]]
    words: ClassVar[dict[str, RLlibSetting]]
    """RLlib's names for settings of the algorithm."""
    unshaped: ClassVar[frozenset[str]] = frozenset()
    """RLlib's model settings that do not apply to this algorithm's networks."""
    shaping: ClassVar[frozenset[str]] = frozenset()
    """Settings beside `network` that determine the meaning of the weights."""
    settings: Any
    fast_learner: ClassVar[type]
    stock_learner: ClassVar[type]
    team_learner: ClassVar[type | None] = None
    """Our learner of several policies; None: RLlib's alone."""
    fast_runner: ClassVar[type[ArrayRunner]] = ArrayRunner
    team_runner: ClassVar[type[ArrayRunner]] = TeamRunner
    stock_settings: ClassVar[frozenset[str]] = frozenset({"network", "gamma", "clip_norm"})
    """Settings that RLlib's own learner supports too."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class)
        self.changes: dict[str, Any] = {}
        self.settings = self.settings_class()
        self.steps: int | None = None
        """Steps of the whole run, for schedules."""
        self.fallback_reasons: tuple[str, ...] = ()
        """The reasons for using RLlib's own runner and learner; empty if ours are used."""
        self.team: dict[str, tuple[Any, ...]] = {}
        """The agents of each policy, if ours teach several."""
        self.env_runner_cls = self.fast_runner
        self.gym_env_vectorize_mode = AUTO
        self.num_env_runners = 0
        self.placement = Placement()
        self.num_envs_per_env_runner = 8
        self.rollout_fragment_length = 128
        self.told: dict[str, Any] = {}
        """The RLlib settings derived from ours; any that differ were set by the user since."""
        self.adopted: frozenset[str] = frozenset()
        """Settings given under RLlib's names."""
        self.tell_rllib()

    @classmethod
    def of(cls, experiment: ControlExperiment, *, run: str | None = None) -> Self:
        """The configuration of this experiment; `run` is for algorithms that keep records of their own."""
        config = cls()
        rollout = experiment.rollout
        choice = experiment.environment
        stages = [settings for settings, _ in experiment.stages]
        refuse_other_spaces(choice, stages)
        form = f"{choice.vectorization}/info_mask" if choice.info_mask else choice.vectorization
        if choice.wrappers:
            form += f"/{content_hash([one.model_dump() for one in choice.wrappers])[:12]}"
        name = f"{label(choice)}/{form}"
        first = stages[0]
        register_env(name, Creator(choice))
        if policies := policies_of(choice):
            owner = {agent: policy for policy, agents in policies.items() for agent in agents}
            config.multi_agent(policies={*policies}, policy_mapping_fn=owner)
        config.environment(name, env_config=first)
        config.env_runners(
            num_env_runners=rollout.runners,
            num_envs_per_env_runner=(rollout.environments or config.num_envs_per_env_runner)
            * (1 if policies else agents_in(choice, first)),
            rollout_fragment_length=rollout.steps or config.rollout_fragment_length,
            gym_env_vectorize_mode=NATIVE,
        )
        config.learners(num_learners=experiment.learners.count, num_gpus_per_learner=experiment.learners.gpus)
        place(config, experiment.placement, runners="rollout.runners", learners="learners.count")
        config.fault_tolerance(delay_between_env_runner_restarts_s=0)
        config.reporting(min_sample_timesteps_per_iteration=experiment.train.tell_every)
        config.debugging(seed=experiment.seed)
        chosen = _chosen(experiment.algorithm)
        config.changes |= {name: chosen.pop(name) for name in cls.by_rllib & chosen.keys()}
        return config.training(steps=experiment.train.steps, **chosen)

    @override
    def training(self, *, steps: int | None = None, **settings: Any) -> Self:
        """Settings of the algorithm by our names or by RLlib's, and the steps of the whole run."""
        self.steps = steps if steps is not None else self.steps
        for name in settings.keys() & STOCK_TRAINING:
            super().training(**{name: settings.pop(name)})
        known = [name for name in settings if translation.ALIASES.get(name, name) in self.words]
        self.set_theirs({name: settings.pop(name) for name in known if not self.is_ours(name)})
        self.changes |= settings
        return self

    @override
    def multi_agent(  # type: ignore[misc]  # of the configuration that this is mixed into
        self, *, policies: Any = NotProvided, policy_mapping_fn: Any = NotProvided, **settings: Any
    ) -> Self:
        """RLlib's settings of several policies; the mapping may also be a dictionary from agents to policies."""
        if isinstance(policies, set):
            policies = sorted(policies)  # a set has another order in every process, and so would random numbers
        if isinstance(policy_mapping_fn, Mapping) and "type" not in policy_mapping_fn:
            policy_mapping_fn = AgentMapping(policy_mapping_fn)
        super().multi_agent(  # type: ignore[misc]  # of the configuration that this is mixed into
            policies=policies, policy_mapping_fn=policy_mapping_fn, **settings
        )
        return self

    @property
    @override
    def ours(self) -> Collection[str]:
        return self.settings_class.model_fields.keys()

    @override
    def validate(self) -> None:
        """Resolve the settings, choose our or RLlib's learner, and derive RLlib's settings."""
        spec = self._rl_module_spec
        if isinstance(spec, RLModuleSpec) and spec.module_class is None and spec.model_config:
            self._model_config = spec.model_config
            self._rl_module_spec = replace(spec, model_config=None)
        base = type(self)()
        translation.refuse_unsupported(self, base)
        model = translation.model_of(self)
        shape, foreign = translation.network({n: v for n, v in model.items() if n not in self.unshaped})
        self._adopt(self.translate_settings(translation.changed_settings(self, base, self.told, self.words)) | shape)
        self.settings = self.settings_class.parse(
            merge(self.settings_class.defaults(), nest(self.changes)), origin=type(self).__name__
        )
        if not self.in_evaluation:  # whose way is that of training
            self.fallback_reasons = reasons(
                self, settings=translation.changed_settings(self, base, {}, translation.STOCK_ONLY), model=foreign
            )
            self.team = {}
            if self.is_multi_agent:
                team, further = assign(self)
                self.fallback_reasons += further
                self.team = {} if self.fallback_reasons else team
        if self.gym_env_vectorize_mode == AUTO:
            alone = self.fallback_reasons or is_registered(self.env)
            self.gym_env_vectorize_mode = SYNC if alone else native_or_sync(self.env)
        self.tell_rllib()
        if self.fallback_reasons:
            self._use_rllib_learner()
        else:
            self._check_shares()
            self._check_memory()
            self.env_runner_cls = self.team_runner if self.team else self.fast_runner
        self.told = {name: getattr(self, name) for name in self.words}
        log_once(f"{self.algo_class.__name__}_on_new_api_stack")
        super().validate()

    def translate_settings(self, theirs: dict[str, Any]) -> Changes:
        """Our settings for those given under RLlib's names."""
        return translation.translate(self.words, theirs)

    def _adopt(self, found: Changes) -> None:
        """Adopt settings given under RLlib's names; a ConfigError if they contradict ours."""
        for name, value in found.items():
            if name not in self.adopted and self.changes.get(name, value) != value:
                raise ConfigError(
                    f"{name}={self.changes[name]!r}, and {value!r} by RLlib's name for it: these are one setting. "
                    "Give it once."
                )
        self.changes |= found
        self.adopted |= found.keys()

    def refuse_unmasked(self) -> None:
        """A ConfigError if the environment has an action mask that the module would not obey."""
        spec = self._rl_module_spec
        foreign = spec.module_class if isinstance(spec, RLModuleSpec) else spec and type(spec)
        if self.fallback_reasons and foreign is None:
            refuse_mask(self.env, self.env_config, f"RLlib's own modules, used for {'; '.join(self.fallback_reasons)},")
        elif not self.fallback_reasons and foreign is not None and not issubclass(foreign, ActorModule):
            refuse_mask(self.env, self.env_config, f"a module of your own, {foreign.__name__},")

    def look(self) -> None:
        """Refuse an environment that cannot be trained on."""
        if not self.team:
            probe(self.env, self.env_config)

    def tell_rllib(self) -> None:
        """Copy our settings to RLlib's names."""
        raise NotImplementedError

    def stock_spec(self) -> RLModuleSpec:
        """RLlib's own module of the same shape."""
        raise NotImplementedError

    @property
    def noise_color(self) -> str:
        """Color of the noise of actions in rollouts."""
        return "white"

    @property
    def steps_per_update(self) -> int:
        """Environment steps of all runners per update; with several policies, of all agents."""
        agents = sum(map(len, self.team.values())) or 1
        return int(max(1, self.num_env_runners) * self.num_envs_per_env_runner * agents * self.rollout_fragment_length)

    def _check_shares(self) -> None:
        learners = max(1, self.num_learners)
        if self.num_envs_per_env_runner % learners:
            raise ConfigError(
                f"num_envs_per_env_runner={self.num_envs_per_env_runner} cannot be divided among "
                f"num_learners={learners}: choose a multiple of {learners}."
            )

    def _check_memory(self) -> None:
        """A ConfigError if the network's memory could not be trained, or would not be used."""
        settings = self.settings
        spec = self._rl_module_spec
        if settings.network.memory is None or self.in_evaluation:  # whose steps are not learnt from
            return
        if isinstance(spec, RLModuleSpec) and spec.module_class is not None:
            raise ConfigError(
                f"network.memory has no effect on a module of your own, {spec.module_class.__name__}. Leave it out, or "
                "leave out rl_module(…)."
            )
        self._check_sequences(max(1, self.num_learners))

    def _check_sequences(self, learners: int) -> None:
        """A ConfigError if a minibatch has no room for a sequence of a rollout's steps in every learner."""
        settings = self.settings
        if settings.minibatch_size < learners * self.rollout_fragment_length:
            raise ConfigError(
                f"minibatch_size={settings.minibatch_size}: with network.memory a minibatch has all "
                f"{self.rollout_fragment_length} steps of an environment (rollout.steps), in every learner. Choose "
                f"{learners * self.rollout_fragment_length} or more, or shorter rollouts."
            )

    def _use_rllib_learner(self) -> None:
        if self.env_runner_cls in (self.fast_runner, self.team_runner):
            self.env_runner_cls = None  # RLlib chooses one
        changed = {name.partition(".")[0] for name in self.changes}
        lost = sorted(changed - self.stock_settings | self.unknown_to_stock())
        if lost:
            raise ConfigError(
                f"{', '.join(lost)}: RLlib's own runner and learner, used for {'; '.join(self.fallback_reasons)}, "
                "do not know that. Leave it out, or leave out what keeps ours from being used."
            )
        if log_once(f"fallback {type(self).__name__} {self.fallback_reasons}"):
            _log.warning(
                "%s uses RLlib's own runner and learner, which are several times slower, because of: %s.",
                self.algo_class.__name__,
                "; ".join(self.fallback_reasons),
            )

    def unknown_to_stock(self) -> set[str]:
        """Settings whose values RLlib's own modules and learner do not support."""
        ours = self.settings.network
        usual = type(self.settings)().network
        return {f"network.{name}" for name in OUR_LAYERS if getattr(ours, name) != getattr(usual, name)}

    @override
    def get_default_learner_class(self) -> type:
        """Our learner if it supports the configuration, else RLlib's."""
        if self.fallback_reasons:
            return self.stock_learner
        return self.team_learner if self.team and self.team_learner else self.fast_learner

    @override
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Our module if it supports the configuration, else RLlib's."""
        if self.fallback_reasons:
            return self.stock_spec()
        return self.our_spec()

    def our_spec(self) -> RLModuleSpec:
        """The module that our learner trains."""
        network = {"network": self.settings.network, "normalize": self.settings.normalize_observations}
        return RLModuleSpec(module_class=ControlModule, model_config=network)

    def stock_model(self, shape: dict[str, Any]) -> dict[str, Any]:
        """The whole model configuration of RLlib's own modules: of this shape, unless the user set another."""
        return translation.USUAL | shape | translation.model_of(self)


def _chosen(algorithm: ControlAlgorithm | CustomAlgorithm) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    if isinstance(algorithm, CustomAlgorithm):
        return algorithm.settings
    chosen = algorithm.model_dump(mode="json", exclude={"kind"})
    usual = algorithm.defaults()
    return {name: value for name, value in chosen.items() if value != usual[name]}
