"""Our subclasses use no name of RLlib's by accident: its own source, and ours, are read for what they define."""

import ast
import importlib
import inspect
import textwrap
from functools import cache
from pathlib import Path

import pytest

from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.language.config import LanguageConfig

ROOT = Path(__file__).parent.parent.parent

SETTINGS = {
    "ControlConfig": {
        "_model_config",
        "_rl_module_spec",
        "env_runner_cls",
        "gym_env_vectorize_mode",
        "num_env_runners",
        "num_envs_per_env_runner",
        "rollout_fragment_length",
    },
    "LanguageConfig": {
        "action_space",
        "create_local_env_runner",
        "delay_between_env_runner_restarts_s",
        "env_runner_cls",
        "lr",
        "num_env_runners",
        "num_gpus_per_learner",
        "num_learners",
        "observation_space",
        "restart_failed_env_runners",
        "seed",
    },
    "LoggedConfig": {"num_envs_per_env_runner", "rollout_fragment_length"},
    "PPOConfig": {"minibatch_size", "rollout_fragment_length", "train_batch_size_per_learner"},
    "OffPolicyConfig": {
        "min_sample_timesteps_per_iteration",
        "min_time_s_per_iteration",
        "num_envs_per_env_runner",
        "rollout_fragment_length",
    },
}
"""RLlib's settings that a configuration of ours gives a value, beside those in `tell_rllib`, which is for that."""
STATE = {
    "Language": {"_iteration", "config"},
    "LanguageLearner": {"_weights_seq_no"},
    "ArrayLearner": {"_weights_seq_no"},
    "ArrayRunner": {"_needs_initial_reset", "config", "env"},
    "WeaveRunner": {"_needs_initial_reset", "env", "num_envs"},
    "PolicyRunner": {"env", "num_envs"},
    "TeamRunner": {"_needs_initial_reset", "env", "module", "num_envs"},
}
"""RLlib's own state that a class of ours sets for RLlib."""
ALLOWED = SETTINGS | STATE


def is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] in ("loomrl", __name__.split(".")[0])


def subclasses() -> list[type]:
    """Classes in algorithms/ with a base from Ray."""
    files = sorted((ROOT / "algorithms").rglob("*.py"))
    names = [".".join(("loomrl", *file.relative_to(ROOT).with_suffix("").parts)) for file in files]
    found = {
        cls
        for name in names
        for _, cls in inspect.getmembers(importlib.import_module(name.removesuffix(".__init__")), inspect.isclass)
        if is_ours(cls) and any(base.__module__.startswith("ray.") for base in cls.__mro__)
    }
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


@cache
def body(cls: type) -> ast.ClassDef | None:
    """The class statement; None for a class that is not written in Python."""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):
        return None
    assert isinstance(node, ast.ClassDef)
    return node


def assigned(cls: type, *, beside: str = "") -> set[str]:
    """Names of attributes that the class's body or one of its methods, other than `beside`, gives a value."""
    node = body(cls)
    names: set[str] = set()
    for statement in node.body if node else ():
        if isinstance(statement, ast.FunctionDef):
            stored = (each for each in ast.walk(statement) if isinstance(each, ast.Attribute))
            if statement.name != beside:
                names |= {each.attr for each in stored
                          if isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"}  # fmt: skip
        elif isinstance(statement, ast.Assign):
            names |= {ast.unparse(target) for target in statement.targets}
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            names.add(ast.unparse(statement.target))
    return names


def silent(cls: type) -> set[str]:
    """Methods and properties of the class without `@override`."""
    node = body(cls)
    return {
        each.name
        for each in (node.body if node else ())
        if isinstance(each, ast.FunctionDef)
        and not each.name.startswith("__")
        and all(ast.unparse(decorator) != "override" for decorator in each.decorator_list)
    }


@cache
def names_of_others(cls: type) -> frozenset[str]:
    """All names that the bases which are not ours define."""
    others = [base for base in cls.__mro__ if not is_ours(base) and base is not object]
    return frozenset(name for base in others for name in {*assigned(base), *vars(base), *base.__annotations__})


def collisions(cls: type) -> list[str]:
    theirs = names_of_others(cls)
    found = []
    for base in filter(is_ours, cls.__mro__):
        taken = assigned(base, beside="tell_rllib") & theirs - ALLOWED.get(base.__name__, set())
        found += [f"{base.__name__}.{name}" for name in sorted(taken)]
        found += [f"{base.__name__}.{name}()" for name in sorted(silent(base) & theirs)]
    return found


SUBCLASSES = subclasses()


@pytest.mark.parametrize("cls", SUBCLASSES, ids=lambda cls: cls.__name__)
def test_a_subclass_uses_names_of_its_bases_on_purpose(cls: type) -> None:
    assert collisions(cls) == [], "theirs already: rename it, decorate it with @override, or list it above"


def test_every_name_on_the_list_is_still_one_of_theirs_and_set() -> None:
    known = {cls.__name__: cls for cls in SUBCLASSES}
    for name, allowed in ALLOWED.items():
        assert allowed <= assigned(known[name], beside="tell_rllib") & names_of_others(known[name]), name


def test_a_name_taken_by_accident_is_found() -> None:
    from ray.rllib.algorithms.algorithm import Algorithm

    class Careless(Algorithm):
        def note(self) -> None:
            self._restored = True

        def evaluate(self) -> None: ...

    assert collisions(Careless) == ["Careless._restored", "Careless.evaluate()"]


def test_a_name_of_both_is_ours_in_training_and_rllibs_in_a_dictionary() -> None:
    asked = LanguageConfig().training(optimizer={"learning_rate": 1e-4})
    assert asked.changes == {"algorithm.optimizer": {"learning_rate": 1e-4}}
    by_dictionary = LanguageConfig().update_from_dict({"model": {"dim": 8}, "optimizer": {"eps": 1.0}, "gamma": 0.5})
    assert by_dictionary.changes == {}
    assert (by_dictionary.model, by_dictionary.optimizer, by_dictionary.gamma) == ({"dim": 8}, {"eps": 1.0}, 0.5)
    control = PPOConfig().training(gamma=0.5, minibatch_size=16)
    assert (control.changes, control.minibatch_size) == ({"gamma": 0.5}, 16)
    assert PPOConfig().update_from_dict({"gamma": 0.25}).changes == {}
