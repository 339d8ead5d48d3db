"""Adapters beside one base in vLLM, by its own LoRA requests, against each adapter merged into the base."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_models import TOLERANCE, adapter, answers, drift, merged, random_prompt, request, tiny_model, tiny_tokenizer

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import PolicyError
from loomrl.inference.model import save_model
from loomrl.inference.open import Opening
from loomrl.inference.vllm.adapters import HeldAdapter
from loomrl.inference.vllm.engine import VllmEngine
from loomrl.inference.weights.sealed import seal
from tests.needs import needs

VLLM_WARNS = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning", "ignore::ResourceWarning")
pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    needs("vLLM"),
    *(pytest.mark.filterwarnings(name) for name in VLLM_WARNS),
]


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)


async def test_every_request_is_answered_as_by_its_adapter_merged_into_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(head_dim=32)
    save_model(model, tiny_tokenizer(), tmp_path / "model")
    adapters = {
        f"a{seed}": adapter(model, seed, version=10 + seed, rank=(8, 4, 3)[seed], only=("", "attn", "mlp")[seed])
        for seed in range(3)
    }
    choice = VllmEngineConfig(settings={"enable_lora": True})
    opening = Opening(origin=tmp_path / "model", context=128, slots=8, version=7)
    engine = await VllmEngine.open(choice, opening, log=tmp_path / "log")
    try:
        for name, sealed in adapters.items():
            await engine.add_adapter(name, sealed)
        asked = [
            replace(
                request(random_prompt(n // 4, 3 + n // 4), seed=n, temperature=(0.0, 1.0)[n % 2], max_tokens=12),
                adapter=["", *adapters][n % 4],
            )
            for n in range(24)
        ]
        plain = {"": model} | {name: merged(model, sealed) for name, sealed in adapters.items()}
        for one, got in zip(asked, await answers(engine, asked), strict=True):
            assert drift(plain[one.adapter], [replace(one, adapter="")], [got]) <= TOLERANCE
            assert set(got.versions_T.tolist()) == {adapters[one.adapter].version if one.adapter else 7}
        with pytest.raises(PolicyError, match=r"trained on base [0-9a-f]{12}, the engine has base"):
            await engine.add_adapter("other", adapter(tiny_model(seed=1, head_dim=32), 1))
        with pytest.raises(PolicyError, match=r"rank 17, and this engine takes 16 or less.*max_lora_rank=17"):
            await engine.add_adapter("wide", adapter(model, 1, rank=17))
        with pytest.raises(PolicyError, match="an engine that holds adapters keeps its base"):
            await engine.load(seal(model.state_dict(), 9))
        again = adapter(model, 9, version=20)
        one = replace(request(random_prompt(0, 40), max_tokens=80), adapter="a0")
        begun = asyncio.create_task(engine.generate(one))
        await asyncio.sleep(0.1)
        await engine.add_adapter("a0", again)
        for sealed, got in ((adapters["a0"], await begun), (again, await engine.generate(one))):
            assert drift(merged(model, sealed), [replace(one, adapter="")], [got]) <= TOLERANCE
            assert set(got.versions_T.tolist()) == {sealed.version}
        loaded = await engine._llm.list_loras()
        with monkeypatch.context() as patch:
            stage = HeldAdapter.stage

            def stage_damaged(*given: Any) -> HeldAdapter:
                held = stage(*given)
                damage(held.file)
                return held

            patch.setattr(HeldAdapter, "stage", stage_damaged)
            with pytest.raises(PolicyError, match="not what the learner sealed"):
                await engine.add_adapter("damaged", again)
        assert await engine._llm.list_loras() == loaded
        await engine.drop_adapter("a1")
        with pytest.raises(PolicyError, match="adapter name"):
            await engine.generate(replace(one, adapter="a1"))
    finally:
        await engine.close()
