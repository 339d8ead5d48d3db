"""Python files in a model's folder: run only where a setting on record says so, and never after a question."""

import ast
import asyncio
import builtins
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import LanguagePolicy, OpenAIEngineConfig, TorchServing
from loomrl.config.engine import TorchEngineConfig
from loomrl.errors import ConfigError
from loomrl.inference import policy as inference
from loomrl.inference.model import config_of, open_model, open_tokenizer, vocabulary_of
from loomrl.inference.open import Opening, open_engine
from loomrl.inference.remote.engine import OpenAIEngine
from loomrl.inference.vision import open_vision
from loomrl.serving.deployment.opening import open_speech
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from tests.inference.sample_models import planted

OPENERS: dict[str, Callable[[Path, bool], Any]] = {
    "model": lambda folder, trusts: open_model(folder, trust_remote_code=trusts),
    "configuration": lambda folder, trusts: config_of(folder, trust_remote_code=trusts),
    "vocabulary": lambda folder, trusts: vocabulary_of(folder, trust_remote_code=trusts),
    "tokenizer": lambda folder, trusts: open_tokenizer(folder, trust_remote_code=trusts),
    "vision": lambda folder, trusts: open_vision(folder, trust_remote_code=trusts),
    "engine": lambda folder, trusts: open_engine(
        TorchEngineConfig(), Opening(origin=folder, context=64, slots=1, trust_remote_code=trusts)
    ),
    "policy": lambda folder, trusts: inference.open_policy(
        LanguagePolicy(path=str(folder), context=64, trust_remote_code=trusts)
    ),
    "served": lambda folder, trusts: asyncio.run(
        open_speech(
            PolicySource(key="x", kind="language", version="x", folder=str(folder)),
            OpenFolder(folder, "x", 0),
            TorchServing(trust_remote_code=trusts),
        )
    ),
}


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that planted code makes. A question on standard input would be answered with yes."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "ran"


@pytest.mark.parametrize("name", OPENERS)
def test_a_folders_own_code_is_refused_and_does_not_run(name: str, tmp_path: Path, mark: Path) -> None:
    folder = planted(tmp_path / "model", mark)
    with pytest.raises(ConfigError, match=r"needs Python code of its own \(planted_.*trust_remote_code=true"):
        OPENERS[name](folder, False)
    assert not mark.exists()


def test_a_tokenizers_own_code_is_refused_where_the_model_has_none(tmp_path: Path, mark: Path) -> None:
    folder = planted(tmp_path / "model", mark, parts="tokenizer")
    with pytest.raises(ConfigError, match=r"tokenizer path=.*needs Python code of its own \(planted_tokenizer\.py\)"):
        open_tokenizer(folder)
    assert open_model(folder) is not None
    assert not mark.exists()


def test_a_remote_engine_does_not_run_the_code_of_its_tokenizers_folder(tmp_path: Path, mark: Path) -> None:
    choice = OpenAIEngineConfig(url="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(ConfigError, match="needs Python code of its own"):
        OpenAIEngine(choice, origin=planted(tmp_path / "model", mark), context=64)
    assert not mark.exists()


OPENS = re.compile(r"(Auto\w+|kind_of\(.*\))\.(from_pretrained|from_config)")
ROOT = Path(__file__).parents[2]


def test_whatever_opens_a_folder_says_whether_its_code_may_run() -> None:
    """transformers asks on standard input where it was not told."""
    sources = [file for top in ("loomrl", "algorithms", "experiments") for file in (ROOT / top).rglob("*.py")]
    trees = {file: ast.parse(text) for file in sources if ".from_" in (text := file.read_text())}
    calls = [(file, call) for file, tree in trees.items() for call in ast.walk(tree) if isinstance(call, ast.Call)]
    opening = [(file, call) for file, call in calls if OPENS.fullmatch(ast.unparse(call.func))]
    silent = [f"{file}:{call.lineno}" for file, call in opening
              if "trust_remote_code" not in {each.arg for each in call.keywords}]  # fmt: skip
    assert len(opening) >= 5
    assert silent == []


@pytest.mark.parametrize("name", ["model", "tokenizer", "policy"])
def test_with_the_setting_the_code_runs(name: str, tmp_path: Path, mark: Path) -> None:
    opened = OPENERS[name](planted(tmp_path / "model", mark), True)
    assert opened is not None
    assert mark.exists()


def test_a_known_architecture_is_opened_by_transformers_own_code(tmp_path: Path, mark: Path) -> None:
    folder = planted(tmp_path / "model", mark)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    assert type(open_model(folder)).__module__.startswith("transformers.models.llama")
    assert not mark.exists()
