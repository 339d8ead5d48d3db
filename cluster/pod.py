"""Validation of Kubernetes objects against the models of its own Python client, key by key."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from loomrl.errors import ConfigError, did_you_mean

_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str, int, float),  # quantities may be numbers
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}
_INSIDE = re.compile(r"(?i)(?:list\[|dict[\[(]str, ?)(.*)[\])]$")
_OPEN = ("object", "datetime", "date")
"""Types that the models leave open."""


def matches(model: str, raw: Mapping[str, Any]) -> Any:
    """`raw`, if it is an object of this model; a ValueError names every unknown key, with the nearest known one."""
    faults = list(_faults(model, raw, ""))
    if faults:
        raise ValueError("; ".join(faults))
    return raw


def no_such_key(place: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown key."""
    known = sorted(known)
    return f"{place}: no such key. Known: {', '.join(known)}.{did_you_mean(name, known)}"


def _faults(kind: str, raw: Any, path: str) -> Iterator[str]:
    inside = _INSIDE.match(kind)
    where = path or "(top level)"
    if raw is None:
        yield f"{where} is empty: leave it out, or fill it in"
    elif kind.lower().startswith("list"):
        assert inside
        if not isinstance(raw, list):
            yield f"{where}={raw!r:.60}: a list is needed"
        else:
            for index, each in enumerate(raw):
                yield from _faults(inside[1], each, f"{path}.{index}".lstrip("."))
    elif kind.lower().startswith("dict"):
        assert inside
        for name, each in raw.items() if isinstance(raw, Mapping) else ():
            yield from _faults(inside[1], each, f"{path}.{name}".lstrip("."))
        if not isinstance(raw, Mapping):
            yield f"{where}={raw!r:.60}: a mapping is needed"
    elif kind in _PLAIN:
        if not isinstance(raw, _PLAIN[kind]) or (isinstance(raw, bool) and kind != "bool"):
            yield f"{where}={raw!r:.60}: {kind} is needed"
    elif kind not in _OPEN:
        yield from _object_faults(kind, raw, path)


def _object_faults(model: str, raw: Any, path: str) -> Iterator[str]:
    if not isinstance(raw, Mapping):
        yield f"{path or '(top level)'}={raw!r:.60}: a mapping is needed"
        return
    kind = getattr(_models(), model)
    types = {kind.attribute_map[name]: of for name, of in kind.openapi_types.items()}
    for name, each in raw.items():
        place = f"{path}.{name}".lstrip(".")
        if name not in types:
            yield no_such_key(place, str(name), types)
        else:
            yield from _faults(types[name], each, place)


@cache
def _models() -> Any:
    try:
        from kubernetes.client import models
    except ImportError:
        raise ConfigError(
            "objects of Kubernetes are checked with its Python client: pip install 'loomrl[kubernetes]'."
        ) from None
    return models
