"""Attributes of RLlib's bases that our subclasses assign: each is meant, or it is a collision that nobody sees."""

import ast
import functools
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from loomrl import algorithms
from loomrl.algorithms.resources import Placed

MEANT = {
    "ArrayLearner": {"_weights_seq_no"},
    "ArrayRunner": {"_needs_initial_reset", "config", "env"},
    "ControlConfig": {"_model_config", "_rl_module_spec"},
    "Language": {"_iteration", "config"},
    "LanguageLearner": {"_weights_seq_no"},
    "WeaveRunner": {"_needs_initial_reset", "env", "num_envs"},
}
"""Attributes of RLlib's that a class of ours sets on purpose. Those of a configuration without `_` are its settings."""


def subclasses() -> Iterator[type]:
    """Our classes with a base of RLlib's."""
    for found in pkgutil.walk_packages(algorithms.__path__, f"{algorithms.__name__}."):
        module = importlib.import_module(found.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == module.__name__ and any(owned_by_ray(base) for base in kind.__mro__):
                yield kind


def owned_by_ray(kind: type) -> bool:
    return kind.__module__.startswith("ray.")


@functools.cache
def assigned(kind: type) -> set[str]:
    """Names that the source of a class assigns: in its body, and to `self` in its methods."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):  # made by a decorator or in C
        return set()
    assert isinstance(body, ast.ClassDef)
    names = {target.id for one in body.body for target in targets(one) if isinstance(target, ast.Name)}
    return names | {
        target.attr
        for one in ast.walk(body)
        for target in targets(one)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    }


def targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [one for target in node.targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    if isinstance(node, ast.AugAssign):
        return [node.target]
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def taken(kind: type) -> set[str]:
    """Names of a class that one of its bases in Ray assigns or defines, too."""
    bases = [base for base in kind.__mro__ if owned_by_ray(base)]
    theirs = {name for base in bases for name in (*assigned(base), *vars(base))}
    settings = issubclass(kind, AlgorithmConfig)
    return {name for name in assigned(kind) & theirs if name.startswith("_") or not settings}


def test_no_attribute_of_ours_hides_one_of_rllib() -> None:
    assert {kind.__name__: names for kind in subclasses() if (names := taken(kind))} == MEANT


def test_a_name_that_the_base_owns_is_found() -> None:
    class Clash(Placed):
        def mark(self) -> None:
            self._restored = self.ours = True

    assert taken(Clash) == {"_restored"}
