"""The environments of a control experiment, single or vectorised."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from loomrl.canonical import content_hash
from loomrl.config import ControlEnvironment, CustomEnvironment, EnvironmentWrapper, GymnasiumEnvironment
from loomrl.control.mask import InfoMask
from loomrl.control.shared import SharedVector, vector_form
from loomrl.control.space import ACTION_MASK
from loomrl.control.team import TeamVector
from loomrl.control.vector import OnePlace, with_autoreset
from loomrl.errors import ConfigError, LoomError
from loomrl.named import named

NATIVE, SYNC = (str(mode.value) for mode in (gymnasium.VectorizeMode.VECTOR_ENTRY_POINT, gymnasium.VectorizeMode.SYNC))
"""Gymnasium's names for an environment's own vector form, and for one after the other."""

TRIAL_RETURNS = "trial_returns"
"""Key in the `info` of an episode's last step: the returns of its trials, where an episode has several."""


def label(choice: ControlEnvironment) -> str:
    """The environment's name."""
    return choice.id if isinstance(choice, GymnasiumEnvironment) else choice.entry_point


def open_environment(choice: ControlEnvironment, settings: Mapping[str, Any]) -> Any:
    """A single Gymnasium or PettingZoo environment, or a vector environment's one place. A ConfigError explains why it
    cannot be made.
    """
    with _explain(choice, settings):
        return _maker(choice, settings)()


def open_environments(choice: ControlEnvironment, count: int, settings: Mapping[str, Any]) -> VectorEnv[Any, Any, Any]:
    """`count` places: that many environments, or agents that share a policy."""
    with _explain(choice, settings):
        wrappers = _wrappers(choice)
        vector = None if policies_of(choice) else _vector_maker(choice, settings)
        if vector is not None and choice.vectorization == "auto" and not wrappers:
            return _checked(vector(num_envs=count), count, label(choice))
        mode = SYNC if choice.vectorization == "auto" else choice.vectorization
        if isinstance(choice, GymnasiumEnvironment) and not _is_only_vector(choice):
            return gymnasium.make_vec(choice.id, num_envs=count, vectorization_mode=mode, wrappers=wrappers, **settings)
        make = _maker(choice, settings)
        if policies := policies_of(choice):
            return TeamVector(make, count, policies)
        if agents_in(choice, settings) > 1:
            return SharedVector(make, count)
        kind = SyncVectorEnv if mode == SYNC else AsyncVectorEnv
        return kind([make] * count, autoreset_mode=AutoresetMode.NEXT_STEP)


def policies_of(choice: ControlEnvironment) -> Mapping[str, Sequence[str]]:
    """The agents of each policy, if there are several."""
    return {} if isinstance(choice, GymnasiumEnvironment) else choice.policies


def agents_in(choice: ControlEnvironment, settings: Mapping[str, Any]) -> int:
    """Agents that act in one environment."""
    if isinstance(choice, GymnasiumEnvironment):
        return 1
    with closing(open_environment(choice, settings)) as made:
        return len(getattr(made, "possible_agents", ())) or 1


def refuse_other_spaces(choice: ControlEnvironment, stages: Sequence[Mapping[str, Any]]) -> None:
    """A ConfigError if the settings of a stage change the spaces: one network must serve all stages."""
    first, *others = ([str(space) for space in _spaces(choice, settings)] for settings in stages)
    for number, spaces in enumerate(others, 2):
        if spaces != first:
            raise ConfigError(
                f"curriculum: in stage {number} environment {label(choice)!r} has the spaces {spaces}, in stage 1 "
                f"{first}. Leave settings that change its spaces out of the curriculum."
            )


