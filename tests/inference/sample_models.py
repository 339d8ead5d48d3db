"""A tiny tokenizer and tiny models, made on the spot, and what a plain forward pass says about their tokens."""

import asyncio
import copy
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import psutil
import ray
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.pytorch_utils import Conv1D

from loomrl.config import Sampling
from loomrl.inference.chat import Spelling
from loomrl.inference.engine import Completion, Request
from loomrl.inference.form import FormCompiler
from loomrl.inference.model import save_model
from loomrl.inference.open import Opening
from loomrl.inference.vllm.fleet import VllmFleet
from loomrl.inference.weights.adapter import NARROW, WIDEN, merge
from loomrl.inference.weights.sealed import Sealed, identify, seal

VOCABULARY = 300
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")


def additions(
    model: PreTrainedModel, seed: int, *, rank: int = 3, only: str = "", scale: float = 0.2
) -> dict[str, Tensor]:
    """Random ones to the linear layers, large enough to change what is sampled."""
    rng = torch.Generator().manual_seed(seed)
    found = {}
    for name, layer in model.named_modules():
        if type(layer) not in (nn.Linear, Conv1D) or only not in name or name == "lm_head":
            continue
        sizes = (layer.nx, layer.nf) if isinstance(layer, Conv1D) else (layer.in_features, layer.out_features)
        found[name + NARROW] = torch.randn(rank, sizes[0], generator=rng) * scale
        found[name + WIDEN] = torch.randn(sizes[1], rank, generator=rng) * scale
    return found


def adapter(model: PreTrainedModel, seed: int, *, version: int = 1, **shape: int | str) -> Sealed:
    return seal(additions(model, seed, **shape), version, base=identify(model.state_dict().items()))  # type: ignore[arg-type]


def merged(model: PreTrainedModel, sealed: Sealed) -> PreTrainedModel:
    whole = copy.deepcopy(model)
    whole.load_state_dict(merge(model.state_dict(), model, sealed))
    return whole


def tiny_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """Bytes, a few merges, and the special tokens of the template."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(["What is 1 + 1? The answer is two. What is the answer?"] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=list(SPECIAL[1:]),
        chat_template=template,
    )


def tiny_forms() -> FormCompiler:
    """Forms in the words of the tiny tokenizer; close it."""
    tokenizer = tiny_tokenizer()
    spelling = Spelling(tokenizer)
    special = set(tokenizer.all_special_ids)
    return FormCompiler(lambda: [b"" if id in special else spelling[id] for id in range(VOCABULARY)])


def tiny_model(
    kind: str = "llama", *, seed: int = 0, scale: float = 0.3, head_dim: int = 8, positions: int = 256
) -> PreTrainedModel:
    """A model with random weights, large enough that its distributions are far from flat."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": positions,
        "initializer_range": scale,
        "attn_implementation": "sdpa",
    }
    if kind == "gpt2":
        config = GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=scale,
            bos_token_id=0, eos_token_id=0, attn_implementation="sdpa",
        )  # fmt: skip
        return GPT2LMHeadModel(config).eval()
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=2, tie_word_embeddings=True)).eval()
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**sizes, num_key_value_heads=2, head_dim=16)).eval()
    if kind == "olmo2":
        return Olmo2ForCausalLM(Olmo2Config(**sizes, num_key_value_heads=2)).eval()
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**sizes, num_key_value_heads=2, sliding_window=16)).eval()
    return LlamaForCausalLM(
        LlamaConfig(**sizes, num_key_value_heads=4, head_dim=head_dim, tie_word_embeddings=False)
    ).eval()


KINDS = ("llama", "qwen2", "qwen3", "olmo2", "gpt2")


def request(
    prompt: Sequence[int] | np.ndarray, *, seed: int = 0, stop: Iterable[int] = (), **sampling: float
) -> Request:
    """A request with little ceremony."""
    return Request(np.asarray(prompt, np.int32), Sampling(**{"max_tokens": 16, **sampling}), frozenset(stop), seed)


def random_prompt(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).astype(np.int32)


def logits(model: PreTrainedModel, asked: Request, ids: np.ndarray) -> torch.Tensor:
    """Of the positions at which `ids` were sampled, by one plain forward pass over the whole sequence."""
    whole = torch.tensor(np.concatenate([asked.prompt_T, ids]), dtype=torch.long)[None]
    with torch.inference_mode():
        return model(input_ids=whole, use_cache=False).logits[0, len(asked.prompt_T) - 1 : -1].float()


