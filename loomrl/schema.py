"""The base of all settings: frozen, closed to unknown keys, merged by path, with explained errors."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic._internal._model_construction import ModelMetaclass  # it has no public name
from pydantic_core import ErrorDetails

from loomrl.errors import ConfigError, did_you_mean

Tree = dict[str, Any]
Difference = tuple[str, str | None, str | None]
"""A path, and its values as JSON; None where there is none."""


class _Explaining(ModelMetaclass):
    """Explains what is wrong with settings that are given to a class, `Sampling(temprature=1)`, as `parse` does.

    pydantic itself makes settings within settings in another way, so only the outermost class explains.
    """

    def __call__(cls, *args: Any, **given: Any) -> Any:  # noqa: N805 - the class is its object
        try:
            return super().__call__(*args, **given)
        except ValidationError as error:
            raise ConfigError(_explained(cls, given, error, origin=cls.__name__)) from None


class Config(BaseModel, metaclass=_Explaining):
    """Base of every settings class. A field that is a union of variants is told apart by its `kind`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    other_words: ClassVar[Mapping[str, str]] = {}
    """Words that people know from elsewhere → what to write here; the error for an unknown setting says so."""

    @model_validator(mode="before")
    @classmethod
    def _keep_default_kind(cls, raw: Any) -> Any:
        """`curriculum.level=3` alone tunes the default curriculum; it need not repeat its kind."""
        if not isinstance(raw, Mapping):
            return raw
        filled = dict(raw)
        for name, spec in cls.model_fields.items():
            kind = getattr(spec.default, "kind", None)
            if kind and isinstance(filled.get(name), Mapping):
                filled[name] = {"kind": kind, **filled[name]}
        return filled

    @classmethod
    def parse(cls, raw: Any, *, origin: str = "settings") -> Self:
        """Validate `raw`; a ConfigError lists every fault with its path, value, choices and remedy."""
        if not isinstance(raw, Mapping):
            raise ConfigError(f"{origin}: a mapping of settings is needed, got {type(raw).__name__} {raw!r:.80}.")
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise ConfigError(_explained(cls, raw, error, origin=origin)) from None

    @classmethod
    def defaults(cls) -> Tree:
        """Every setting that has a default, as plain data: the base for files and assignments."""
        given = cls.model_construct().model_dump(mode="json", warnings=False)
        return {name: given[name] for name, spec in cls.model_fields.items() if not spec.is_required()}

    @cached_property
    def plain(self) -> Tree:
        """The settings as plain data, made once: read it, never change it."""
        return self.model_dump(mode="json")

    def override(self, dotted: Mapping[str, Any]) -> Self:
        """A copy with `{"hub.lease_s": 30}` applied and everything validated again."""
        return type(self).parse(merge(self.plain, nest(dotted)), origin="override")


