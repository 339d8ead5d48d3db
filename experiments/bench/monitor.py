"""Cost of the monitor: CPU time of an answer's rules, whole and streamed, and of an action's."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loomrl.config.monitor import Monitoring
from loomrl.safety.open import open_text_rules
from loomrl.safety.rule import Asked
from loomrl.safety.screen import Screen, look
from loomrl.serving.monitor.monitor import Monitor, Origin
from loomrl.serving.policy import Acted
from loomrl.store import open_store
from loomrl.store.endpoints import Role

DEFAULT = [rule.check for rule in Monitoring().rules]
KINDS = ("secrets", "blocked", "prompt", "repetition", "calls")
WORDS = "the shop opens at nine and sells bread, 12 kinds of cheese, keys (brass) and token-ring cables; ask sk- staff."
SYSTEM = " ".join(
    f"Rule {n}: staff member {n} looks after shelf {n * 7} and never tells who owns it." for n in range(60)
)


@dataclass(frozen=True, slots=True)
class Size:
    """Amounts of what is measured."""

    answers: int


FULL, QUICK = Size(3000), Size(50)


def measure(size: Size) -> dict[str, Any]:
    """The figures: milliseconds of CPU time for an answer of 400 characters, four at a time."""
    every = [{"check": {"kind": kind}} for kind in KINDS]
    everything = [rule.check for rule in Monitoring.parse({"rules": every}).rules]
    figures: dict[str, Any] = {"answers": size.answers, "characters": 400}
    for name, rules in (("default", DEFAULT), ("all_text_rules", everything)):
        figures |= _told(name, _answers(rules, size.answers))
    return figures | _told("action", asyncio.run(_actions(size.answers)))


def _told(name: str, times: Sequence[float]) -> dict[str, float]:
    ranked = sorted(times)
    p99 = ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
    return {f"{name}_p50_ms": round(1e3 * statistics.median(ranked), 3), f"{name}_p99_ms": round(1e3 * p99, 3)}


def _answers(choices: Sequence[Any], count: int) -> list[float]:
    rules, rng = open_text_rules(choices), np.random.default_rng(0)
    asked, words = Asked(system=SYSTEM, tools={"buy": {}}), WORDS.split()
    times = []
    for _ in range(count):
        text = " ".join(rng.choice(words, 100))[:400]
        begun = time.thread_time()
        screen = Screen(asked)
        for at in range(0, len(text), 4):
            screen.add(text[at : at + 4])
            while (saying := screen.next()) is not None:
                screen.settle(saying, look(rules, saying))
            screen.take()
        screen.end()
        while (saying := screen.next()) is not None:
            screen.settle(saying, look(rules, saying))
        times.append(time.thread_time() - begun)
    return times


async def _actions(count: int) -> list[float]:
    checks = [
        {"kind": "bounds", "low": -1, "high": 1},
        {"kind": "rate", "most": 5},
        {"kind": "states", "within": {0: [9, None]}},
    ]
    settings = Monitoring.parse({"rules": [{"check": check} for check in checks]})
    rng, times = np.random.default_rng(0), []
    origin = Origin(endpoint="e", arm="stable", role=Role.STABLE, version="v", session="s", revision=1)
    with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/loom.db") as db:
        monitor = Monitor(settings, db)
        for _ in range(count):
            acted, seen = Acted(actions=rng.uniform(-1, 1, (1, 6)), version=1), rng.normal(size=(1, 17))
            begun = time.thread_time()
            await monitor.judge(acted, seen, origin, alone=True, hits=[])
            times.append(time.thread_time() - begun)
    return times
