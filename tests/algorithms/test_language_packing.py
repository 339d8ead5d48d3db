from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from loomrl.algorithms.language.packing import (
    MicroBatch,
    Sample,
    SampleSize,
    UpdateStep,
    attention_mask,
    pack,
    plan_update,
    rows,
)
from loomrl.algorithms.language.score import chosen_logprobs
from loomrl.config.language import Optimizer

VOCABULARY = 50
CONTEXT = 24


def width(micro_batch: MicroBatch, lengths: Sequence[int]) -> int:
    return max(sum(lengths[i] for i in row) for row in micro_batch)


def flat(steps: Sequence[UpdateStep]) -> list[int]:
    return [index for step in steps for micro_batch in step.micro_batches for row in micro_batch for index in row]


def samples(count: int, *, seed: int = 0, shortest: int = 1) -> list[Sample]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, CONTEXT + 1, count)
    return [
        Sample(
            rng.integers(0, VOCABULARY, n).astype(np.int32),
            rng.random(n) < 0.6,
            {"place": np.arange(n, dtype=np.float32), "who": np.full(n, i, np.float32)},
        )
        for i, n in enumerate(lengths)
    ]


@given(st.lists(st.integers(1, 60), max_size=60), st.integers(1, 50))
def test_packing_is_a_partition_whose_rows_keep_to_their_length(lengths: list[int], row: int) -> None:
    packed = pack(lengths, row=row)
    assert sorted(i for members in packed for i in members) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in members) <= row or len(members) == 1 for members in packed)
    fills = sorted(sum(lengths[i] for i in members) for members in packed)
    assert all(one + other > row for one, other in pairwise(fills))  # no two rows would fit in one


plans = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 40), max_size=50),
        "epochs": st.integers(1, 3),
        "minibatches": st.integers(1, 5),
        "budget": st.integers(1, 200),
        "learners": st.integers(1, 4),
        "seed": st.integers(0, 3),
        "paired": st.booleans(),
    }
)


