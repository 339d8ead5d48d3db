"""Experience replay: groups of earlier updates from which a later one learns again.

Which they are follows from seed, update and what was learnt from; what they hold is what the hub has on record.
"""

import logging
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from loomrl.algorithms.language.measure import ages
from loomrl.config import ReplayConfig
from loomrl.errors import DataError
from loomrl.feedback.content import Contents
from loomrl.hub import Hub, Selection
from loomrl.telemetry.metric import Metric
from loomrl.types import Group, Trajectory

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupReplay:
    """The groups that may be learnt from again, as they are not too old."""

    settings: ReplayConfig
    hub: Hub
    seed: int
    store_url: str
    """LoomDB, beside which the hub of a fork's parent is."""
    _learnt: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    """Group → the version of its oldest token, and its usable attempts, in the order of learning."""

    def draw(self, version: int) -> list[Group]:
        """The groups from which policy `version` learns again."""
        young = [name for name, (oldest, _) in self._learnt.items() if version - oldest <= self.settings.max_age]
        drawn = random.Random(f"{self.seed}/replay/{version}").sample(young, min(self.settings.groups, len(young)))
        return [group for name in drawn if (group := self._read(name)) is not None]

    def _read(self, name: str) -> Group | None:
        """A group as it was learnt from; None once one of its attempts was deleted."""
        ids = self._learnt[name][1]
        wanted = Selection(ids=tuple(ids))
        found = _by_id(self.hub, wanted) or self._read_from_parent(name, wanted)
        if len(found) == len(ids):
            return Group(name, tuple(found[id] for id in ids))
        _log.warning("group %s is not replayed any more: attempts of it were deleted", name)
        del self._learnt[name]
        return None

    def _read_from_parent(self, name: str, wanted: Selection) -> dict[str, Trajectory]:
        """The attempts of a group that the run's parent learnt from, before the run was forked from it."""
        with suppress(DataError), Contents(self.store_url) as contents:
            return _by_id(contents.hub(name.partition("/")[0]), wanted)
        return {}

    def observe(self, groups: Iterable[Group], version: int) -> None:
        """Policy `version` has learnt from these groups for the first time. What is too old by now is forgotten."""
        for group in groups:
            ages_K = ages([group], version)
            if ages_K.size:
                self._learnt[group.id] = (version - int(ages_K.max()), [attempt.id for attempt in group.usable])
        floor = version + 1 - self.settings.max_age
        self._learnt = {name: learnt for name, learnt in self._learnt.items() if learnt[0] >= floor}

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {name: list(learnt) for name, learnt in self._learnt.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._learnt = {name: (oldest, ids) for name, (oldest, ids) in state.items()}


def _by_id(hub: Hub, wanted: Selection) -> dict[str, Trajectory]:
    return {attempt.id: attempt for _, attempt in hub.replay(selection=wanted)}


def replay_metrics(fresh: Iterable[Group], replayed: Iterable[Group], version: int) -> dict[str, float]:
    """The part of what policy `version` learns from that is replayed, and its age."""
    ages_K = ages(replayed, version)
    fresh_K = ages(fresh, version)
    told: dict[str, float] = {Metric.REPLAY_SHARE: ages_K.size / max(ages_K.size + fresh_K.size, 1)}
    if ages_K.size:
        told |= {Metric.REPLAY_AGE_MEAN: float(ages_K.mean()), Metric.REPLAY_AGE_MAX: float(ages_K.max())}
    return told
