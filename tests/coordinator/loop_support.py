"""A tiny policy in production, what people said of it, and a loop that learns from that in seconds."""

from pathlib import Path
from typing import Any

from loomrl.config.loop import LoopExperiment
from loomrl.load import to_yaml
from loomrl.store import open_store
from tests.algorithms.language_support import build, experiment
from tests.feedback.served_support import ENDPOINT, as_served, asked, serve, store, thumbs, url

SUITE = {
    "name": "loop",
    "version": "1.0.0",
    "kind": "language",
    "benchmarks": [
        {
            "environment": {"id": "Math", "families": ["arithmetic.sum"], "settings": {"max_steps": 1}},
            "levels": [1],
            "episodes": 40,
        }
    ],
    "regression": {"margin": 0.3},
    "max_tokens": 6,
}
STEPS = [{"share": share, "minutes": 0.0, "units": 20} for share in (0.1, 0.5)] + [
    {"share": 1.0, "minutes": 0.0, "units": 0}
]
GUARD = {"metric": "error", "better": "lower", "margin": 0.2, "waits": "always"}


def production(folder: Path, *, count: int = 48) -> None:
    """Version r/0 of a tiny policy, served, with a thumb on each of its answers."""
    algo = build(folder)
    algo.begin()
    algo.stop()
    played = asked(folder, experiment(folder), "r/0", count, group=4)
    store(folder, ENDPOINT, [as_served(one, "r/0") for one in played])
    with open_store(url(folder)) as db:
        serve(db, "r/0")
        thumbs(db, {one.id: float(one.reward.total > 0.5) for one in played})


def loop(folder: Path, **changes: Any) -> LoopExperiment:
    """The loop of that endpoint, with settings by path."""
    suite = folder / "suite.yaml"
    suite.write_text(to_yaml(SUITE))
    tree = experiment(folder).plain
    algorithm = {"kind": "kto", "model": {"context": 128}, "sampling": {"max_tokens": 6}}
    return LoopExperiment.parse(
        {
            "name": "loop",
            "store_url": url(folder),
            "artifact_url": str(folder / "artifacts"),
            "endpoint": ENDPOINT,
            "triggers": {"count": 40, "schedule": None},
            "data": {"min_reward": None, "balance": "none"},
            "days": None,
            "training": {
                **{name: tree[name] for name in ("environments", "train", "evaluation")},
                "algorithm": algorithm,
                "data": {"batch": 16},
            },
            "suite": str(suite),
            "release": {"strategy": "canary", "steps": STEPS, "guards": [GUARD]},
            "pace_s": 0.2,
        }
    ).override(changes)
