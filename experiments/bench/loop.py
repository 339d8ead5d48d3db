"""The whole loop, told and measured: people's satisfaction before and after, by checkers on held-out tasks."""

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loomrl.experiments.bench.rounds import say
from loomrl.experiments.loop.crowd import Honesty, Manner
from loomrl.experiments.loop.page import write
from loomrl.experiments.loop.production import Production, copy_production
from loomrl.experiments.loop.story import Chapter, Demonstration, demonstrate

NEW = "triggers.count"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSize:
    """The amount of work."""

    base: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the experiment of the policy that it begins with."""
    loop: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the loop."""
    proposals: int = 2
    """Honest ones."""
    episodes: int = 600
    """Held-out tasks."""
    prelude: int = 1400
    """Conversations with dishonest people before a coordinator learns from them."""
    pace: float = 15.0


FULL = LoopSize()
QUICK = LoopSize(
    base={"algorithm.warm_start.steps": 300},
    loop={NEW: 150, "data.limit": 150, "training.data.epochs": 1, "training.evaluation.episodes": 20},
    proposals=1,
    episodes=40,
    prelude=150,
)


@dataclass(frozen=True, slots=True)
class Telling:
    """The kinds of feedback, one after the other, in one production."""

    name: str
    honesties: tuple[Honesty, ...]


SHOWN = Telling("shown", ("honest", "flipped"))
CONTROL = Telling("shuffled", ("shuffled",))


def measure(
    size: LoopSize = FULL,
    *,
    seeds: Sequence[int] = (1,),
    tellings: Sequence[Telling] = (SHOWN,),
    page: Path | None = None,
) -> dict[str, Any]:
    """Every figure of `loomrl bench loop`. The page tells of the first seed's first telling."""
    found = [each for seed in seeds for each in _measure_seed(size, seed, tellings, page if seed == seeds[0] else None)]
    figures: dict[str, Any] = {"cores": os.cpu_count(), "seeds": list(seeds), "tellings": found}
    honest = [each for each in found if each["telling"] == SHOWN.name]
    if honest:
        for name in ("satisfaction_before", "satisfaction_after"):
            figures[name] = round(statistics.mean(each[name] for each in honest), 3)
        figures["worst_family"] = round(min(each["worst_family"] for each in honest), 3)
        figures["flipped_most_share"] = max(each["flipped_most_share"] for each in honest)
    return figures


def _measure_seed(
    size: LoopSize, seed: int, tellings: Sequence[Telling], page: Path | None
) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="loom-loop-") as place:
        began = time.monotonic()
        base = Production(Path(place) / "base")
        base.folder.mkdir()
        say(f"seed {seed}: training the policy that it begins with")
        base.train_base(seed, dict(size.base))
        warm_s = time.monotonic() - began
        for telling in tellings:
            began = time.monotonic()
            cpu = _cpu_s()
            production = copy_production(base, Path(place) / telling.name)
            chapters = [
                Chapter(
                    manner=Manner(honesty=each, pace=size.pace),
                    proposals=size.proposals if each == "honest" else 1,
                    prelude=0 if each == "honest" else size.prelude,
                )
                for each in telling.honesties
            ]
            told = demonstrate(production, chapters, changes=size.loop, episodes=size.episodes, seed=seed, say=say)
            if page is not None and telling is tellings[0]:
                write(page, told, title="An agent learns from its users")
                say(f"the story: {page}")
            yield {
                "telling": telling.name,
                "seed": seed,
                "seconds": round(time.monotonic() - began + warm_s),
                "cpu_s": round(_cpu_s() - cpu),
                **_figures(told),
            }


def _figures(told: Demonstration) -> dict[str, Any]:
    (before, after), (first, last) = told.satisfied, (told.reports[0], told.reports[-1])
    flipped = [each.most_share for each in told.proposals if each.honesty == "flipped"]
    return {
        "satisfaction_before": before,
        "satisfaction_after": after,
        "before": [first.overall.success.low, first.overall.success.high],
        "after": [last.overall.success.low, last.overall.success.high],
        "families": told.families,
        "worst_family": min(new - old for old, new in told.families.values()),
        "proposals": [
            {"honesty": each.honesty, "policy": each.policy, "phase": each.phase, "most_share": each.most_share}
            for each in told.proposals
        ],
        "flipped_most_share": max(flipped, default=0.0),
        "released": sum(each.phase == "done" for each in told.proposals),
        "answers": len(told.answered),
        "judgements": told.said,
        "failed": len(told.failed),
        "secrets": told.secrets,
        "files_with_secrets": list(told.found),
        "sessions_of_opted_out": told.outsiders,
        "forgotten": told.departure
        and {"retired": told.departure.certificate["retired"], "stable": told.departure.stable},
        "verified": told.verification.get("holds"),
    }


def _cpu_s() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
