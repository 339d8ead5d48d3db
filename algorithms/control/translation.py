"""RLlib's settings: their names translated into ours, and features that need RLlib's own runner and learner.

An attribute of an RLlib configuration that differs from its initial value was set by the user, whether by
`training(lr=…)`, by `config.lr = …` or by a dictionary of Tune.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from math import inf
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils import force_list

from loomrl.errors import ConfigError

Changes = dict[str, Any]
"""Our settings to change, by dotted names."""


@dataclass(frozen=True, slots=True)
class RLlibSetting:
    """A setting of RLlib: `ours` of the same meaning, or None for a value without one; then `instead` is the
    message.
    """

    ours: Callable[[Any], Changes | None]
    instead: str


def rename(name: str, instead: str = "a number is needed, which schedules of ours then change") -> RLlibSetting:
    """The same setting under another name; RLlib's lists are schedules, which ours are not."""
    return RLlibSetting(lambda value: None if isinstance(value, list | tuple) else {name: value}, f"{name}: {instead}")


def only(*allowed: Any, instead: str) -> RLlibSetting:
    """A setting without counterpart, allowed only with these values."""
    return RLlibSetting(lambda value: {} if value in allowed else None, instead)


def _replay(value: Mapping[str, Any]) -> Changes | None:
    kind = getattr(value["type"], "__name__", value["type"]).removeprefix("MultiAgent")
    if kind not in ("EpisodeReplayBuffer", "PrioritizedEpisodeReplayBuffer") or value.keys() - REPLAY:
        return None
    weights = {"alpha": value.get("alpha", 0.6), "beta": value.get("beta", 0.4)}
    prioritized = weights if kind.startswith("Prioritized") else None
    return {"replay.capacity": value["capacity"], "replay.prioritized": prioritized}


def _epsilon(value: Any) -> Changes | None:
    """Constant, or RLlib's list of steps and shares if it is one line."""
    if not isinstance(value, list | tuple):
        return {"exploration.begin": value, "exploration.end": value}
    if len(value) != 2 or value[0][0] != 0:
        return None
    (_, begin), (steps, end) = value
    return {"exploration.begin": begin, "exploration.end": end, "exploration.steps": steps}


