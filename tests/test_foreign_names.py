"""Attributes of our classes beside those of their bases in Ray and torch: none takes a name that a base owns by chance.

A base's flag that is read as ours, or written over, fails nowhere: it is only wrong. Methods of the base that it calls
by a public name are replaced on purpose; every other name that both have is on the list, with what it is there for.
"""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.learner.learner import Learner

import loomrl.algorithms

FOREIGN = ("ray", "torch")
LEARNER = {"_device", "_module", "_make_module", "_make_modules_ddp_if_necessary", "_set_optimizer_lr"}
"""Names that every Learner has and asks for while it is built."""
ON_PURPOSE = {
    "ControlConfig": {"_rl_module_spec", "_model_config"},  # as the user left them
    "ArrayLearner": {"_weights_seq_no"},  # counted where weights change, which is in our update
    "LanguageLearner": {"_weights_seq_no", "_lent"},  # holds the memory that engines read
    "TokenLearner": {"_lent"},
    "Adam": {"_init_group", "add_param_group", "zero_grad", "state_dict", "load_state_dict"},  # without the compiler
    "EightBitAdamW": {"state"},  # as torch's own are loaded
    "ActorModule": {"_forward"},  # which a module is asked to write
    "ControlModule": {"_forward_train"},
    "LanguageModule": {"_forward", "_forward_train"},
    "ArrayRunner": {
        *("config", "env", "_needs_initial_reset"),  # as make_env leaves them
        *("_callbacks", "_increase_sampled_metrics", "_log_episode_metrics", "_seed"),
    },
    "WeaveRunner": {"env", "num_envs", "_needs_initial_reset"},
    "PolicyRunner": {"env", "num_envs"},  # its part of the whole runner's
    "TeamRunner": {"env", "num_envs", "_needs_initial_reset", "module", "spaces", "_device"},  # as RLlib's make_… do
    "PPOConfig": {"_model_config"},  # of the user's rl_module(model_config=…)
    "SACConfig": {"_model_config"},
    "Language": {
        *("config", "_iteration"),  # which restored runs go on counting
        "_should_create_evaluation_env_runners",
    },
}


def ours() -> Iterator[type]:
    """Our classes that have a base in Ray or torch."""
    modules = [found.name for found in pkgutil.walk_packages(loomrl.algorithms.__path__, "loomrl.algorithms.")]
    for name in [*modules, "loomrl.experiments.sweep_trial"]:
        for cls in vars(importlib.import_module(name)).values():
            if inspect.isclass(cls) and cls.__module__ == name and any(map(is_foreign, cls.__mro__)):
                yield cls


def on_purpose(cls: type) -> set[str]:
    of_every = LEARNER if issubclass(cls, Learner) else set[str]()
    return of_every | ON_PURPOSE.get(cls.__name__, set())


def is_foreign(cls: type) -> bool:
    return cls.__module__.split(".")[0] in FOREIGN


@cache
def names(cls: type) -> tuple[set[str], set[str], set[str]]:
    """The attributes that a class's source assigns, defines or reads."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):  # written in C
        return set(), set(vars(cls)), set()
    own = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    ]
    assigned = {node.attr for node in own if isinstance(node.ctx, ast.Store)}
    for line in tree.body:
        if isinstance(line, ast.Assign | ast.AnnAssign):
            targets: list[Any] = line.targets if isinstance(line, ast.Assign) else [line.target]
            assigned |= {target.id for target in targets if isinstance(target, ast.Name)}
    methods = {line.name for line in tree.body if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef)}
    return assigned, methods, {node.attr for node in own}


def shared(cls: type) -> set[str]:
    """Names that it has in common with a foreign base, beside public methods that it replaces or calls."""
    assigned, methods, used = names(cls)
    owned = set[str]()
    for base in filter(is_foreign, cls.__mro__):
        base_assigned, base_methods, _ = names(base)
        owned |= base_assigned | base_methods
    private = {name for name in methods | used if name.startswith("_") and not name.startswith("__")}
    if issubclass(cls, AlgorithmConfig):  # whose public attributes are RLlib's settings, and there to be set
        assigned = {name for name in assigned if name.startswith("_")}
    return (assigned | private) & owned


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_no_class_of_ours_shares_a_name_with_its_foreign_base_by_chance() -> None:
    found = {cls.__name__: shared(cls) - on_purpose(cls) for cls in ours()}
    assert {"ArrayRunner", "SAC", "LanguageLearner", "Trial"} <= found.keys()
    assert {name: taken for name, taken in found.items() if taken} == {}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_what_is_counted_privately_is_read_somewhere() -> None:
    classes = {other for cls in ours() for other in cls.__mro__ if not is_foreign(other) and other is not object}
    nodes = [node for cls in classes for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    for cls in ours():
        assigned = {name for name in names(cls)[0] if name.startswith("_")}
        assert not assigned - read - ON_PURPOSE.get(cls.__name__, set()), cls
