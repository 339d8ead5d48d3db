"""Weights that engines read in the learner's memory: as the learner sealed them, also if learner or reader dies."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.errors import PolicyError
from loomrl.inference.engine import Completion
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.loan import LentWeights, lend
from loomrl.inference.weights.sealed import Sealed
from tests.inference.sample_models import adapter, drift, mixed, tiny_model

FORK = multiprocessing.get_context("fork")  # torch is here already


def lent(seed: int, version: int = 1, **words: Any) -> tuple[LentWeights, torch.Tensor]:
    return lend(tiny_model(seed=seed).state_dict(), version, readers=[1, 2], dtypes=words)


def answers(engine: TorchEngine) -> list[Completion]:
    async def ask() -> list[Completion]:
        return await asyncio.gather(*map(engine.generate, mixed(4)))

    return asyncio.run(ask())


def take(engine: TorchEngine, sealed: Sealed) -> None:
    async def load() -> None:
        await engine.load(sealed)

    asyncio.run(load())


def apart(run: Callable[[Any], None]) -> tuple[Any, Any]:
    """`run` in another process, and the connection to it."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=run, args=(theirs,))
    process.start()
    theirs.close()
    return process, ours


def shared_files() -> set[str]:
    return {file.name for file in Path("/dev/shm").glob("torch_*")}


def test_an_engine_samples_with_what_was_lent_and_keeps_no_hold_on_it() -> None:
    engine = TorchEngine(tiny_model(seed=0), version=0)
    before = shared_files()
    loan, memory = lent(1)
    take(engine, loan.open(1))
    memory.zero_()
    assert drift(tiny_model(seed=1), mixed(4), answers(engine)) < 1e-4
    del memory
    assert shared_files() == before


def test_weights_are_lent_in_the_format_that_engines_compute_in_and_tied_ones_once() -> None:
    given = tiny_model(seed=1).state_dict()
    name = next(iter(given))
    whole = {**given, "twin": given[name]}
    loan, memory = lend(whole, 3, readers=[1], dtypes={name: torch.bfloat16})
    sealed = loan.open(1)
    sealed.verify()
    assert sealed.version == 3
    assert "twin" not in sealed.weights
    assert torch.equal(sealed.weights[name], given[name].bfloat16())
    assert all(torch.equal(sealed.weights[each], given[each]) for each in sealed.weights if each != name)
    assert memory.nbytes < sum(tensor.nbytes for tensor in given.values())


@pytest.mark.parametrize("rank", [1, 2])
def test_low_rank_additions_are_copied_out_of_what_was_lent(rank: int) -> None:
    engine = TorchEngine(tiny_model(seed=0), version=0)
    given = adapter(tiny_model(seed=0), 5, rank=rank)
    loan, memory = lend(given.weights, 1, readers=[1], dtypes={}, base=given.base)
    take(engine, loan.open(1))
    sampled = answers(engine)
    memory.zero_()
    assert all(np.array_equal(a.logprobs_T, b.logprobs_T) for a, b in zip(sampled, answers(engine), strict=True))


def test_a_number_that_changed_after_sealing_is_refused_and_the_engine_keeps_what_it_has() -> None:
    engine = TorchEngine(tiny_model(seed=0), version=0)
    loan, memory = lent(1)
    memory[len(memory) // 2] += 1
    with pytest.raises(PolicyError, match=r"weights of version 1: 1 of .* are not what the learner sealed"):
        take(engine, loan.open(1))
    assert drift(tiny_model(seed=0), mixed(4), answers(engine)) < 1e-4


LEARNER = """
import pickle, sys
import torch
from loomrl.inference.weights.loan import lend

loan, memory = lend(torch.load(sys.argv[1]), 1, readers=[1], dtypes={})
print(pickle.dumps(loan).hex(), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.system
def test_a_learner_that_died_is_named_and_its_memory_is_gone(tmp_path: Path) -> None:
    torch.save(dict(tiny_model(seed=1).state_dict()), tmp_path / "weights.pt")
    before = shared_files()
    started = [sys.executable, "-c", LEARNER, str(tmp_path / "weights.pt")]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as learner:
        assert learner.stdout is not None
        loan: LentWeights = pickle.loads(bytes.fromhex(learner.stdout.readline()))
        learner.kill()
    deadline = time.monotonic() + 20
    while shared_files() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert shared_files() <= before
    with pytest.raises(PolicyError, match=r"version 1: the learner's memory cannot be opened .* It may have died\.$"):
        loan.open(1)


@pytest.mark.system
def test_what_is_open_outlives_the_learner() -> None:
    def run(theirs: Any) -> None:
        torch.set_num_threads(1)
        loan, _memory = lent(1)
        theirs.send(loan)
        theirs.recv()

    learner, ours = apart(run)
    opened = ours.recv().open(1)
    os.kill(learner.pid, signal.SIGKILL)
    learner.join()
    engine = TorchEngine(tiny_model(seed=0), version=0)
    take(engine, opened)
    assert drift(tiny_model(seed=1), mixed(4), answers(engine)) < 1e-4


@pytest.mark.system
def test_a_reader_that_died_does_not_keep_the_learner_from_lending_again() -> None:
    loan, memory = lent(1)

    def run(theirs: Any) -> None:
        sealed = loan.open(1)
        theirs.send(sealed.version)
        theirs.recv()

    reader, ours = apart(run)
    assert ours.recv() == 1
    os.kill(reader.pid, signal.SIGKILL)
    reader.join()
    loan.open(2).verify()
    again, kept = lent(2, version=2)
    again.open(1).verify()
    loan.open(2).verify()
    del memory, kept


def test_a_loan_of_another_gpu_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    loan, _ = lent(1)
    elsewhere = LentWeights(loan.version, loan.tensors, loan.checksums, None, "GPU-a", loan.handles)
    monkeypatch.setattr("loomrl.inference.weights.loan._gpu", lambda device: "GPU-b")
    with pytest.raises(PolicyError, match=r"version 1 are on GPU GPU-a, and this engine on GPU-b: .* leave it out"):
        elsewhere.open(1)
