"""Adapters beside one base in the torch engine, against each adapter merged into the base."""

import asyncio
import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sample_models import (
    KINDS,
    TOLERANCE,
    adapter,
    additions,
    answers,
    drift,
    drift_by_version,
    merged,
    random_prompt,
    request,
    tiny_model,
)
from torch import Tensor
from transformers import PreTrainedModel

from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.engine import Request
from loomrl.inference.torch.adapters import AdaptedModel
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.adapter import NARROW, WIDEN, open_adapter
from loomrl.inference.weights.sealed import Sealed, identify, seal

pytestmark = pytest.mark.usefixtures("one_thread")
LAYER = "model.layers.0.mlp.up_proj"


def engine_with(model: PreTrainedModel, adapters: Mapping[str, Sealed], slots: int = 16) -> TorchEngine:
    engine = TorchEngine(copy.deepcopy(model), slots=slots, context=64)
    for name, sealed in adapters.items():
        asyncio.run(engine.add_adapter(name, sealed))
    return engine


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_answered_as_by_its_adapter_merged_into_the_base(kind: str) -> None:
    model = tiny_model(kind)
    adapters = {
        f"a{seed}": adapter(model, seed, version=10 + seed, rank=1 + seed, only=("", "attn", "mlp")[seed])
        for seed in range(3)
    }
    engine = engine_with(model, adapters)
    asked = [
        replace(
            request(random_prompt(n // 5, 3 + n // 5), seed=n, temperature=(0.0, 1.0)[n % 2]),
            adapter=["", *adapters][n % 4],
        )
        for n in range(24)
    ]
    got = asyncio.run(answers(engine, asked))
    plain = {"": model} | {name: merged(model, sealed) for name, sealed in adapters.items()}
    for name, own in plain.items():
        mine = [(one, answer) for one, answer in zip(asked, got, strict=True) if one.adapter == name]
        requests = [replace(one, adapter="") for one, _ in mine]
        expected = asyncio.run(answers(TorchEngine(copy.deepcopy(own), slots=16, context=64), requests))
        assert [one.ids_T.tolist() for _, one in mine] == [one.ids_T.tolist() for one in expected]
        assert drift(own, requests, [answer for _, answer in mine]) <= TOLERANCE
        version = adapters[name].version if name else 0
        assert {int(v) for _, answer in mine for v in answer.versions_T} == {version}


def test_rows_of_different_adapters_share_no_keys_and_values() -> None:
    """The prompt is long enough to be kept outside of the rows (`Prefix`), where rows of one adapter share it."""
    model = tiny_model(head_dim=32)
    adapters = {f"a{seed}": adapter(model, seed, only="_proj") for seed in range(2)}
    engine = TorchEngine(copy.deepcopy(model), slots=48, context=240)
    prompt = random_prompt(0, 200)

    def asked(count: int) -> list[Request]:
        names = ["", *adapters]
        return [replace(request(prompt, seed=n, max_tokens=8), adapter=names[n % 3]) for n in range(count)]

    async def play() -> list[object]:
        for name, sealed in adapters.items():
            await engine.add_adapter(name, sealed)
        first = [asyncio.create_task(engine.generate(one)) for one in asked(24)]
        while engine.statistics.steps < 2:  # noqa: ASYNC110 - a step is a turn of this loop
            await asyncio.sleep(0)
        assert engine._network is not None
        assert engine._network._prefixes.distinct() == 3  # type: ignore[attr-defined]
        return [*await asyncio.gather(*first, *(engine.generate(one) for one in asked(6)))]

    got = asyncio.run(play())
    plain = {"": model} | {name: merged(model, sealed) for name, sealed in adapters.items()}
    for one, answer in zip([*asked(24), *asked(6)], got, strict=True):
        assert drift(plain[one.adapter], [one], [answer]) <= TOLERANCE  # type: ignore[list-item]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
async def test_published_adapter_takes_over_in_the_middle_of_a_request(kind: str) -> None:
    model = tiny_model(kind)
    sealed = [adapter(model, seed, version=seed) for seed in (1, 2)]
    engine = TorchEngine(copy.deepcopy(model), slots=4, context=64)
    asked = [request(random_prompt(seed // 2, 3 + seed // 2), seed=seed, max_tokens=24) for seed in range(6)]
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked]
    for each in sealed:
        while engine.statistics.sampled_tokens < 30 * each.version:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await engine.load(each)
    models = [model, *(merged(model, each) for each in sealed)]
    got = await asyncio.gather(*tasks)
    assert drift_by_version(models, asked, got) <= TOLERANCE
    assert {int(v) for one in got for v in one.versions_T} == {0, 1, 2}
    await engine.load(seal(tiny_model(kind, seed=5).state_dict(), 3))
    assert drift(tiny_model(kind, seed=5), asked, await answers(engine, asked)) <= TOLERANCE


async def test_dropped_adapter_finishes_what_it_has_begun_and_answers_nothing_else() -> None:
    model = tiny_model()
    sealed = adapter(model, 1)
    engine = TorchEngine(copy.deepcopy(model), slots=4, context=64)
    await engine.add_adapter("mine", sealed)
    one = replace(request(random_prompt(0, 5), max_tokens=20), adapter="mine")
    task = asyncio.create_task(engine.generate(one))
    while engine.statistics.sampled_tokens < 4:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await engine.drop_adapter("mine")
    assert drift(merged(model, sealed), [one], [await task]) <= TOLERANCE
    with pytest.raises(PolicyError, match=r"adapter name.*'mine'"):
        await engine.generate(one)


def test_additions_to_a_bfloat16_base_are_float32_and_rounded_once_as_the_learners() -> None:
    low = tiny_model().bfloat16()
    sealed = adapter(low, 1)
    adapted = AdaptedModel(low)
    layer = low.get_submodule(LAYER)
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.inference_mode():
        plain = layer(x)
        exact = plain.float() + x.float() @ sealed.weights[LAYER + NARROW].t() @ sealed.weights[LAYER + WIDEN].t()
        with adapted.reading(adapted.open(sealed)):
            added = layer(x)
        assert torch.equal(layer(x), plain)
    assert added.dtype == torch.bfloat16
    assert torch.equal(added, exact.bfloat16())


def changed(tensors: dict[str, Tensor], name: str, tensor: Tensor | None) -> dict[str, Tensor]:
    return {key: x for key, x in {**tensors, name: tensor}.items() if x is not None}


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        (LAYER + NARROW, torch.zeros(0, 32), rf"{LAYER} has additions of shapes \(0, 32\).*a rank of 1 or more"),
        (LAYER + NARROW, torch.zeros(2, 32), rf"{LAYER} has additions of shapes \(2, 32\) and \(48, 3\)"),
        (LAYER + NARROW, torch.full((3, 32), torch.nan), rf"{LAYER}\.lora_A\.weight has values that are not finite"),
        (LAYER + WIDEN, None, rf"'{LAYER}\.lora_B\.weight' is missing"),
        ("model.layers.7.mlp.up_proj" + WIDEN, torch.zeros(48, 3), r"'model\.layers\.7\.mlp\.up_proj' is none of the"),
        ("model.embed_tokens" + WIDEN, torch.zeros(300, 3), r"'model\.embed_tokens' is none of the model's 15 linear"),
    ],
)
async def test_adapter_that_does_not_fit_is_refused_in_a_line_and_changes_nothing(
    name: str, tensor: Tensor | None, said: str
) -> None:
    model = tiny_model()
    engine = TorchEngine(copy.deepcopy(model), slots=4, context=64)
    weights = changed(additions(model, 1), name, tensor)
    for give in (engine.load, lambda sealed: engine.add_adapter("other", sealed)):
        with pytest.raises(PolicyError, match=r"adapter of version 1: .*" + said) as error:
            await give(seal(weights, 1, base=identify(model.state_dict().items())))
        assert "\n" not in str(error.value)
    asked = [request([1, 2])]
    assert drift(model, asked, await answers(engine, asked)) <= TOLERANCE
    assert engine.version == 0


async def test_adapter_of_another_base_or_damaged_on_its_way_is_refused() -> None:
    model = tiny_model()
    engine = TorchEngine(copy.deepcopy(model), slots=4, context=64)
    with pytest.raises(PolicyError, match=r"trained on base [0-9a-f]{12}, the engine has base [0-9a-f]{12}\. Open"):
        await engine.load(adapter(tiny_model(seed=1), 1))
    sealed = adapter(model, 1)
    sealed.weights[LAYER + NARROW][0, 0] += 1
    with pytest.raises(PolicyError, match="1 of 28 tensors are not what the learner sealed"):
        await engine.load(sealed)
    await engine.load(adapter(model, 1))
    assert engine._network is not None
    engine._network.model.get_submodule(LAYER).weight.data[0, 0] += 1
    with pytest.raises(PolicyError, match=rf"arrived and are not what was sealed.*{LAYER}"):
        await engine.load(adapter(model, 1, version=2))
    with pytest.raises(PolicyError, match="faulty memory"):
        await engine.generate(request([1]))


@pytest.mark.parametrize(
    ("settings", "kept", "said"),
    [
        ({"peft_type": "LORA", "r": 0, "lora_alpha": 8}, 1.0, "rank r=0, and 1 or more is needed"),
        ({"peft_type": "LORA", "r": 3, "lora_alpha": 3}, 0.5, "cannot be read: SafetensorError"),
        ({"peft_type": "LORA", "lora_alpha": 3}, 1.0, "cannot be read: KeyError: 'r'"),
        ({"peft_type": "LORA", "r": 3, "lora_alpha": 3, "use_dora": True}, 1.0, "use_dora is not followed"),
    ],
)
def test_files_of_an_adapter_that_is_torn_or_of_another_kind_are_refused_in_a_line(
    tmp_path: Path, settings: dict[str, object], kept: float, said: str
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    file = tmp_path / "adapter_model.safetensors"
    save_file(additions(tiny_model(), 1), file)
    file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    with pytest.raises(ConfigError, match=said) as error:
        open_adapter(tmp_path, base="b")
    assert "\n" not in str(error.value)
