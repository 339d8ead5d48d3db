"""The module that learns against the model that samples: dropout, layers computed twice, low-rank additions."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import GPT2Config, GPT2LMHeadModel

from loomrl.algorithms.language import resolved
from loomrl.algorithms.language.algorithm import METRICS
from loomrl.algorithms.language.module import imitating
from loomrl.errors import LearnerError
from loomrl.experiments.policies import exported
from loomrl.inference.model import open_model, save_model
from loomrl.store import open_store
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import RAY, build, weights
from tests.inference.sample_models import random_prompt, tiny_tokenizer

pytestmark = RAY


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GPT-2's own defaults: dropout in embeddings, attention and residuals."""
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
    config = GPT2Config(vocab_size=len(tokenizer), **sizes, bos_token_id=0, eos_token_id=0)
    assert config.resid_pdrop == config.attn_pdrop == config.embd_pdrop == 0.1
    save_model(GPT2LMHeadModel(config), tokenizer, folder)
    return folder


def begun_with(folder: Path, **model: Any) -> dict[str, Any]:
    return {"algorithm.model": {"path": str(folder), "build": None, "context": 128, **model}}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="one step"),
        pytest.param({"algorithm.optimizer.epochs": 2, "algorithm.kl.coefficient": 0.1}, id="steps and a reference"),
        pytest.param({"algorithm.warm_start.steps": 4, "algorithm.model.lora": {"dropout": 0.5}}, id="imitates, LoRA"),
    ],
)
def test_model_with_dropout_learns_what_its_engine_samples(tmp_path: Path, gpt2: Path, changes: dict[str, Any]) -> None:
    algo = build(tmp_path, **begun_with(gpt2), **changes)
    history = [algo.train()[METRICS] for _ in range(2)]
    algo.stop()
    assert max(line[Metric.PUBLISH_DISTANCE] for line in history) < 1e-4
    assert max(line[Metric.POLICY_DRIFT] for line in history) < 1e-4
    assert max(line[Metric.PUBLISH_REPEATED] for line in history) == 0
    assert history[0][Metric.POLICY_KL] < 1e-3


def test_the_first_weights_of_a_model_that_was_built_are_found_on_a_host_that_is_not_the_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's copy is out of reach there."""
    algo = build(tmp_path)
    spec = algo.config.get_default_rl_module_spec()
    drivers = algo.config.origin
    algo.stop()
    shutil.rmtree(drivers)
    monkeypatch.setattr(resolved, "_fetch_built", resolved._fetch_built.__wrapped__)
    assert spec.build().lm.num_parameters() > 0


def test_dropout_is_on_while_demonstrations_are_imitated_and_only_then(tmp_path: Path, gpt2: Path) -> None:
    algo = build(tmp_path, **begun_with(gpt2))
    own = algo.learner_group._learner._own
    assert not any(part.training for part in own.modules())
    with imitating(own):
        assert all(part.training for part in own.modules())
    assert not any(part.training for part in own.modules())


def test_learner_that_contradicts_itself_is_named_and_no_engine_is_blamed(tmp_path: Path, gpt2: Path) -> None:
    algo = build(tmp_path, **begun_with(gpt2))
    algo.learner_group._learner._own.lm.train()
    with pytest.raises(LearnerError, match=r"asked twice.*draws random numbers.*Engines and weights are not at fault"):
        algo.train()


def test_layers_that_are_computed_twice_learn_the_same(tmp_path: Path, gpt2: Path, monkeypatch: Any) -> None:
    after = []
    for twice in (False, True):
        algo = build(tmp_path / str(twice), **begun_with(gpt2, gradient_checkpointing=twice))
        layer = algo.learner_group._learner._own.lm.transformer.h[0]
        passes = []
        whole = layer.mlp.forward
        monkeypatch.setattr(layer.mlp, "forward", lambda x, whole=whole, passes=passes: passes.append(1) or whole(x))
        algo.train()
        passes.clear()
        algo.train()
        after.append((weights(algo), len(passes)))
        algo.stop()
    (plain, once), (again, more) = after
    assert more > once
    assert all((plain[name] == again[name]).all() for name in plain)


def test_adapter_beside_the_model_says_what_the_merged_model_says(tmp_path: Path, gpt2: Path) -> None:
    lora = {"rank": 4, "alpha": 16, "targets": ["c_attn", "c_proj"]}
    algo = build(tmp_path, **begun_with(gpt2, lora=lora), **{"train.updates": 1})
    algo.train()
    algo.stop()
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        exported("r", db, tmp_path / "out")
    merged = open_model(tmp_path / "out")
    base = open_model(gpt2)
    ids = torch.from_numpy(random_prompt(0, 40)).long()[None] % 270
    with torch.no_grad():
        before = base(ids).logits.log_softmax(-1)
        expected = merged(ids).logits.log_softmax(-1)
        found = PeftModel.from_pretrained(base, tmp_path / "out" / "adapter")(ids).logits.log_softmax(-1)
    assert (expected - before).abs().max() > 1e-3
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
