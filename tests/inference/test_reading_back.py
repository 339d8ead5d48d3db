"""An engine's memory beside and after its weights is read: faults planted in the real engine."""

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import torch
from ray import cloudpickle
from sample_models import KINDS, tiny_model

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import PolicyError
from loomrl.inference.open import Opening
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.fused import FusedNetwork
from loomrl.inference.vllm.engine import VllmEngine
from loomrl.inference.weights.sealed import Sealed, seal
from tests.needs import need

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    *(
        pytest.mark.filterwarnings(f"ignore::{name}")
        for name in ("DeprecationWarning", "FutureWarning", "UserWarning", "ResourceWarning")
    ),
]


def rotations_of_steps(engine: TorchEngine) -> None:
    """The first rows alone: what is sampled later never reads them."""
    network = engine._network
    assert isinstance(network, FusedNetwork)
    with torch.inference_mode():
        network._cos_C1D[:4] += 0.1


def rotations_of_prompts(engine: TorchEngine) -> None:
    assert engine._network is not None
    engine._network.model.base_model.rotary_emb.inv_freq[0] *= 1.01


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (rotations_of_steps, "llama", "cosines"),
        (rotations_of_prompts, "llama", "rotary_emb.inv_freq"),
        (rotations_of_prompts, "olmo2", "rotary_emb.inv_freq"),
    ],
)
async def test_damaged_rotation_is_found_with_the_next_weights(
    fault: Callable[[Any], None], kind: str, said: str
) -> None:
    engine = TorchEngine(tiny_model(kind), slots=4, context=64)
    await engine.load(seal(tiny_model(kind, seed=1).state_dict(), 1))
    fault(engine)
    with pytest.raises(PolicyError, match=rf"version 2: beside them, .*{said}.* changed in the engine"):
        await engine.load(seal(tiny_model(kind, seed=2).state_dict(), 2))
    assert engine.version == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_healthy_engine_takes_one_version_after_the_other(kind: str) -> None:
    engine = TorchEngine(tiny_model(kind), slots=4, context=64)
    for version in (1, 2, 3):
        await engine.load(seal(tiny_model(kind, seed=version).state_dict(), version))
    assert engine.version == 3


# -- vLLM: each fault is planted in the worker, once, right after weights were applied ----------------------------


def learnt(version: int) -> Sealed:
    """No two tensors alike: norms of a fresh model are all ones."""
    weights = tiny_model(seed=version, head_dim=32).state_dict()
    return seal({name: one + 0.1 * torch.rand_like(one) for name, one in weights.items()}, version)


def flipped_bit(model: Any) -> None:
    model.model.embed_tokens.weight.data.view(torch.int32)[3, 4] ^= 1


def swapped_norms(model: Any) -> None:
    one, other = (layer.input_layernorm.weight.data for layer in model.model.layers)
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


def altered_kernel(model: Any) -> None:
    """In what a kernel has packed, of which there is no tensor."""
    layer = model.model.layers[1].self_attn.qkv_proj
    whole = layer.cpu_linear
    layer.cpu_linear = lambda x, weight, bias: whole(x * (1 + 2**-23), weight, bias)


def damaged_rotation(model: Any) -> None:
    model.model.layers[0].self_attn.rotary_emb.cos_sin_cache[:4] *= 2


def mended_rotation(model: Any) -> None:
    model.model.layers[0].self_attn.rotary_emb.cos_sin_cache[:4] /= 2


def planted(fault: Callable[[Any], None]) -> Callable[[Any], None]:
    def plant(worker: Any) -> None:
        transfer = worker.weight_transfer_engine
        finish = transfer.finish_weight_update

        def finish_and_spoil() -> None:
            finish()
            fault(transfer.model)
            del transfer.finish_weight_update

        transfer.finish_weight_update = finish_and_spoil

    return plant


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vllm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    need("vLLM")
    folder, log = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("log") / "log"
    tiny_model(head_dim=32).save_pretrained(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # calls of the tests' own, into workers
        opening = Opening(origin=folder, context=64, slots=4)
        opened = await VllmEngine.open(VllmEngineConfig(), opening, log=log)
        assert "cannot be read back" not in log.read_text()
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not know where tests are
        yield opened
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        await opened.close()


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (flipped_bit, r"model\.embed_tokens\.weight"),
        (swapped_norms, r"model\.layers\.0\.input_layernorm\.weight, model\.layers\.1\.input_layernorm\.weight"),
        (altered_kernel, r"model\.layers\.1\.self_attn\.qkv_proj\.weight"),
        (damaged_rotation, r"cos_sin_cache"),
    ],
)
async def test_fault_in_vllms_memory_is_found_by_name_and_the_next_version_is_taken(
    vllm: VllmEngine, fault: Callable[[Any], None], said: str
) -> None:
    first = vllm.version + 1
    await vllm.load(learnt(first))
    await vllm._llm.collective_rpc(planted(fault))
    arrived = rf"version {first + 1}: . of .. tensors arrived and are not what was .*{said}"
    with pytest.raises(PolicyError, match=arrived):
        await vllm.load(learnt(first + 1))
    assert vllm.version == first
    if fault is damaged_rotation:
        await vllm._llm.collective_rpc(planted(mended_rotation))
    await vllm.load(learnt(first + 2))
    assert vllm.version == first + 2
