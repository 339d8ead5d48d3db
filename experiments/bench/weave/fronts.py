"""WEAVE's fronts on the shipped experiments, compared with PGMORL if it is installed, and with PPO.

Every run has a process of its own, with one torch thread; CPU time is that of training, without evaluation.
"""

import importlib.util
import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from loomrl.config import ControlExperiment
from loomrl.errors import ConfigError, unknown
from loomrl.experiments.bench.control.measure import script
from loomrl.experiments.shipped import resolve
from loomrl.telemetry.progress import progress

RUN, PEER = "loomrl.experiments.bench.weave.run", "loomrl.experiments.bench.weave.peer"

SHORT = 30_000
"""Steps after which GPI-LS is evaluated; five times as many would cost too much."""

Told = dict[str, Any]
"""A run's result."""


@dataclass(frozen=True, slots=True)
class Task:
    """A shipped experiment, and the final evaluation of its front."""

    preferences: int
    episodes: int
    chebyshev: bool = False
    """True if it is shipped with Chebyshev's utility instead of weighted sums."""


FRONTS = {
    "dst_concave": Task(preferences=101, episodes=1, chebyshev=True),
    "resource_gathering": Task(preferences=15, episodes=1000),
    "minecart": Task(preferences=28, episodes=100),
    "mo_hopper": Task(preferences=11, episodes=100),
}


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    seeds: tuple[int, ...] = (1, 2, 3)
    rounds: int = 7
    """Rounds of `ppo_cost`."""
    steps: int = 16_384
    """Steps of each round."""
    solvers: tuple[int, ...] = tuple(range(1, 12))
    """Seeds for solving CartPole: the number of steps varies widely."""
    solve: int = 150_000
    """Steps within which CartPole must be solved."""
    words: tuple[str, ...] = ()
    """Overrides for every shipped experiment."""
    judged: Mapping[str, int] = field(default_factory=dict)
    """`episodes` and `preferences`, instead of a task's own."""
    at_once: int = 2
    """Concurrent processes."""
    peers: bool = True
    ablated: tuple[str, ...] = ("dst_concave", "resource_gathering", "mo_hopper", "minecart")


FULL = Size()
QUICK = Size(
    seeds=(1,),
    solvers=(1,),
    rounds=1,
    steps=1024,
    solve=1024,
    words=(
        "train.steps=256",
        "train.tell_every=128",
        "rollout.environments=1",
        "rollout.steps=128",
        "evaluation.every=null",
        "evaluation.preferences=11",
        "evaluation.episodes=1",
    ),
    judged={"episodes": 1, "preferences": 11},
    peers=False,
    ablated=("dst_concave",),
)

ABLATIONS = {
    "full": (),
    "one expert": ("algorithm.experts=1",),
    "one critic": ("algorithm.critics=1",),
    "one of each": ("algorithm.experts=1", "algorithm.critics=1"),
}


def _front(name: str, size: Size) -> dict[str, Any]:
    runs = _trained({str(seed): (name, seed, ()) for seed in size.seeds}, size, f"bench weave, {name}")
    return _told_of(name, list(runs.values()))


def _dst_concave(size: Size) -> dict[str, Any]:
    figures = _front("dst_concave", size)
    points = [run["points"] for run in figures["dst_concave_runs"]]
    return figures | {"dst_concave_points": round(statistics.median(points))}


def _mo_hopper(size: Size) -> dict[str, Any]:
    """With PGMORL's results for as many steps, if morl-baselines is installed."""
    figures = _front("mo_hopper", size)
    peers = _peers("pgmorl", figures["mo_hopper_steps"], size)
    if not peers:
        return figures
    ratios = [run["hv"] / peer["hv"] for run, peer in zip(figures["mo_hopper_runs"], peers, strict=True)]
    spent = [run["cpu_s"] / peer["cpu_s"] for run, peer in zip(figures["mo_hopper_runs"], peers, strict=True)]
    figures |= _middle("mo_hopper_vs_pgmorl", ratios) | _middle("mo_hopper_vs_pgmorl_cpu_ratio", spent)
    figures["mo_hopper_vs_pgmorl_steps"] = peers[0]["steps"]
    figures["mo_hopper_vs_pgmorl_cpu_s"] = _median(peers, "cpu_s")
    return figures | {"mo_hopper_vs_pgmorl_runs": peers}


def _minecart(size: Size) -> dict[str, Any]:
    """With GPI-LS's results for `SHORT` steps, if morl-baselines is installed."""
    figures = _front("minecart", size)
    peers = _peers("gpi_ls", SHORT, size)
    if not peers:
        return figures
    found = {"gpi_ls_hv": _median(peers, "hv"), "gpi_ls_steps": SHORT, "gpi_ls_cpu_s": _median(peers, "cpu_s")}
    return figures | {f"minecart_{key}": value for key, value in found.items()} | {"minecart_gpi_ls_runs": peers}


