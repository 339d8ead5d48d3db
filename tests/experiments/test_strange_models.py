"""Commands that open a model's folder: its own Python files run only where a setting on record says so, and all ids of
its tokenizer have an embedding.
"""

import asyncio
import builtins
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import Experiment, TorchServing
from loomrl.errors import ConfigError
from loomrl.experiments.evaluate import evaluate_policies
from loomrl.experiments.gate.judge import judge_version
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from loomrl.inference.model import save_model
from loomrl.serving.deployment.opening import open_policy
from loomrl.serving.deployment.source import fetch, source_of
from loomrl.store import LoomDB, open_store
from tests.inference.sample_models import VOCABULARY, planted, tiny_model, tiny_tokenizer
from tests.release.gate_support import suite

REFUSED = r"needs Python code of its own \(planted_model\.py, planted_tokenizer\.py\)"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that planted code makes. A question on standard input would be answered with yes."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ran"


@pytest.fixture
def db(tmp_path: Path) -> LoomDB:
    return open_store(f"sqlite:///{tmp_path}/loom.db")


def experiment(folder: Path, **model: Any) -> Experiment:
    places = {"store_url": f"sqlite:///{folder.parent}/loom.db", "artifact_url": str(folder.parent / "artifacts")}
    settings = {"evaluation.episodes": 1, "train.folder": str(folder.parent / "runs"), "train.updates": 1}
    wanted = {f"algorithm.model.{name}": value for name, value in model.items()}
    return resolve(["language/math_tiny"]).override({**places, **settings, **wanted})


def test_an_evaluation_refuses_it_unless_the_experiment_says_so(tmp_path: Path, mark: Path) -> None:
    folder = planted(tmp_path / "model", mark)
    with pytest.raises(ConfigError, match=REFUSED):
        evaluate_policies(experiment(folder), [str(folder)])
    assert not mark.exists()
    trusting = experiment(folder, trust_remote_code=True)
    assert trusting.sha256 != experiment(folder).sha256
    assert len(evaluate_policies(trusting, [str(folder)]).reports) == 1
    assert mark.exists()


def test_a_gate_refuses_it(tmp_path: Path, mark: Path, db: LoomDB) -> None:
    folder = planted(tmp_path / "model", mark)
    with pytest.raises(ConfigError, match=REFUSED):
        judge_version(str(folder), None, suite(), db)
    assert not mark.exists()


def test_a_gate_refuses_a_tokenizer_with_ids_that_the_model_lacks(tmp_path: Path, db: LoomDB) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<|new {n}|>" for n in range(VOCABULARY)])
    save_model(tiny_model(), tokenizer, tmp_path / "model")
    with pytest.raises(ConfigError, match=r"have no embedding: the model has 300"):
        judge_version(str(tmp_path / "model"), None, suite(), db)


def test_a_service_refuses_it_unless_its_engine_says_so(tmp_path: Path, mark: Path, db: LoomDB) -> None:
    source = source_of(str(planted(tmp_path / "model", mark)), db)
    with pytest.raises(ConfigError, match=REFUSED):
        asyncio.run(open_policy(source, fetch(source, db), TorchServing()))
    assert not mark.exists()
    asyncio.run(open_policy(source, fetch(source, db), TorchServing(trust_remote_code=True)))
    assert mark.exists()


@pytest.mark.slow
@pytest.mark.system
def test_a_training_refuses_it_unless_its_model_says_so(tmp_path: Path, mark: Path) -> None:
    folder = planted(tmp_path / "model", mark)
    path = {"path": str(folder), "build": None, "context": 128}
    with pytest.raises(ConfigError, match=REFUSED):
        train(experiment(folder, **path))
    assert not mark.exists()
    train(experiment(folder, **path, trust_remote_code=True).override({"algorithm.warm_start.steps": 0}))
    assert mark.exists()
