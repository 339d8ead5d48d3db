"""Success per generated token of language policies that learn from the same beginning in different ways.

All contenders of a contest begin with one model that imitated demonstrations. The first is what the others are compared
with, at equal generated tokens.
"""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomrl.telemetry.metric import Metric
from loomrl.telemetry.progress import progress

Contenders = Mapping[str, Mapping[str, Any]]
"""Each contender's changes of the experiment."""
EXPERIMENT = "language/math_tiny_grpo"
WINDOW = 3
"""Updates over which success is averaged."""
NARROW = {"low": 3e-4, "high": 4e-4}
LEVEL = 0.7
"""Success whose price in generated tokens is told."""


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    seeds: tuple[int, ...] = (1, 2, 3)
    warm_steps: int = 1300
    updates: int = 30
    groups: int = 8
    """Fresh groups of an update, and replayed ones."""
    few: int = 3
    """Fresh groups of an update, where they are few."""
    tasks: int = 200
    """Held-out tasks after training."""


FULL = Size()
QUICK = Size(seeds=(1,), warm_steps=10, updates=2, groups=1, few=1, tasks=4)


def replay(size: Size) -> Contenders:
    """`two_epochs` uses the tokens of `fresh` twice in their own update; `double` generates twice as many, for as large
    an update as replay's. The last two have few fresh groups an update, and three times as many replayed ones.
    """
    return {
        "fresh": {},
        "replay": {"rollout.replay": {"groups": size.groups}},
        "two_epochs": {"algorithm.optimizer.epochs": 2},
        "double": {"rollout.groups_per_update": 2 * size.groups},
        "few_fresh": {"rollout.groups_per_update": size.few},
        "few_replay": {"rollout.groups_per_update": size.few, "rollout.replay": {"groups": 3 * size.few}},
    }


def losses(size: Size) -> Contenders:
    """Four steps an update, so that ratios leave 1; `one_step` needs no bound, and `unbounded` has none."""
    four = {"algorithm.optimizer": {"epochs": 2, "minibatches": 2}}
    return {
        "clip": four,
        "higher": {**four, "algorithm.clip": {"high": 0.28}},
        "sequence": {**four, "algorithm.ratio": "sequence", "algorithm.average": "sequence", "algorithm.clip": NARROW},
        "cispo": {**four, "algorithm.surrogate": "cispo"},
        "unbounded": {**four, "algorithm.clip": {"low": 0.999, "high": 1000.0}},
        "by_sequence": {**four, "algorithm.average": "sequence"},
        "dynamic": {**four, "algorithm.dynamic_sampling": True},
        "one_step": {"algorithm.optimizer": {"epochs": 1, "minibatches": 1}},
    }


def measure(contenders: Callable[[Size], Contenders], size: Size = FULL) -> dict[str, Any]:
    """Every figure of a contest: medians over the seeds, and each run's own."""
    from loomrl.experiments.algorithms import ray_running

    entrants = contenders(size)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in entrants}
    with (
        tempfile.TemporaryDirectory(prefix="loom-bench-") as name,
        ray_running(1),
        progress(f"bench {contenders.__name__}", len(entrants) * len(size.seeds)) as report,
    ):
        folder = Path(name)
        begin = _warm(folder, size)
        for seed in size.seeds:
            for entrant, changes in entrants.items():
                runs[entrant].append(_run(folder / f"{entrant}-{seed}", size, {**begin, **changes, "seed": seed}))
                report(sum(map(len, runs.values())))
    return figures(runs)


def figures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Medians over the seeds. A run's budget is what the first contender generated with its seed, or less."""
    told: dict[str, dict[str, float | None]] = {}
    first = next(iter(runs.values()))
    for name, of in runs.items():
        budgets = [run["tokens"][-1] for run in first]
        told[name] = {
            "held_out": statistics.median(run["held_out"] for run in of),
            "success_at_budget": statistics.median(_at(run, most) for run, most in zip(of, budgets, strict=True)),
            "mean_success": statistics.median(_area(run, most) for run, most in zip(of, budgets, strict=True)),
            "tokens_to_level": _median_price(of),
            "tokens": statistics.median(run["tokens"][-1] for run in of),
            "learn_s": statistics.median(run["learn_s"] for run in of),
        }
        shares = [run["share"] for run in of if run["share"]]
        if shares:
            told[name] |= {"replayed_share": statistics.median(shares), "oldest": max(run["oldest"] for run in of)}
    return {**told, "level": LEVEL, "all_runs": {name: list(of) for name, of in runs.items()}}


