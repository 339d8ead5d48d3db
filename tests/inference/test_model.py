"""Models and tokenizers on disk, and new weights for a model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sample_models import VOCABULARY, tiny_model, tiny_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.model import open_model, open_tokenizer, save_model
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.sealed import load_weights

IDS = torch.tensor([[5, 6, 7]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tiny_model("qwen2"), tiny_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_is_opened_as_it_was_here_and_by_transformers(folder: Path) -> None:
    expected = tiny_model("qwen2")(input_ids=IDS).logits
    ours, plain = open_model(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(ours(input_ids=IDS).logits, expected)
    assert torch.equal(plain.eval()(input_ids=IDS).logits, expected)
    assert (ours.dtype, ours.training, ours.config._attn_implementation) == (torch.float32, False, "sdpa")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Qwen2ForCausalLM"]
    for tokenizer in (open_tokenizer(folder), AutoTokenizer.from_pretrained(folder)):
        assert tokenizer.chat_template == tiny_tokenizer().chat_template
        assert tokenizer.encode("What is <|end|>é") == tiny_tokenizer().encode("What is <|end|>é")


def test_a_model_is_opened_in_the_dtype_asked_for(folder: Path) -> None:
    assert open_model(folder, dtype="bfloat16").dtype == torch.bfloat16
    with pytest.raises(ConfigError, match=r"float8.*Known: bfloat16, float16, float32"):
        open_model(folder, dtype="float8")


@pytest.mark.parametrize("open_it", [open_model, open_tokenizer])
def test_what_is_no_model_is_refused_with_the_remedy(open_it: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, cause in ((tmp_path / "none", "no such folder"), (tmp_path, "the folder has no")):
        with pytest.raises(ConfigError, match=rf"path='{path}': {cause}.*local folder in Hugging Face's format"):
            open_it(path)
    with pytest.raises(ConfigError, match="no such folder"):
        open_it(tmp_path / "file")
    with pytest.raises(ConfigError, match="no such folder"):
        open_it(Path("gpt2"))


def test_broken_files_are_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer path=.*cannot be opened"):
        open_tokenizer(folder)
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ConfigError, match=r"model path=.*cannot be opened"):
        open_model(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"model path=.*cannot be opened"):
        open_model(folder)


def test_more_context_than_the_model_has_positions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"context=512 exceeds the 256 positions of this llama.*context=256 or less"):
        TorchEngine(tiny_model(), slots=1, context=512)


def test_weights_that_would_be_random_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"1 weights are missing.*layers\.1\.mlp\.up_proj"):
        open_model(folder)


def test_loaded_weights_are_the_models_tied_ones_by_either_name() -> None:
    model, other = tiny_model("qwen2"), tiny_model("qwen2", seed=1)
    load_weights(model, dict(other.named_parameters()), 1)
    assert "lm_head.weight" not in dict(other.named_parameters())
    assert torch.equal(model(input_ids=IDS).logits, other(input_ids=IDS).logits)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_weights_of_another_precision_are_cast() -> None:
    model = tiny_model("llama")
    load_weights(model, {name: x.bfloat16() for name, x in tiny_model("llama", seed=1).state_dict().items()}, 1)
    assert model.dtype == torch.float32


NORM = "model.norm.weight"


def nothing(weights: dict[str, Tensor]) -> None:
    weights.clear()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(NORM), "'model.norm.weight' is missing"),
        (lambda w: w.update({"model.norm.wait": w[NORM]}), r"'model.norm.wait' is none of.*mean 'model.norm.weight'"),
        (lambda w: w.update({NORM: torch.ones(31)}), r"shape \(31,\), the model's is \(32,\)"),
        (lambda w: w.update({NORM: torch.ones(32, dtype=torch.int64)}), "torch.int64"),
        (lambda w: w.update({NORM: torch.full((32,), torch.inf)}), "not finite"),
        (lambda w: w.update({NORM: torch.full((32,), 1e300, dtype=torch.float64)}), "not finite in torch.float32"),
        (lambda w: w.update({"lm_head.weight": w["lm_head.weight"] + 1}), "are one tensor in the model and differ"),
        (nothing, "is missing"),
    ],
    ids=["missing", "misspelt", "shape", "dtype", "infinite", "overflow", "untied", "empty"],
)
def test_weights_with_one_fault_change_nothing(change: Callable[[dict[str, Tensor]], object], message: str) -> None:
    model, weights = tiny_model("qwen2"), dict(tiny_model("qwen2", seed=1).state_dict())
    before = {name: x.clone() for name, x in model.state_dict().items()}
    change(weights)
    with pytest.raises(PolicyError, match=f"weights of version 7: .*{message}"):
        load_weights(model, weights, 7)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_a_tokenizer_with_ids_that_have_no_embedding_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<|filler {n}|>" for n in range(VOCABULARY - len(tokenizer))])
    tokenizer.add_tokens(["<|new|>", "<|newer|>"])
    save_model(tiny_model(), tokenizer, tmp_path)
    with pytest.raises(ConfigError, match=rf"2 ids, from {VOCABULARY} \('<\|new\|>'\).*the model has {VOCABULARY}\."):
        open_tokenizer(tmp_path)


def test_embeddings_without_ids_are_padding(tmp_path: Path) -> None:
    model = tiny_model()
    model.resize_token_embeddings(VOCABULARY + 20)
    save_model(model, tiny_tokenizer(), tmp_path)
    assert len(open_tokenizer(tmp_path)) == len(tiny_tokenizer())
