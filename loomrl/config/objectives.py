"""Objectives as a tree of weights: named groups for preferences, and the leaves that the environment pays."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
