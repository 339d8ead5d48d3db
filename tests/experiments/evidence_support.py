"""A small run with its evidence, and forgers who change one thing in it and seal it again."""

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loomrl.config import Experiment
from loomrl.experiments.gate.judge import judge_version
from loomrl.experiments.gate.suite import parse_suite
from loomrl.experiments.train import train
from loomrl.experiments.verify.bundle import MANIFEST, RECORD, open_bundle, seal_bundle
from loomrl.experiments.verify.export import write_evidence
from loomrl.hub.codec import encode
from loomrl.inference.weights.sealed import weights_hash
from loomrl.store import open_store
from loomrl.types import Reward, Trajectory
from tests.algorithms.language_support import ASCII, experiment

SMALL: Mapping[str, Any] = {
    "train.keep": "all",
    "train.checkpoint_every": 1,
    "train.updates": 2,
    "rollout.groups_per_update": 2,
    "rollout.group_size": 4,
    "evaluation.episodes": 4,
}


SUITE: Mapping[str, Any] = {
    "name": "small",
    "version": "1.0.0",
    "kind": "language",
    "benchmarks": [{"environment": {"id": ASCII}, "levels": [1], "episodes": 8, "at_least": 0.05}],
    "regression": None,
}


def made(folder: Path, kind: str = "grpo", *, run: str = "r", is_judged: bool = False, **changes: Any) -> Path:
    """The bundle of a small run, which the gate has judged if asked for."""
    settings = experiment(folder, kind, **{**SMALL, **changes})
    return bundled(settings, folder / "bundle", run=run, is_judged=is_judged)


def bundled(settings: Experiment, place: Path, *, run: str = "r", is_judged: bool = False) -> Path:
    """The bundle of a run of this experiment."""
    train(settings, run=run)
    with open_store(settings.store_url) as db:
        if is_judged:
            judge_version(run, f"{run}/0", parse_suite(dict(SUITE), origin="small"), db)
        write_evidence(run, db, place)
    return place


def copy_of(bundle: Path, folder: Path) -> Path:
    shutil.copytree(bundle, folder)
    return folder


def seal_again(bundle: Path) -> None:
    """As a forger does who knows the format."""
    manifest = json.loads((bundle / MANIFEST).read_text())
    seal_bundle(bundle, {"version": manifest["version"], "loomrl": manifest["loomrl"]})


def change_record(bundle: Path, change: Callable[[Any], None]) -> None:
    record = json.loads((bundle / RECORD).read_text())
    change(record)
    (bundle / RECORD).write_text(json.dumps(record))


def _change_attempt(bundle: Path, folder: str, rng: random.Random, change: Callable[[Trajectory], Trajectory]) -> str:
    file = rng.choice(sorted((bundle / "runs/r" / folder).iterdir()))
    name = file.relative_to(bundle).as_posix()
    attempts = open_bundle(bundle).attempts(name)
    at = rng.randrange(len(attempts))
    attempts[at] = change(attempts[at])
    file.write_bytes(b"".join(map(encode, attempts)))
    return attempts[at].id


def forge_reward(bundle: Path, rng: random.Random) -> tuple[str, str]:
    def raised(attempt: Trajectory) -> Trajectory:
        reward = Reward(attempt.reward.total + 0.01, {"ascii": attempt.reward.total + 0.01}, attempt.reward.success)
        return replace(attempt, reward=reward, turns=(replace(attempt.turns[0], reward=reward),))

    return "rewards", _change_attempt(bundle, "updates", rng, raised)


def forge_token(bundle: Path, rng: random.Random) -> tuple[str, str]:
    """Another token in an answer, with its own text."""

    def other(attempt: Trajectory) -> Trajectory:
        tokens = attempt.turns[0].tokens
        assert tokens is not None
        ids_T = tokens.ids_T.copy()
        at = rng.choice(np.flatnonzero(tokens.mask_T).tolist())
        ids_T[at] = (ids_T[at] + rng.randrange(1, 200)) % 250 + 7
        return replace(attempt, turns=(replace(attempt.turns[0], tokens=replace(tokens, ids_T=ids_T)),))

    return "tokens", _change_attempt(bundle, "updates", rng, other)