def planned(
    given_: dict[str, int], lengths: list[int], units: list[list[int]] | None
) -> tuple[tuple[UpdateStep, ...], ...]:
    settings = Optimizer(
        epochs=given_["epochs"], minibatches=given_["minibatches"], micro_batch_tokens=given_["budget"]
    )
    rng = np.random.default_rng(given_["seed"])
    sizes = [SampleSize(length, length // 3) for length in lengths]
    return plan_update(sizes, optimizer=settings, learners=given_["learners"], rng=rng, units=units)


@given(plans)
def test_plans_keep_their_promises(case: dict[str, int]) -> None:
    lengths: list[int] = case["lengths"]  # type: ignore[assignment]
    lengths = lengths[: len(lengths) // 2 * 2] if case["paired"] else lengths
    units = [[i, i + 1] for i in range(0, len(lengths), 2)] if case["paired"] else None
    plan = planned(case, lengths, units)

    assert planned(case, lengths, units) == plan
    seen = Counter(index for learner in plan for index in flat(learner))
    assert seen == dict.fromkeys(range(len(lengths)), case["epochs"])
    longest = max((sum(lengths[i] for i in unit) for unit in units or []), default=max(lengths, default=1))
    for steps in zip(*plan, strict=True):
        assert len({len(step.micro_batches) for step in steps}) == 1  # or DDP waits forever
        members = [index for step in steps for index in flat([step])]
        assert {step.targets for step in steps} == {sum(lengths[i] // 3 for i in members)}
        assert {step.samples for step in steps} == {sum(lengths[i] >= 3 for i in members)}
        for micro_batch in (batch for step in steps for batch in step.micro_batches if batch):
            padded = len(micro_batch) * width(micro_batch, lengths)
            assert padded <= case["budget"] or (len(micro_batch) == 1 and padded <= longest)
    for unit in units or []:
        rows_of = [row for learner in plan for s in learner for b in s.micro_batches for row in b if unit[0] in row]
        assert all(unit[1] in row for row in rows_of)


def test_a_micro_batch_ends_before_the_row_that_would_exceed_its_budget() -> None:
    (steps,) = plan_update(
        [SampleSize(40, 1)] * 5, optimizer=Optimizer(micro_batch_tokens=100), learners=1, rng=np.random.default_rng(0)
    )
    assert [len(micro_batch) for micro_batch in steps[0].micro_batches] == [2, 2, 1]


def test_epochs_are_shuffled_differently_and_minibatches_are_even() -> None:
    optimizer = Optimizer(epochs=2, minibatches=3, micro_batch_tokens=1024)
    (steps,) = plan_update([SampleSize(5, 2)] * 10, optimizer=optimizer, learners=1, rng=np.random.default_rng(0))
    assert [len(flat([step])) for step in steps] == [4, 3, 3, 4, 3, 3]
    assert {frozenset(flat([step])) for step in steps[:3]} != {frozenset(flat([step])) for step in steps[3:]}


@pytest.mark.parametrize("budget", [2048, 16_384])
@pytest.mark.parametrize("spread", [0, 8, 25])
def test_padding_of_realistic_lengths_is_little(budget: int, spread: int) -> None:
    rng = np.random.default_rng(0)
    lengths = [int(n) for n in np.clip(rng.normal(40, spread, 256), 8, 160)]
    (steps,) = plan_update(
        [SampleSize(n, 5) for n in lengths], optimizer=Optimizer(micro_batch_tokens=budget), learners=1, rng=rng
    )
    padded = sum(len(batch) * width(batch, lengths) for batch in steps[0].micro_batches)
    assert padded <= 1.15 * sum(lengths)


def test_learners_get_equal_shares_of_tokens() -> None:
    rng = np.random.default_rng(0)
    lengths = [int(n) for n in rng.integers(5, 100, 200)]
    plan = plan_update(
        [SampleSize(n, 1) for n in lengths], optimizer=Optimizer(micro_batch_tokens=16_384), learners=4, rng=rng
    )
    tokens = [sum(lengths[i] for i in flat(learner)) for learner in plan]
    assert max(tokens) <= 1.01 * min(tokens)


def test_an_empty_micro_batch_is_one_token_without_targets() -> None:
    packed = rows(samples(2), ())
    assert packed.ids_BT.shape == (1, 1)
    assert len(packed.target_K) == len(packed.columns["who"]) == 0


def test_a_token_sees_itself_and_what_came_before_it_in_its_sample() -> None:
    mask = attention_mask(torch.tensor([[1, 1, 2], [1, 1, 1]]))
    assert mask is not None
    assert mask[:, 0].int().tolist() == [
        [[1, 0, 0], [1, 1, 0], [0, 0, 1]],
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
    ]
    assert attention_mask(torch.ones(2, 3, dtype=torch.long)) is None


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT,
        )
    )


def gpt2() -> PreTrainedModel:
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, **special)
    )


@pytest.mark.parametrize("build", [llama, gpt2])
@pytest.mark.parametrize("row", [CONTEXT, 3 * CONTEXT])
def test_packed_logprobs_are_those_of_each_sample_alone(build: type[PreTrainedModel], row: int) -> None:
    torch.manual_seed(0)
    model = build().eval()
    data = samples(20, shortest=2)
    micro_batch = tuple(tuple(members) for members in pack([len(s.ids_T) for s in data], row=row))
    packed = rows(data, micro_batch)
    with torch.no_grad():
        hidden = model.base_model(
            input_ids=packed.ids_BT,
            position_ids=packed.positions_BT,
            attention_mask=attention_mask(packed.segment_BT),
            use_cache=False,
        ).last_hidden_state
        assert torch.isfinite(hidden).all()
        logp, _ = chosen_logprobs(hidden[packed.row_K, packed.column_K], model.get_output_embeddings(), packed.target_K)
        for position, index in enumerate(i for members in micro_batch for i in members):
            ids = torch.as_tensor(data[index].ids_T, dtype=torch.long)
            alone = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
            mine = packed.sample_K == position
            places = 1 + np.flatnonzero(data[index].mask_T[1:])
            torch.testing.assert_close(logp[mine], alone[places - 1], atol=1e-5, rtol=0)
            assert (packed.columns["who"][mine] == index).all()
            assert packed.columns["place"][mine].tolist() == places.tolist()