def _spaces(choice: ControlEnvironment, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    with closing(open_environments(choice, agents_in(choice, settings), settings)) as made:
        return made.single_observation_space, made.single_action_space


def snapshot(choice: ControlEnvironment) -> dict[str, str]:
    """`Name@version` → hash of its source and settings, as runs record it."""
    with closing(open_environment(choice, choice.settings)) as made:
        kind = type(made.unwrapped)
    package = sys.modules[kind.__module__.partition(".")[0]]
    content: dict[str, Any] = {"source": _source(kind), "settings": choice.settings}
    if choice.wrappers:
        content["wrappers"] = [
            {"source": _source(_wrapper_class(wrapper)), "settings": wrapper.settings} for wrapper in choice.wrappers
        ]
    version = getattr(package, "__version__", "0")
    return {f"{label(choice)}@{version}": content_hash(content)}


def _source(kind: Any) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # compiled, or written in a shell
        return ""


def native_or_sync(env: Any) -> str:
    """The vectorisation mode: the environment's own vector form if Gymnasium knows one, else sync."""
    spec = _registered(env)
    return SYNC if spec is None or spec.vector_entry_point is None else NATIVE


def _registered(env: Any) -> EnvSpec | None:
    """The entry in Gymnasium's registry, if there is one."""
    if not isinstance(env, str):
        return None
    module, _, id = env.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(id)
    except (ImportError, gymnasium.error.Error):  # making it raises the error again
        return None


@dataclass(frozen=True, slots=True)
class Creator:
    """The environment factory for RLlib: one environment, or with `num_envs` in its settings a vector."""

    choice: ControlEnvironment

    def __call__(self, context: Mapping[str, Any]) -> Any:
        """An environment, or a vector of them."""
        settings = dict(context)
        count = settings.pop("num_envs", None)
        if count is None:
            return open_environment(self.choice, settings)
        return open_environments(self.choice, count, settings)


def _maker(choice: ControlEnvironment, settings: Mapping[str, Any]) -> Callable[[], Any]:
    make: Callable[[], Any]
    if (vector := _vector_maker(choice, settings)) is not None and _is_only_vector(choice):
        make = partial(OnePlace, vector, label(choice))
    elif isinstance(choice, GymnasiumEnvironment):
        make = partial(gymnasium.make, choice.id, **settings)
    else:
        make = partial(_target(choice), **settings)
    return partial(_wrap, make, _wrappers(choice))


def _vector_maker(choice: ControlEnvironment, settings: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Makes `num_envs` places, if the environment has a vector form of its own."""
    if isinstance(choice, GymnasiumEnvironment):
        native = partial(gymnasium.make_vec, choice.id, vectorization_mode=NATIVE, **settings)
        return native if native_or_sync(choice.id) == NATIVE else None
    target = _target(choice)
    if (form := vector_form(target)) is not None:
        return partial(form, **settings)
    return partial(target, **settings) if _makes_vector(target, settings) else None


def _makes_vector(target: Any, settings: Mapping[str, Any]) -> bool:
    """True for a VectorEnv class, and for a function that takes `num_envs` and returns one."""
    if isinstance(target, type):
        return issubclass(target, VectorEnv)
    if not callable(target):
        return False
    taken = inspect.signature(target).parameters
    if "num_envs" in taken:
        return True
    if not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return False
    with closing(target(**settings)) as made:  # envpool.make_gymnasium(task_id, **kwargs)
        return isinstance(made, VectorEnv)


def _is_only_vector(choice: ControlEnvironment) -> bool:
    """True if its vector form is the only one: there is no single environment to be had."""
    if isinstance(choice, GymnasiumEnvironment):
        spec = _registered(choice.id)
        return spec is not None and spec.entry_point is None
    return vector_form(_target(choice)) is None


def _checked(made: Any, count: int, name: str) -> VectorEnv[Any, Any, Any]:
    if not isinstance(made, VectorEnv):
        raise ConfigError(f"environment {name}: it takes num_envs, so a gymnasium.vector.VectorEnv is needed: {made!r}")
    if made.num_envs != count:
        raise ConfigError(f"environment {name}: asked for num_envs={count}, it made {made.num_envs}.")
    return with_autoreset(made, name)


def _target(choice: CustomEnvironment) -> Any:
    return named(choice.entry_point, what="environment.entry_point")


def _wrap(make: Callable[[], Any], wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    made = make()
    for wrap in wrappers:
        made = wrap(made)
    return made


def _wrappers(choice: ControlEnvironment) -> list[Callable[[Any], Any]]:
    """The wrappers around each environment, the innermost first."""
    chosen: list[Callable[[Any], Any]] = [partial(_wrapper_class(one), **one.settings) for one in choice.wrappers]
    return [*chosen, _with_mask] if choice.info_mask else chosen


def _wrapper_class(wrapper: EnvironmentWrapper) -> Any:
    return named(wrapper.entry_point, what="environment.wrappers")


def _with_mask(made: Any) -> InfoMask:
    if not isinstance(made, gymnasium.Env):
        made.close()
        raise ConfigError(
            "info_mask is for Gymnasium environments: a ParallelEnv shows every agent its own mask, as a "
            f"part of the observation named {ACTION_MASK}."
        )
    return InfoMask(made)


@contextmanager
def _explain(choice: ControlEnvironment, settings: Mapping[str, Any]) -> Iterator[None]:
    """Translate errors in making an environment, with its name and settings."""
    try:
        yield
    except LoomError:
        raise
    except Exception as error:
        has_module = isinstance(error, gymnasium.error.NameNotFound) and ":" in label(choice)
        remedy = f" A class is given as {{kind: custom, entry_point: {label(choice)}}}." if has_module else ""
        why = f"{type(error).__name__}: {error}{remedy}"
        raise ConfigError(f"environment {label(choice)!r} with {dict(settings)} cannot be made: {why}") from error
