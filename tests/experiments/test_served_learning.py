"""What was served teaches: each way improves held-out success by noisy judgements, and shuffled ones teach nothing.

A tiny policy answers tasks of two families. People judge its answers as the checker does, but for one in ten.
"""

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import DataSelection
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import TrainResult, train
from loomrl.feedback.dataset import freeze
from loomrl.store import open_store
from tests.algorithms.language_support import QUIET
from tests.experiments.runs import places
from tests.feedback.served_support import (
    as_foreign,
    as_served,
    asked,
    mistaken,
    reward,
    serve,
    shuffled,
    store,
    thumbs,
    url,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    QUIET,
]
ANSWERS, EACH, WRONG = 2048, 4, 0.1
"""Answers, as many to each prompt, and the share of wrong judgements."""
WAYS: dict[str, dict[str, Any]] = {
    "served_policy": {},
    "served_kto": {},
    "served_dpo": {},
    "served_raft": {"endpoints": [], "agents": ["7"], "parent": "first/0"},
}
"""Shipped experiment → the selection of its data set; what RAFT learns from is text."""


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory, warm: dict[str, object]) -> Path:
    """A folder with the policy after its warm start, what it answered, and which answers were right."""
    folder = tmp_path_factory.mktemp("production")
    one = {"train.updates": 1, "train.checkpoint_every": 1}
    base = resolve(["language/math_tiny"]).override({**places(folder), **warm, **one})
    train(base, run="first")
    played = asked(folder, base, "first/0", ANSWERS, group=EACH)
    store(folder, "assistant", [as_served(one, "first/0") for one in played])
    store(folder, "agent-7", [as_foreign(one) for one in played])
    (folder / "right.json").write_text(json.dumps({one.id: one.reward.success for one in played}))
    with open_store(url(folder)) as db:
        serve(db, "first/0")
    return folder


def learnt(folder: Path, name: str, judged: dict[str, float]) -> TrainResult:
    """The shipped experiment of this name, on all answers with these judgements."""
    began = cpu_s()
    with open_store(url(folder)) as db:
        if name == "served_kto":
            thumbs(db, judged)
        else:
            reward(db, judged)
        selection = DataSelection.parse({"endpoints": ["assistant"], "name": name, "holdout": 0.0, **WAYS[name]})
        dataset = freeze(db, url(folder), selection, now=5.0)
    result = train(resolve([f"language/{name}"]).override({**places(folder), "data.dataset": dataset.id}), run="next")
    told = {way: [result.before[way], result.after[way]] for way in result.after}
    print(f"{name}: {told}, {result.updates} updates, {cpu_s() - began:.0f} CPU seconds")
    return result


def cpu_s() -> float:
    """Of this process and the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def sampled(result: TrainResult) -> tuple[dict[str, float], dict[str, float]]:
    """Success before and after with its interval."""
    (found,) = [each for each in result.comparisons if each.name == "sampled"]
    return found.before["overall"]["success"], found.after["overall"]["success"]


@pytest.mark.parametrize("name", WAYS)
def test_noisy_judgements_of_what_was_served_improve_the_policy(name: str, production: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(production, tmp_path / "honest")
    right = json.loads((folder / "right.json").read_text())
    before, after = sampled(learnt(folder, name, mistaken(right, wrong=WRONG)))
    assert after["low"] > before["high"]


@pytest.mark.parametrize("name", WAYS)
def test_shuffled_judgements_improve_nothing(name: str, production: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(production, tmp_path / "shuffled")
    right = json.loads((folder / "right.json").read_text())
    before, after = sampled(learnt(folder, name, shuffled(mistaken(right, wrong=WRONG))))
    assert after["mean"] <= before["high"]