REPLAY = {"type", "capacity", "alpha", "beta"}
BATCH = "_train_batch_size_per_learner"
ALIASES = {"optimization_config": "optimization", "train_batch_size_per_learner": BATCH}
"""Keywords of RLlib's `training` whose attributes have other names."""
SCHEDULE = "schedule={kind: linear}, cosine or adaptive, which lets learning_rate fall over `steps`"
NETWORK = "network.hidden, network.activation, or rl_module(model_config=…)"
COMMON = {
    "gamma": rename("gamma"),
    "grad_clip": rename("clip_norm"),
    "grad_clip_by": only("global_norm", instead="clip_norm, which shortens the whole gradient"),
    "model": only(instead=NETWORK),
    "optimizer": only({}, instead="learning rates by their names; the optimizer is Adam"),
    "train_batch_size": only(instead="train_batch_size_per_learner"),
    "num_aggregator_actors_per_learner": only(0, instead="num_env_runners; nothing aggregates between them and us"),
}
PPO = COMMON | {
    "lr": rename("learning_rate", SCHEDULE),
    "lr_schedule": only(None, instead=SCHEDULE),
    "lambda_": rename("gae_lambda"),
    "clip_param": RLlibSetting(lambda value: {"clip.low": value, "clip.high": value}, "clip"),
    "entropy_coeff": rename("entropy_coefficient", "it falls to entropy_floor over `steps`"),
    "entropy_coeff_schedule": only(None, instead="entropy_coefficient, which falls to entropy_floor over `steps`"),
    "vf_loss_coeff": RLlibSetting(
        lambda value: {"value_coefficient": 2 * value}, "value_coefficient"
    ),  # of half the square
    "vf_clip_param": RLlibSetting(
        lambda value: {"value_clip": None} if value in (None, inf) else None,
        "value_clip, by which a value may move from the old one (RLlib's limits the squared error); or inf",
    ),
    "use_kl_loss": only(False, instead="target_kl, which ends an update that has moved the policy so far"),
    "kl_coeff": only(0, instead="target_kl, which ends an update that has moved the policy so far"),
    "kl_target": only(instead="target_kl, which ends an update that has moved the policy so far"),
    "use_critic": only(True, instead="value_coefficient and gae_lambda; the critic is always there"),
    "use_gae": only(True, instead="gae_lambda=1, which is the return itself less the value"),
    "num_epochs": rename("epochs"),
    "minibatch_size": rename("minibatch_size"),
    BATCH: rename("rollout_fragment_length"),
    "shuffle_batch_per_epoch": only(True, instead="epochs, each of which is shuffled"),
}
OFF_POLICY = COMMON | {
    "tau": rename("tau"),
    "n_step": rename("n_step", "one number of steps; they are not drawn"),
    BATCH: rename("batch"),
    "num_steps_sampled_before_learning_starts": rename("warmup"),
    "training_intensity": only(None, instead="updates_per_step, which is training_intensity / batch"),
    "replay_buffer_config": RLlibSetting(_replay, "replay={capacity, memory_gb, prioritized: {alpha, beta}}"),
    "store_buffer_in_checkpoints": only(True, instead="replay.capacity; what is remembered is part of checkpoints"),
    "num_epochs": only(1, instead="updates_per_step"),
    "minibatch_size": only(None, instead="batch"),
    "shuffle_batch_per_epoch": only(False, True, instead="batch, which is drawn at random"),
}
SAC = OFF_POLICY | {
    "lr": only(None, instead="actor_rate, critic_rate and temperature_rate"),
    "actor_lr": rename("actor_rate", "rates of sac stay as they are"),
    "critic_lr": rename("critic_rate", "rates of sac stay as they are"),
    "alpha_lr": rename("temperature_rate", "rates of sac stay as they are"),
    "initial_alpha": rename("initial_temperature"),
    "target_entropy": RLlibSetting(
        lambda value: {"target_entropy": None if value == "auto" else value}, "target_entropy"
    ),
    "twin_q": only(True, instead="twin critics, which sac always has"),
    "target_network_update_freq": only(0, 1, instead="tau; the targets follow with every update"),
    "q_model_config": only(instead=NETWORK),
    "policy_model_config": only(instead=NETWORK),
    "optimization": only(instead="actor_rate, critic_rate and temperature_rate"),
    "_deterministic_loss": only(False, instead="RLlib's SAC"),
    "_use_beta_distribution": only(False, instead="RLlib's SAC"),
}
DQN = OFF_POLICY | {
    "lr": rename("learning_rate", "the rate of dqn stays as it is"),
    "lr_schedule": only(None, instead="learning_rate; the rate of dqn stays as it is"),
    "target_network_update_freq": rename("target_every"),
    "double_q": rename("double"),
    "dueling": rename("dueling"),
    "epsilon": RLlibSetting(_epsilon, "exploration={begin, end, steps}, which falls in one line"),
    "num_atoms": only(1, instead="quantiles, which need no bounds (v_min, v_max)"),
    "v_min": only(instead="quantiles, which need no bounds"),
    "v_max": only(instead="quantiles, which need no bounds"),
    "noisy": only(False, instead="exploration"),
    "sigma0": only(instead="exploration"),
    "hiddens": only(instead=NETWORK),
    "adam_epsilon": only(1e-8, instead="learning_rate; the rest of Adam stays as it is"),
    "td_error_loss_fn": only("huber", instead="clip_norm; the loss is Huber's"),
    "categorical_distribution_temperature": only(1.0, instead="exploration"),
    "burn_in_len": only(0, instead="ppo with network.memory"),
    "before_learn_on_batch": only(None, instead="a learner of your own (docs/custom.md)"),
}
OFFLINE = COMMON | {
    "lr": rename("learning_rate", "rates of bc and iql stay as they are"),
    BATCH: rename("batch"),
    "num_epochs": only(1, instead="train.steps, which counts updates"),
    "minibatch_size": only(None, instead="batch"),
    "shuffle_batch_per_epoch": only(False, True, instead="batch, which is drawn at random"),
}
UNSUPPORTED = {
    "enable_rl_module_and_learner": "the new API stack; the old one is not supported: leave api_stack(…) out",
    "enable_env_runner_and_connector_v2": "the new API stack; the old one is not supported: leave api_stack(…) out",
    "input_": "RLlib's own algorithms (BC, MARWIL, CQL) for offline data; ours play in an environment",
    "framework_str": "torch, the only framework",
    "observation_filter": "normalize_observations=true",
    "num_gpus": "learners(num_gpus_per_learner=…)",
    "remote_worker_envs": "gym_env_vectorize_mode='async'",
}
"""Settings that neither ours nor RLlib's learner supports, with alternatives."""
STOCK_ONLY = (
    *("clip_actions", "normalize_actions", "clip_rewards", "action_mask_key", "compress_observations", "output"),
    *("episode_lookback_horizon", "episodes_to_numpy", "log_gradients", "algorithm_config_overrides_per_module"),
    *("torch_compile_learner", "torch_compile_worker", "torch_skip_nan_gradients"),
    *("_torch_grad_scaler_class", "_torch_lr_scheduler_classes"),
    *(f"add_default_connectors_to_{where}_pipeline" for where in ("env_to_module", "module_to_env", "learner")),
)
"""Features of RLlib's own runner and learner that ours lack."""
MODEL: dict[str, Callable[[Any], Changes]] = {
    "fcnet_hiddens": lambda value: {"network.hidden": tuple(value)},
    "fcnet_activation": lambda value: {"network.activation": {"swish": "silu"}.get(value, value)},
    "fcnet_use_layernorm": lambda value: {"network.layer_norm": value},
    "vf_share_layers": lambda value: {"network.shared": value},
}
"""Settings of RLlib's DefaultModelConfig that our networks share."""
USUAL = asdict(DefaultModelConfig())


