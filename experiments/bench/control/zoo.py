"""The zoo: every tuned file of `experiments/control/` that Stable-Baselines3's zoo has settings for, trained by both.

`loomrl bench zoo only=[cartpole] seeds=[1] page=docs/zoo.md`. Each training is a process of its own with one thread,
ours and theirs in turn. Results are kept in `zoo.json` beside the page, a row at a time, so that a zoo that takes days
can be measured in parts; the page is made anew from all of them.
"""

import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomrl.errors import ConfigError, unknown
from loomrl.experiments.bench.control.zoo_peers import PEERS, STOCK
from loomrl.experiments.bench.rounds import ONE_THREAD, machine, run_part
from loomrl.files import write_whole
from loomrl.telemetry.plot import COLOURS, picture
from loomrl.telemetry.progress import progress

OURS = "ours"
SB3 = "sb3"
RLLIB = "rllib"
ABREAST = 4
"""Curves in a row of the picture."""
HEAD = """# Zoo

`loomrl bench zoo page=docs/zoo.md` (`pip install 'loomrl[zoo]'`) trains `control/ROW` beside \
Stable-Baselines3 with its zoo's settings, one thread. Return of 100 greedy episodes: the median of the \
seeds, then each; `zoo`: the return that SB3's zoo publishes. CPU seconds: the process until training ends; \
~: by the rate of its first steps.

| row | return | SB3 | zoo | steps | SB3 | CPU s | SB3 | ratio |
|---|---|---|---|---|---|---|---|---|
"""
STOCK_HEAD = """
RLlib's PPO with its defaults, the file's steps, one seed, ours beside it:

| row | return | steps | CPU s | ratio |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class ZooSize:
    """The amount of work."""

    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int | None = None
    """Steps instead of the files' own, for a smoke test."""


FULL = ZooSize(tuple(PEERS), seeds=(1, 2, 3))
QUICK = ZooSize(("cartpole",), seeds=(1,), steps=2048)

Result = dict[str, Any]


def measure(size: ZooSize, *, only: Sequence[str], seeds: Sequence[int], page: Path | None) -> dict[str, Any]:
    """Rows with returns and CPU seconds of both, and the page if there is to be one."""
    for row in only:
        if row not in FULL.rows:
            raise ConfigError("bench zoo: " + unknown("row", row, FULL.rows))
    rows = tuple(only) or size.rows
    seeds = tuple(seeds) or size.seeds
    steps = () if size.steps is None else (str(size.steps),)
    kept = {} if page is None else _kept(page)
    trainings = sum(len(_contenders(row, index)) for row in rows for index in range(len(seeds)))
    with progress("bench zoo", trainings) as report:
        done = 0
        for row in rows:
            results: dict[str, list[Result]] = {}
            for index, seed in enumerate(seeds):
                for who in _contenders(row, index):
                    found = run_part("control.zoo_run", who, row, str(seed), *steps, env=os.environ | ONE_THREAD)
                    results.setdefault(who, []).append(found)
                    done += 1
                    report(done, f"{row} {who} {seed}")
            for stock in results.get(RLLIB, ()):
                stock["ours_cpu_s"] = _median(results[OURS], "cpu_s")
            kept[row] = {**results, "day": time.strftime("%Y-%m-%d")}
            if page is not None:
                write_whole(page.with_suffix(".json"), json.dumps(kept).encode())
                write_page(page, kept)
    return {"rows": {row: _figures(kept[row]) for row in rows}, "machine": machine()}


def _contenders(row: str, index: int) -> list[str]:
    """Who trains with the seed of this index: RLlib with the first one, a peer that is only timed likewise."""
    others = [SB3] if not index or "timed" not in PEERS[row] else []
    return [OURS, *others, *([RLLIB] if row in STOCK and not index else [])]


def _kept(page: Path) -> dict[str, Any]:
    file = page.with_suffix(".json")
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    ours = row[OURS]
    theirs = row[SB3]
    cpu = _median(ours, "cpu_s")
    return {
        "return": _median(ours, "return"),
        "steps": round(_median(ours, "steps")),
        "cpu_s": round(cpu, 1),
        "sb3_return": _median(theirs, "return") if _is_whole(theirs) else None,
        "sb3_steps": round(_median(theirs, "steps")),
        "sb3_cpu_s": round(_median(theirs, "cpu_s"), 1),
        "ratio": round(cpu / _median(theirs, "cpu_s"), 2),
    }


def _is_whole(results: Sequence[Result]) -> bool:
    """True of trainings that went to their end, not only timed."""
    return all("return" in each for each in results)


def _median(results: Sequence[Result], name: str) -> float:
    return float(statistics.median(each[name] for each in results))


def write_page(page: Path, kept: dict[str, Any]) -> None:
    """The table, with a picture of the curves beside it."""
    lines = [HEAD]
    ordered = [row for row in FULL.rows if row in kept]
    for row in ordered:
        each = _figures(kept[row])
        whole = _is_whole(kept[row][SB3])
        cells = [
            f"`{row}`",
            _spread(kept[row][OURS]),
            _spread(kept[row][SB3]) if whole else "",
            f"{PEERS[row].get('published', '')}",
            f"{each['steps']:,}",
            f"{each['sb3_steps']:,}",
            f"{each['cpu_s']:,.0f}",
            f"{'' if whole else '~'}{each['sb3_cpu_s']:,.0f}",
            f"{each['ratio']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    stock = [_stock_line(row, kept[row]) for row in STOCK if kept.get(row, {}).get(RLLIB)]
    lines += [STOCK_HEAD, *stock] if stock else []
    drawn = page.with_suffix(".svg")
    lines.append(f"\n![Training returns over steps, ours and Stable-Baselines3's]({drawn.name})\n")
    write_whole(page, "".join(lines).encode())
    _draw(drawn, {row: kept[row] for row in ordered})


def _stock_line(row: str, found: dict[str, Any]) -> str:
    """RLlib's line of the second table."""
    stock = found[RLLIB][0]
    ratio = stock["ours_cpu_s"] / stock["cpu_s"]
    return f"| `{row}` | {stock['return']:.4g} | {stock['steps']:,} | {stock['cpu_s']:,.0f} | {ratio:.2f} |\n"


def _spread(results: Sequence[Result]) -> str:
    seeds = ", ".join(f"{each['return']:.4g}" for each in results)
    return f"**{_median(results, 'return'):.4g}**" + (f" ({seeds})" if len(results) > 1 else "")


def _draw(file: Path, kept: dict[str, Any]) -> None:
    """The curves of rows that have one: 100 episodes make its first point."""
    kept = {row: results for row, results in kept.items() if any(len(each["curve"]) > 1 for each in results[OURS])}
    across = min(ABREAST, len(kept))
    down = -(-len(kept) // across)
    with picture(file, 3.0 * across, 2.2 * down) as drawn:
        for place, (row, results) in enumerate(kept.items(), 1):
            panel = drawn.add_subplot(down, across, place)
            panel.set_title(row, loc="left")
            panel.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:g}k")
            for colour, who, name in zip(COLOURS, (OURS, SB3), ("LoomRL", "SB3"), strict=False):
                for index, each in enumerate(results[who] if _is_whole(results[who]) else ()):
                    label = name if not index else None
                    panel.plot(*zip(*each["curve"], strict=True), color=colour, linewidth=1.2, label=label)
            if "published" in PEERS[row]:
                panel.axhline(PEERS[row]["published"], color="0.5", linewidth=0.8, linestyle="--", label="zoo")
            if place == 1:
                panel.legend()
