from collections import Counter
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from loomrl.algorithms.language.batch import TokenBatch, inputs
from loomrl.algorithms.language.flat import blocks_of, use_flat, variable_of
from loomrl.algorithms.language.layers import compile_layers, recompute_layers
from loomrl.algorithms.language.packing import Reader, Sample, SampleSize, plan_update, rows
from loomrl.algorithms.language.score import score
from loomrl.algorithms.language.sharding import full, shard
from loomrl.config.language import Learners, Optimizer
from loomrl.errors import ConfigError
from loomrl.experiments.gpu import stand_in
from loomrl.experiments.gpu.distributed import Sharded, group_of_one

SHAPE: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}
GPT2: dict[str, Any] = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}


@cache
def model(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    made: Any = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
        "windows": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=4)),
    }[name]()
    assert use_flat(made.eval())
    stand_in.install()
    return made  # type: ignore[no-any-return]


def attempts(families: list[tuple[int, list[int]]]) -> list[Sample]:
    """Of every family, a prompt's length and those of its answers."""
    rng = np.random.default_rng(0)
    made = []
    for prompt, answers in families:
        ids = rng.integers(0, 60, prompt)
        for answer in answers:
            mask_T = np.arange(prompt + answer) >= prompt
            drawn = rng.integers(0, 60, answer)
            columns = {"weight": rng.normal(size=len(mask_T)).astype(np.float32)}
            made.append(Sample(np.concatenate([ids, drawn]).astype(np.int32), mask_T, columns))
    return made


