"""Pickling of frozen dataclasses with slots, of which a rollout sends thousands between processes."""

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def quickly(cls: type[T]) -> type[T]:
    """Pickled as by `dataclass(slots=True)`, which looks its fields up for every object: half the time of reading.

    For two fields or more.
    """
    names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
    read = attrgetter(*names)
    writers = [getattr(cls, name).__set__ for name in names]

    def state(self: T) -> Any:
        return read(self)

    def restore(self: T, values: Sequence[Any]) -> None:
        for write, value in zip(writers, values, strict=True):
            write(self, value)

    cls.__getstate__ = state  # type: ignore[assignment, method-assign]
    cls.__setstate__ = restore  # type: ignore[attr-defined]
    return cls