def _smooth(run: Mapping[str, Any]) -> list[float]:
    """Success of attempts over the latest updates, after each update."""
    success = run["success"]
    return [statistics.mean(success[max(0, end - WINDOW) : end]) for end in range(1, len(success) + 1)]


def _at(run: Mapping[str, Any], budget: float) -> float:
    """Success of the attempts that the budget ends with."""
    return [level for level, tokens in zip(_smooth(run), run["tokens"], strict=True) if tokens <= budget * 1.001][-1]


def _area(run: Mapping[str, Any], budget: float) -> float:
    """Mean success of the tokens generated within the budget."""
    before, area = 0.0, 0.0
    for tokens, success in zip(run["tokens"], run["success"], strict=True):
        area += success * (min(tokens, budget) - before)
        before = min(tokens, budget)
    return area / before


def _median_price(of: Sequence[Mapping[str, Any]]) -> float | None:
    """Tokens generated until success was at the level; None where most runs never were."""
    prices = [
        next((tokens for level, tokens in zip(_smooth(run), run["tokens"], strict=True) if level >= LEVEL), None)
        for run in of
    ]
    ordered = sorted(prices, key=lambda price: float("inf") if price is None else price)
    return ordered[len(ordered) // 2]


def _algorithm(folder: Path, size: Size, changes: Mapping[str, Any]) -> Any:
    from loomrl.experiments.algorithms import open_algorithm
    from loomrl.experiments.shipped import resolve

    folder.mkdir()
    experiment = resolve([EXPERIMENT]).override(
        {
            "store_url": f"sqlite:///{folder}/loom.db",
            "artifact_url": str(folder / "artifacts"),
            "train.updates": size.updates,
            "train.checkpoint_every": size.updates,
            "rollout.groups_per_update": size.groups,
            "evaluation.episodes": size.tasks,
            **changes,
        }
    )
    return open_algorithm(experiment, run="run").build_algo()


def _warm(folder: Path, size: Size) -> dict[str, Any]:
    """Settings by which runs begin with the model after its demonstrations."""
    from loomrl.artifacts import open_artifacts

    algo = _algorithm(folder / "warm", size, {"algorithm.warm_start.steps": size.warm_steps})
    algo.warm_up()
    algo.stop()
    made = open_artifacts(str(folder / "warm" / "artifacts")).get_folder("runs/run/000000", folder / "checkpoint")
    return {
        "algorithm.model.path": str(made / "model"),
        "algorithm.model.build": None,
        "algorithm.warm_start.steps": 0,
    }


def _run(folder: Path, size: Size, changes: Mapping[str, Any]) -> dict[str, Any]:
    """One run: tokens generated so far and success, update by update, and success on held-out tasks after it."""
    from loomrl.evaluation.report import judge

    algo = _algorithm(folder, size, changes)
    history: list[Mapping[str, float]] = []
    algo.listen = lambda done, metrics: history.append(dict(metrics))
    while algo.stopped is None:
        algo.train()
    settings = algo.config.experiment
    found = judge("sampled", algo.trial("sampled", settings.evaluation)).overall
    algo.stop()
    attempts = settings.rollout.groups_per_update * settings.rollout.group_size
    each = [line[Metric.LENGTH_ACTION] * (attempts - line[Metric.FAILURES]) for line in history]
    return {
        "held_out": found.success.mean,
        "success": [line[Metric.SUCCESS] for line in history],
        "tokens": [round(sum(each[:end])) for end in range(1, len(each) + 1)],
        "learn_s": round(sum(line[Metric.TIME_LEARN] for line in history), 1),
        "share": statistics.mean(line.get(Metric.REPLAY_SHARE, 0.0) for line in history),
        "oldest": max(line.get(Metric.REPLAY_AGE_MAX, 0.0) for line in history),
    }