def logprobs(model: PreTrainedModel, asked: Request, ids: np.ndarray) -> np.ndarray:
    """Log-probabilities of sampled ids by one plain forward pass over the whole sequence."""
    logp = torch.log_softmax(logits(model, asked, ids) / (asked.sampling.temperature or 1.0), -1)
    return logp.gather(1, torch.tensor(ids, dtype=torch.long)[:, None])[:, 0].numpy()


async def answers(engine: object, asked: Sequence[Request]) -> list[Completion]:
    """All completions, requested at once."""
    return list(await asyncio.gather(*(engine.generate(one) for one in asked)))


TOLERANCE = 1e-4


def model(seed: int) -> PreTrainedModel:
    """Heads as wide as vLLM wants them."""
    return tiny_model(seed=seed, head_dim=32)


def opening(folder: Path) -> Opening:
    """Of the model that is saved there."""
    return Opening(origin=folder, context=192, slots=16)


def drift(model: PreTrainedModel, asked: Sequence[Request], got: Sequence[Completion]) -> float:
    """The largest distance of a log-probability from what the model says."""
    pairs = zip(asked, got, strict=True)
    return max(float(np.abs(logprobs(model, one, answer.ids_T) - answer.logprobs_T).max()) for one, answer in pairs)


def drift_by_version(
    models: Sequence[PreTrainedModel], asked: Sequence[Request], got: Sequence[Completion], *, base: int = 0
) -> float:
    """The same where each token is of the model of its version, which is `base` and those after it."""
    apart = []
    for one, answer in zip(asked, got, strict=True):
        expected = np.stack([logprobs(model, one, answer.ids_T) for model in models])
        by_version = expected[answer.versions_T - base, np.arange(len(answer.ids_T))]
        apart.append(float(np.abs(by_version - answer.logprobs_T).max()))
        assert (np.diff(answer.versions_T) >= 0).all()
    return max(apart)


def mixed(count: int) -> list[Request]:
    """Requests of all lengths and temperatures."""
    heat = (0.0, 0.7, 1.0, 1.3)
    return [request(random_prompt(n, 1 + 3 * n), seed=n, temperature=heat[n % 4]) for n in range(count)]


CODE = """
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

Path({mark!r}).touch()


class PlantedConfig(LlamaConfig):
    model_type = "planted"


class PlantedForCausalLM(LlamaForCausalLM):
    config_class = PlantedConfig
"""
TOKENIZER = """
from pathlib import Path

from transformers import PreTrainedTokenizerFast

Path({mark!r}).touch()


class PlantedTokenizerFast(PreTrainedTokenizerFast):
    pass
"""


def planted(folder: Path, mark: Path, *, parts: str = "model tokenizer") -> Path:
    """A Llama under a name that transformers does not know, so that only the folder's own files can open it."""
    save_model(tiny_model(), tiny_tokenizer(), folder)
    if "model" in parts:
        (folder / "planted_model.py").write_text(CODE.format(mark=str(mark)))
        names = {"AutoConfig": "PlantedConfig", "AutoModelForCausalLM": "PlantedForCausalLM"}
        auto_map = {kind: f"planted_model.{name}" for kind, name in names.items()}
        _add(folder / "config.json", model_type="planted", architectures=["PlantedForCausalLM"], auto_map=auto_map)
    if "tokenizer" in parts:
        (folder / "planted_tokenizer.py").write_text(TOKENIZER.format(mark=str(mark)))
        auto_map = {"AutoTokenizer": [None, "planted_tokenizer.PlantedTokenizerFast"]}
        _add(folder / "tokenizer_config.json", tokenizer_class="PlantedTokenizer", auto_map=auto_map)
    return folder


def _add(file: Path, **settings: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def processes(engines: VllmFleet) -> list[tuple[psutil.Process, psutil.Process]]:
    """Of every engine: its actor, and vLLM's core below it."""
    pids = ray.get([actor.__ray_call__.remote(lambda self: os.getpid()) for actor in engines._actors])
    actors = map(psutil.Process, pids)
    return [(actor, core_below(actor)) for actor in actors]


def core_below(actor: psutil.Process) -> psutil.Process:
    """vLLM's core. Its own title is not to be relied on: in some runs it has none."""
    return next(child for child in actor.children() if "resource_tracker" not in " ".join(child.cmdline()))
