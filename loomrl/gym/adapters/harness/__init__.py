"""Agents of others as environments: a process per attempt, its model calls answered by the policy."""

from typing import TYPE_CHECKING

from loomrl.named import lazily

if TYPE_CHECKING:
    from loomrl.gym.adapters.harness.environment import Harness
    from loomrl.gym.adapters.harness.session import Access, Budget, Sessions, Spoken
    from loomrl.gym.adapters.harness.task import Done, Row

__all__ = ["Access", "Budget", "Done", "Harness", "Row", "Sessions", "Spoken"]

_HERE = "loomrl.gym.adapters.harness"
__getattr__, __dir__ = lazily(
    __name__,
    {
        "Harness": f"{_HERE}.environment",
        **dict.fromkeys(("Access", "Budget", "Sessions", "Spoken"), f"{_HERE}.session"),
        **dict.fromkeys(("Done", "Row"), f"{_HERE}.task"),
    },
)
