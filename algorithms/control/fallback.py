"""Features that need RLlib's own runner and learner."""

from collections.abc import Iterable
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils import force_list

from loomrl.algorithms.control.translation import model_of

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
    if config.is_multi_agent:
        found.append("several policies (multi_agent)")
    if config.batch_mode != "truncate_episodes" and not config.in_evaluation:
        found.append(f"batch_mode={config.batch_mode!r}")
    if config.env_runner_cls not in (None, config.fast_runner, SingleAgentEnvRunner):
        found.append(f"env_runner_cls={config.env_runner_cls.__name__}")
    found += [f"callback {name}" for name in EPISODE_CALLBACKS if _listens(config, name)]
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