def forge_task(bundle: Path, rng: random.Random) -> tuple[str, str]:
    """An easier task, it may be."""

    def other(attempt: Trajectory) -> Trajectory:
        return replace(attempt, task=replace(attempt.task, seed=attempt.task.seed + 7))

    return "tasks", _change_attempt(bundle, "updates", rng, other)


def forge_weight(bundle: Path, rng: random.Random, by: float = 0.0) -> tuple[str, str]:
    """The next number, or one further away, after one weight of a checkpoint, with the hashes that belong to it."""
    folder = rng.choice(sorted((bundle / "runs/r/checkpoints").iterdir()))
    state = torch.load(folder / "state.pt", weights_only=True)
    module = state["learner"]["module"]
    tensor = module[rng.choice(sorted(name for name in module if module[name].is_floating_point()))].view(-1)
    at = rng.randrange(len(tensor))
    tensor[at] = torch.nextafter(tensor[at], torch.tensor(9.0)) + by
    torch.save(state, folder / "state.pt")
    hash = weights_hash(module)
    line = json.loads((folder / "line.json").read_text())
    (folder / "line.json").write_text(json.dumps({**line, "weights": hash}))

    def update(record: Any) -> None:
        record["runs"][0]["policies"][int(folder.name)]["data"]["weights"] = hash

    change_record(bundle, update)
    return ("origin" if int(folder.name) == 0 else "update"), f"r/{int(folder.name)}"


def forge_code(bundle: Path, rng: random.Random) -> tuple[str, str]:
    """The hash of the environment, or of loomrl."""
    digit = rng.choice("0123456789abcdef")
    name = rng.choice(["Ascii@0.1.0", "loomrl"])

    def update(record: Any) -> None:
        run = record["runs"][0]
        hashes = run["begun"][0]["sources"] if name == "loomrl" else run["run"]["environments"]
        hashes[name] = digit + hashes[name][1:] if hashes[name][0] != digit else "g" + hashes[name][1:]

    change_record(bundle, update)
    return "code", name


def forge_evaluation(bundle: Path, rng: random.Random) -> tuple[str, str]:
    """The success of a report, or of one of its attempts."""
    if rng.random() < 0.5:

        def solved(attempt: Trajectory) -> Trajectory:
            reward = replace(attempt.reward, success=attempt.reward.success + 0.05)
            return replace(attempt, reward=reward, turns=(replace(attempt.turns[0], reward=reward),))

        _change_attempt(bundle, "judged", rng, solved)
        return "evaluation", "r/"

    def update(record: Any) -> None:
        report = rng.choice(record["runs"][0]["evaluations"])["report"]
        report["overall"]["success"]["mean"] += 0.01

    change_record(bundle, update)
    return "evaluation", "r/"


def forge_lease(bundle: Path, rng: random.Random) -> tuple[str, str]:
    """One group less to learn from."""
    update = rng.choice(["0", "1"])
    change_record(bundle, lambda record: record["runs"][0]["leased"][update].pop())
    return "update", f"r/{int(update) + 1}"


def forge_verdict(bundle: Path, rng: random.Random) -> tuple[str, str]:
    """The outcome, a check, or the score of a task."""

    def update(record: Any) -> None:
        verdict = record["verdicts"][0]
        match rng.randrange(3):
            case 0:
                verdict["outcome"] = "refused" if verdict["outcome"] == "allowed" else "allowed"
            case 1:
                verdict["report"]["checks"][0]["figures"]["success"]["low"] += 0.01
            case _:
                scores = verdict["report"]["scores"][0]["challenger"]
                at = rng.randrange(len(scores))
                scores[at] = scores[at] + 0.01 if scores[at] < 0.5 else scores[at] - 0.01

    change_record(bundle, update)
    return "verdict", "gate-small"


def forge_row(bundle: Path, rng: random.Random) -> tuple[str, str]:
    """One word of a conversation that was learnt from."""
    file = bundle / "runs/r/data/file.jsonl"
    lines = file.read_text().splitlines()
    at = rng.randrange(len(lines))
    lines[at] = lines[at].replace("It is", "It was")
    file.write_text("\n".join(lines) + "\n")
    return "data", "r/"


FORGERS = (
    forge_reward,
    forge_token,
    forge_task,
    forge_weight,
    forge_code,
    forge_evaluation,
    forge_lease,
    forge_verdict,
)