def learnt(
    lm: PreTrainedModel | Sharded, samples: list[Sample], passes: Any, read: Reader | None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities, sample by sample, and the gradient of their weighted sum."""
    lm.zero_grad()
    found: dict[int, Tensor] = {}
    for micro_batch in passes:
        batch = TokenBatch.of(samples, micro_batch, torch.device("cpu"), read=read)
        scores = lm(inputs(batch.packed)) if isinstance(lm, Sharded) else score(lm, inputs(batch.packed))
        logp_K = scores["logp_K"]
        (logp_K * batch.packed.columns["weight"]).sum().backward()
        found |= {index: logp_K.detach()[batch.packed.sample_K == at] for at, index in enumerate(batch.order)}
    gradients = [full(parameter.grad).flatten() for parameter in lm.parameters() if parameter.grad is not None]
    return torch.cat([found[index] for index in range(len(samples))]), torch.cat(gradients)


FAMILIES = st.lists(
    st.tuples(st.integers(0, 7), st.lists(st.integers(1, 9), min_size=1, max_size=4)), min_size=1, max_size=4
)


@pytest.mark.parametrize("name", ["llama", "gpt2", "windows"])
@pytest.mark.parametrize("read", [blocks_of, variable_of, None])
@settings(max_examples=6)
@given(families=FAMILIES, seed=st.integers(0, 2))
def test_a_flat_or_dense_row_gives_each_sample_the_scores_and_gradients_that_it_has_alone(
    name: str, read: Reader | None, families: list[tuple[int, list[int]]], seed: int
) -> None:
    samples = attempts(families)
    flat = tuple(int(index) for index in np.random.default_rng(seed).permutation(len(samples))) if seed else None
    logp, gradient = learnt(model(name), samples, [(flat or tuple(range(len(samples))),)], read)
    alone, its_gradient = learnt(model(name), samples, [((index,),) for index in range(len(samples))], None)
    torch.testing.assert_close(logp, alone, atol=2e-5, rtol=1e-5)
    assert (gradient - its_gradient).norm() <= 1e-5 * its_gradient.norm() + 1e-5


def test_a_prompt_that_follows_itself_is_in_the_row_once() -> None:
    samples = attempts([(5, [2, 3, 1]), (4, [2])])
    packed = rows(samples, ((0, 1, 2, 3),), read=blocks_of)
    assert packed.ids_BT.shape == (1, 5 + 2 + 3 + 1 + 4 + 2)
    assert packed.positions_BT[0, 5:11].tolist() == [5, 6, 5, 6, 7, 5]
    apart = rows(samples, ((0, 3, 1, 2),), read=blocks_of)
    assert apart.ids_BT.shape == (1, 7 + 6 + 5 + 3 + 1)


@given(
    families=st.lists(
        st.tuples(st.integers(0, 30), st.lists(st.integers(1, 20), min_size=1, max_size=8)), min_size=1, max_size=6
    ),
    budget=st.integers(20, 200),
    learners=st.integers(1, 3),
)
def test_a_flat_plan_takes_every_sample_once_within_its_budget(
    families: list[tuple[int, list[int]]], budget: int, learners: int
) -> None:
    samples = attempts(families)
    plan = plan_update(
        [sample.size for sample in samples],
        optimizer=Optimizer(micro_batch_tokens=budget),
        learners=learners,
        rng=np.random.default_rng(0),
        flat=True,
    )
    passes = [micro_batch for (step,) in plan for micro_batch in step.micro_batches if micro_batch]
    assert Counter(index for (row,) in passes for index in row) == Counter(range(len(samples)))
    longest = max(len(sample.ids_T) for sample in samples)
    assert all(rows(samples, each, read=blocks_of).ids_BT.numel() <= max(budget, longest) for each in passes)


def test_attempts_of_a_prompt_are_learnt_from_in_one_row_however_they_were_shuffled() -> None:
    samples = attempts([(40, [10] * 8), (40, [10] * 8)])
    sizes = [sample.size for sample in samples]
    assert len({size.prompt for size in sizes}) == 2
    ((step,),) = plan_update(
        sizes, optimizer=Optimizer(micro_batch_tokens=150), learners=1, rng=np.random.default_rng(0), flat=True
    )
    assert {frozenset(row) for (row,) in step.micro_batches} == {frozenset(range(8)), frozenset(range(8, 16))}
    ((alone,),) = plan_update(
        [SampleSize(50, 10)] * 16,
        optimizer=Optimizer(micro_batch_tokens=150),
        learners=1,
        rng=np.random.default_rng(0),
        flat=True,
    )
    assert len(alone.micro_batches) == 6


def test_a_model_whose_attention_transformers_cannot_replace_is_left_as_it_was() -> None:
    bloom: Any = BloomForCausalLM(BloomConfig(vocab_size=60, hidden_size=32, n_layer=2, n_head=4))
    usual = bloom.config._attn_implementation
    assert not use_flat(bloom)
    assert bloom.config._attn_implementation == usual


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.slow
def test_compiled_layers_are_one_graph_for_rows_of_every_length_and_a_copy_has_weights_of_its_own() -> None:
    plain = model("llama")
    compiled = deepcopy(plain)
    begun = counters["stats"]["unique_graphs"]
    compile_layers(compiled, backend="aot_eager")
    for families in ([(5, [2]), (3, [4])], [(5, [2, 3, 1]), (4, [2])], [(2, [3, 3]), (9, [8]), (1, [1])]):
        samples = attempts(families)
        row = [(tuple(range(len(samples))),)]
        for ours, theirs in zip(*(learnt(lm, samples, row, variable_of) for lm in (compiled, plain)), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert counters["stats"]["unique_graphs"] == begun + 1
    before, _ = learnt(compiled, samples, row, variable_of)
    copied = deepcopy(compiled)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(0.5)
    torch.testing.assert_close(learnt(compiled, samples, row, variable_of)[0], before)
    assert not torch.allclose(learnt(copied, samples, row, variable_of)[0], before)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor", "ignore:FSDP2-wrapped module")
@pytest.mark.slow
@pytest.mark.parametrize("extent", ["none", "selective", "full"])
def test_compiled_layers_compute_the_same_in_shards_and_again_and_are_still_one_graph(extent: Any) -> None:
    plain, compiled = (Sharded(deepcopy(model("llama")).bfloat16()) for _ in range(2))
    begun = counters["stats"]["unique_graphs"]
    compile_layers(compiled.lm, backend="aot_eager")
    if extent != "none":
        recompute_layers(compiled.lm, extent)
    with group_of_one("cpu"):
        for each in (plain, compiled):
            shard(each)
        for families in ([(5, [2]), (3, [4])], [(5, [2, 3, 1]), (4, [2])]):
            samples = attempts(families)
            row = [(tuple(range(len(samples))),)]
            for ours, theirs in zip(*(learnt(m, samples, row, variable_of) for m in (compiled, plain)), strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert counters["stats"]["unique_graphs"] == begun + 1


FLAT_ON_GPUS = {"gpus": 1.0, "attention": "flat"}


@pytest.mark.parametrize("other", [{}, {"gpus": 1.0}, {**FLAT_ON_GPUS, "sequence_parallel": 2, "count": 2}])
def test_what_cannot_be_compiled_is_refused_with_what_it_needs(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="compile=true needs gpus, attention=flat and sequence_parallel=1"):
        Learners.parse({"compile": True, **other})
    assert Learners.parse({"compile": True, **FLAT_ON_GPUS}).compile
