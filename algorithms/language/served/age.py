"""The age of a served answer: how many policy versions lie between the one that sampled it and a training's first.

A run that begins with `OTHER/12` continues the numbers of `OTHER`: its version 0 is that version 12.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from loomrl.store import LoomDB
from loomrl.store.policies import lineage
from loomrl.types import NO_VERSION, Tokens


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The runs behind a policy: `ages[run]` is the age of that run's version 0."""

    ages: dict[str, int]
    newest: dict[str, int]
    """Run → its last version that is an ancestor."""

    @staticmethod
    def of(db: LoomDB, parent: str | None, path: str | None) -> "Ancestry":
        """Of the version with this id, or of a model's folder."""
        if parent is None:
            name = Path(path or "").name
            return Ancestry({name: 0}, {name: 0})
        tree = lineage(db, parent)
        ages: dict[str, int] = {}
        newest: dict[str, int] = {}
        behind = 0
        for version in (tree, *tree["ancestors"]):
            run = version["made_from"]["run"]["id"]
            number = version["number"]
            if run not in ages:
                behind += number
                ages[run] = behind
                newest[run] = number
        return Ancestry(ages, newest)

    def age(self, versions: Iterable[str]) -> int | None:
        """Of the oldest of these policies; None if one is no ancestor."""
        ages = [self._age(*_split(version)) for version in versions]
        return None if not ages or None in ages else max(age for age in ages if age is not None)

    def dated(self, tokens: Tokens, versions: Iterable[str]) -> Tokens:
        """The tokens with versions as the training counts them: 0 is its first, older ones are negative.

        `versions` are the policies that answered. Where their numbers leave a choice, a token counts as the older one.
        """
        runs = {_split(version)[0] for version in versions} & self.ages.keys()
        versions_T = np.full(len(tokens), NO_VERSION, np.int32)
        for number in np.unique(tokens.versions_T[tokens.mask_T]):
            ages = [age for run in runs if (age := self._age(run, int(number))) is not None]
            versions_T[tokens.mask_T & (tokens.versions_T == number)] = -max(ages, default=0)
        return replace(tokens, versions_T=versions_T)

    def _age(self, run: str, number: int) -> int | None:
        return self.ages[run] - number if number <= self.newest.get(run, -1) else None


def _split(version: str) -> tuple[str, int]:
    run, _, number = version.rpartition("/")
    return (run, int(number)) if run and number.isdecimal() else (version, 0)
