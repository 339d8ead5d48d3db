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
from tests.experiments.runs import places
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
    settings = {"evaluation.episodes": 1, "train.updates": 1, "algorithm.warm_start.steps": 0}
    wanted = {f"algorithm.model.{name}": value for name, value in model.items()}
    return resolve(["language/math_tiny"]).override(places(folder.parent) | settings | wanted)


def evaluated(folder: Path, db: LoomDB, **trust: bool) -> None:
    evaluate_policies(experiment(folder, **trust), [str(folder)])


def served(folder: Path, db: LoomDB, **trust: bool) -> None:
    source = source_of(str(folder), db)
    asyncio.run(open_policy(source, fetch(source, db), TorchServing(**trust)))


def trained(folder: Path, db: LoomDB, **trust: bool) -> None:
    train(experiment(folder, path=str(folder), build=None, context=128, **trust))


@pytest.mark.parametrize(
    "opened", [evaluated, served, pytest.param(trained, marks=[pytest.mark.slow, pytest.mark.system])]
)
def test_its_code_runs_only_where_a_setting_says_so(tmp_path: Path, mark: Path, db: LoomDB, opened: Any) -> None:
    folder = planted(tmp_path / "model", mark)
    with pytest.raises(ConfigError, match=REFUSED):
        opened(folder, db)
    assert not mark.exists()
    opened(folder, db, trust_remote_code=True)
    assert mark.exists()


def test_a_gate_refuses_it_and_the_setting_is_on_record(tmp_path: Path, mark: Path, db: LoomDB) -> None:
    folder = planted(tmp_path / "model", mark)
    with pytest.raises(ConfigError, match=REFUSED):
        judge_version(str(folder), None, suite(), db)
    assert not mark.exists()
    assert experiment(folder, trust_remote_code=True).sha256 != experiment(folder).sha256


def test_a_gate_refuses_a_tokenizer_with_ids_that_the_model_lacks(tmp_path: Path, db: LoomDB) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<|new {n}|>" for n in range(VOCABULARY)])
    save_model(tiny_model(), tokenizer, tmp_path / "model")
    with pytest.raises(ConfigError, match=r"have no embedding: the model has 300"):
        judge_version(str(tmp_path / "model"), None, suite(), db)