def nest(dotted: Mapping[str, Any]) -> Tree:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`; later entries win."""
    tree: Tree = {}
    for path, value in dotted.items():
        if not all(path.split(".")):
            raise ConfigError(f"override {path!r}: a dotted path such as 'hub.lease_s' is needed.")
        branch: Any = value
        for key in reversed(path.split(".")):
            branch = {key: branch}
        tree = merge(tree, branch)
    return tree


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """`over` on top of `base`. A branch whose `kind` changes, or that is empty, replaces what was there; `{"0": …}`
    reaches into a list.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and not _replaces(old, value):
            merged[key] = merge(old, value)
        elif isinstance(value, Mapping) and isinstance(old, list | tuple) and _are_indices(value):
            merged[key] = _merge_list(key, list(old), value)
        else:
            merged[key] = value
    return merged


def _merge_list(key: str, old: list[Any], over: Mapping[str, Any]) -> list[Any]:
    for index, value in over.items():
        if int(index) >= len(old):
            raise ConfigError(f"{key}.{index}: there are only {len(old)} entries, counted from 0.")
        old[int(index)] = merge({"_": old[int(index)]}, {"_": value})["_"]
    return old


def _are_indices(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(str(key).isdecimal() for key in value)


def _replaces(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return not new or ("kind" in new and new["kind"] != old.get("kind"))


def _explained(cls: type[Any], raw: Any, error: ValidationError, *, origin: str) -> str:
    faults = [_explain(cls, raw, fault) for fault in _roots(error.errors(include_url=False))]
    return f"{origin}: {len(faults)} fault(s)\n  " + "\n  ".join(faults)


def _roots(faults: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without duplicates: a tuple with an invalid entry is also reported as too short."""
    locs = [fault["loc"] for fault in faults]
    return [
        fault
        for fault in faults
        if fault["type"] != "too_short" or not any(loc[: len(fault["loc"])] == fault["loc"] != loc for loc in locs)
    ]


def _explain(root: type[BaseModel], raw: Any, fault: ErrorDetails) -> str:
    """One line for one error: dotted path, value, expectation, the nearest known key."""
    path, models = _walk(root, raw, fault["loc"])
    known = sorted({name for model in models for name in model.model_fields})
    where = ".".join(path) or "(top level)"
    if fault["type"] == "extra_forbidden":
        meant = next((words[path[-1]] for words in map(_words, models) if path[-1] in words), None)
        hint = f" Write {meant}." if meant else did_you_mean(path[-1], known)
        return f"{where}={fault['input']!r:.120}: no such setting here. Known: {', '.join(known)}.{hint}"
    if fault["type"] == "missing":
        return f"{where}: required, and not given."
    if fault["type"] == "union_tag_invalid":
        tag = fault["ctx"]["tag"]
        expected = fault["ctx"]["expected_tags"]
        hint = did_you_mean(tag, expected.replace("'", "").split(", "))
        return f"{where}.kind={tag!r}: unknown. Known: {expected}.{hint}"
    if fault["type"] == "model_type" and path:
        fields = [model.model_fields[path[-1]] for model in models if path[-1] in model.model_fields]
        names = [name for spec in fields for inner in models_in(spec.annotation) for name in inner.model_fields]
        if names:
            one = f"{where}.{names[0]}={fault['input']!r:.120}"
            return f"{where}={fault['input']!r:.120}: it has settings of its own: {', '.join(names)}. Write {one}."
    message = fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    shown = re.sub(r"(://[^:/@\s]*:)[^@\s]*@", r"\1***@", repr(fault["input"])[:120])
    return f"{where}={shown}: {message}{'' if message[-1:] in '.?' else '.'}"


def _words(model: type[BaseModel]) -> Mapping[str, str]:
    return model.other_words if issubclass(model, Config) else {}


def _walk(root: type[BaseModel], raw: Any, loc: tuple[int | str, ...]) -> tuple[list[str], list[type[BaseModel]]]:
    """The dotted path of an error, without union tags, and the classes of its branch."""
    path: list[str] = []
    models: list[type[BaseModel]] = [root]
    for depth, key in enumerate(loc):
        present = isinstance(raw, Mapping) and key in raw
        index = isinstance(key, int)
        variant = [] if present or index else [m for m in models if _kind_of(m) == key]
        if variant and isinstance(raw, Mapping) and raw.get("kind", key) == key:
            models = variant
            continue
        path.append(str(key))
        if depth < len(loc) - 1 and not index:
            fields = [m.model_fields[str(key)] for m in models if str(key) in m.model_fields]
            models = [m for spec in fields for m in models_in(spec.annotation)] or models
        raw = raw[key] if present or (index and isinstance(raw, list | tuple)) else None
    return path, models


def _kind_of(model: type[BaseModel]) -> str | None:
    spec = model.model_fields.get("kind")
    return None if spec is None else spec.default


def differences(mine: Any, other: Any) -> list[Difference]:
    """Values that differ between two trees, by path."""
    left, right = leaves(mine), leaves(other)
    paths = sorted(left.keys() | right.keys())
    return [(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)]


def leaves(tree: Any, path: str = "") -> dict[str, str]:
    """The values of a tree by path, as JSON."""
    parts: Iterable[tuple[str, Any]]
    if isinstance(tree, dict) and tree:
        parts = tree.items()
    elif isinstance(tree, list) and tree:
        parts = ((str(number), value) for number, value in enumerate(tree))
    else:
        return {path: json.dumps(tree, ensure_ascii=False, default=str)}
    return {
        key: value
        for name, part in parts
        for key, value in leaves(part, f"{path}.{name}" if path else str(name)).items()
    }


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The settings classes in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)