def changed_settings(config: Any, base: Any, told: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The settings that differ both from an untouched configuration and from those that we set ourselves."""
    found = {name: getattr(config, name) for name in names if hasattr(base, name)}
    return {
        name: value
        for name, value in found.items()
        if value != getattr(base, name) and not (name in told and told[name] == value)
    }


def translate(words: Mapping[str, RLlibSetting], theirs: Mapping[str, Any]) -> Changes:
    """Our settings of the same meaning; a ConfigError names an alternative for every one without counterpart."""
    changes = Changes()
    refused = []
    for name, value in theirs.items():
        ours = words[name].ours(value)
        if ours is None:
            refused.append(
                f"{name.strip('_')}={value!r} is RLlib's and has no exact counterpart here; use {words[name].instead}."
            )
        changes |= ours or {}
    if refused:
        raise ConfigError(" ".join(refused))
    return changes


def refuse_unsupported(config: Any, base: Any) -> None:
    """A ConfigError for settings that neither we nor RLlib's own runner and learner support."""
    found = changed_settings(config, base, {}, UNSUPPORTED)
    if found:
        said = "; ".join(f"{name.rstrip('_')}={value!r}: use {UNSUPPORTED[name]}" for name, value in found.items())
        raise ConfigError(f"{config.algo_class.__name__} cannot do this: {said}.")


def model_of(config: Any) -> dict[str, Any]:
    """The settings in `rl_module(model_config=…)`; empty if the module is the user's own."""
    spec = config._rl_module_spec
    if spec is not None and (not isinstance(spec, RLModuleSpec) or spec.module_class is not None):
        return {}
    given = config._model_config
    return asdict(given) if is_dataclass(given) and not isinstance(given, type) else dict(given)


def network(model: Mapping[str, Any]) -> tuple[Changes, list[str]]:
    """Our network's settings for a model configuration, and the settings that only RLlib's own modules support.

    Recurrence is handled elsewhere (`fallback.py`); a free standard deviation of actions is always on in ours.
    """
    known = {field.name for field in fields(DefaultModelConfig)}
    changes = Changes()
    rest = []
    for name, value in model.items():
        if name not in known:
            raise ConfigError(f"model_config: {name}={value!r} is not known. Known: {', '.join(sorted(known))}.")
        if name in MODEL and _has(name, value):
            changes |= MODEL[name](value)
        elif value != USUAL[name] and name != "use_lstm" and not (name == "free_log_std" and value):
            rest.append(name)
    return changes, rest


def _has(name: str, value: Any) -> bool:
    """True if our networks have that activation."""
    return name != "fcnet_activation" or value in ("tanh", "relu", "silu", "swish", "gelu")


CONNECTORS = ("_env_to_module_connector", "_module_to_env_connector", "_learner_connector")
EPISODE_CALLBACKS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")


def reasons(config: Any, *, settings: Iterable[str], model: Iterable[str]) -> tuple[str, ...]:
    """The features of this configuration that our runner and learner do not support, by name; empty if there are none.

    Beside the visible ones, these are `settings` of RLlib and those of a `model` that only RLlib's own support.
    """
    found = [name.strip("_") for name in CONNECTORS if getattr(config, name, None) is not None]
    found += [f"{name.strip('_')}={getattr(config, name)!r}" for name in settings]
    found += [f"model_config.{name}" for name in model]
    learner = config._learner_class
    if learner is not None and not issubclass(learner, config.fast_learner):
        found.append(f"learner_class={learner.__name__}")
    if config.batch_mode != "truncate_episodes" and not config.in_evaluation:
        found.append(f"batch_mode={config.batch_mode!r}")
    if config.env_runner_cls not in (None, config.fast_runner, config.team_runner, SingleAgentEnvRunner):
        found.append(f"env_runner_cls={config.env_runner_cls.__name__}")
    callbacks = (*EPISODE_CALLBACKS, "on_environment_created") if config.is_multi_agent else EPISODE_CALLBACKS
    found += [f"callback {name}" for name in callbacks if _listens(config, name)]
    if _recurrent(config):
        found.append("a module with memory")
    return tuple(found)


def _listens(config: Any, name: str) -> bool:
    classes = [cls for cls in force_list(config.callbacks_class) if cls is not None]
    overridden = any(getattr(cls, name, None) is not getattr(RLlibCallback, name) for cls in classes)
    return overridden or bool(getattr(config, f"callbacks_{name}", None))


def _recurrent(config: Any) -> bool:
    spec = getattr(config, "_rl_module_spec", None)
    cls = getattr(spec, "module_class", None)
    if cls is not None and getattr(cls, "get_initial_state", None) is not RLModule.get_initial_state:
        return True
    return bool(model_of(config).get("use_lstm"))