def _ppo_cost(size: Size) -> dict[str, Any]:
    """CPU time per step of CartPole over PPO's, and the steps that each needs to solve it; null if too many."""
    told = script(RUN, "cost", str(size.rounds), str(size.steps))
    figures = _middle("ppo_cost_ratio", told["ratios"])
    figures["ppo_cost_ratio_steps"] = told["steps"]
    figures["ppo_cost_ratio_cpu_s"] = round(told["steps"] * statistics.median(spent[1] for spent in told["cpu_s"]), 2)
    asked = {f"{kind} {seed}": (kind, seed) for seed in size.solvers for kind in ("ppo", "weave")}
    found = _told(asked, lambda kind, seed: script(RUN, "solve", kind, str(seed), str(size.solve)), size, "solving")
    for kind in ("ppo", "weave"):
        runs = [found[f"{kind} {seed}"] for seed in size.solvers]
        steps = statistics.median(math.inf if run["steps"] is None else run["steps"] for run in runs)
        figures[f"{kind}_cartpole_steps"] = steps if math.isfinite(steps) else None
        figures[f"{kind}_cartpole_runs"] = runs
    return figures


def _ablations(size: Size) -> dict[str, Any]:
    """Hypervolume, by environment and ablated part."""
    asked = {
        f"{name}, {what}, {seed}": (name, seed, words)
        for name in size.ablated
        for what, words in _variants(name).items()
        for seed in size.seeds
    }
    runs, table = _trained(asked, size, "bench weave, ablations"), {}
    for name in size.ablated:
        table[name] = {
            what: _summary([runs[f"{name}, {what}, {seed}"] for seed in size.seeds]) for what in _variants(name)
        }
    return {"ablations": table}


def _variants(name: str) -> Mapping[str, tuple[str, ...]]:
    """Overrides for each variant; experiments ship with one region, so more regions are a variant."""
    other = "linear" if FRONTS[name].chebyshev else "chebyshev"
    experiment = resolve([f"control/{name}"])
    assert isinstance(experiment, ControlExperiment)
    regions = ("rollout.runners=2", f"rollout.environments={(experiment.rollout.environments or 2) // 2}")
    return ABLATIONS | {other: (f"algorithm.scalarisation={{kind: {other}}}",), "two regions": regions}


# -- runs ------------------------------------------------------------------------------------------------------------


def _trained(asked: Mapping[str, tuple[str, int, tuple[str, ...]]], size: Size, label: str) -> dict[str, Told]:
    """Shipped experiments by name, each with a seed and overrides."""

    def run(name: str, seed: int, words: tuple[str, ...]) -> Told:
        task = FRONTS[name]
        judged = {"episodes": task.episodes, "preferences": task.preferences, **size.judged}
        plan = {"words": [*words, *size.words], **judged}
        return script(RUN, "front", name, str(seed), json.dumps(plan))

    return _told(asked, run, size, label)


def _peers(peer: str, steps: int, size: Size) -> list[Told]:
    """A peer with every seed; empty if morl-baselines cannot be imported."""
    if not size.peers or importlib.util.find_spec("morl_baselines") is None:
        return []
    asked = {str(seed): (peer, seed) for seed in size.seeds}
    told = _told(asked, lambda peer, seed: script(PEER, peer, str(seed), str(steps)), size, f"bench weave, {peer}")
    return list(told.values())


def _told(asked: Mapping[str, Sequence[Any]], run: Callable[..., Told], size: Size, label: str) -> dict[str, Told]:
    """The results of runs, a few at a time."""
    with ThreadPoolExecutor(size.at_once) as pool, progress(label, len(asked)) as report:
        begun = {name: pool.submit(run, *words) for name, words in asked.items()}
        told = {}
        for done, (name, future) in enumerate(begun.items(), 1):
            told[name] = future.result()
            report(done, name)
    return told


# -- figures ---------------------------------------------------------------------------------------------------------


def _told_of(name: str, runs: list[Told]) -> dict[str, Any]:
    figures = _middle(f"{name}_hv", [run["hv"] for run in runs])
    figures |= {f"{name}_steps": runs[0]["steps"], f"{name}_cpu_s": _median(runs, "cpu_s")}
    return figures | {f"{name}_runs": runs}


def _summary(runs: list[Told]) -> dict[str, Any]:
    found = [run["hv"] for run in runs]
    middle = _middle("hv", found) | {"cpu_s": _median(runs, "cpu_s")}
    return middle | {"points": round(statistics.median(run["points"] for run in runs))}


def _middle(key: str, figures: Sequence[float]) -> dict[str, Any]:
    """Median, and lowest and highest."""
    return {
        key: _short(statistics.median(figures)),
        f"{key}_range": [_short(min(figures)), _short(max(figures))],
    }


def _median(runs: Sequence[Told], key: str) -> float:
    return _short(statistics.median(run[key] for run in runs))


def _short(figure: float) -> float:
    return float(f"{figure:.4g}")


PARTS: dict[str, Callable[[Size], dict[str, Any]]] = {
    "dst_concave": _dst_concave,
    "resource_gathering": lambda size: _front("resource_gathering", size),
    "minecart": _minecart,
    "mo_hopper": _mo_hopper,
    "ppo_cost": _ppo_cost,
    "ablations": _ablations,
}


def measure(size: Size, only: str | None = None) -> dict[str, Any]:
    """All figures except the ablations, or only one part's."""
    if only is not None and only not in PARTS:
        raise ConfigError("--only " + unknown("part", only, PARTS))
    figures: dict[str, Any] = {}
    for part in [only] if only else [name for name in PARTS if name != "ablations"]:
        figures |= PARTS[part](size)
    return figures | {"machine": {"cores": os.cpu_count(), "system": platform.platform()}}
