"""A part of `make gpu-check`: new weights that another process reads where they are, on a GPU by CUDA's own handles."""

import statistics
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor

from loomrl.errors import PolicyError
from loomrl.inference.weights.loan import LentWeights, lend
from loomrl.inference.weights.sealed import checksums

PATIENCE_S = 60.0
READER = 1


def publication(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """Seconds from new weights until another process has its own copy, each one verified by its checksums."""
    from loomrl.experiments.bench.model import build_model
    from loomrl.experiments.gpu.compute import model_size

    size = model_size(cpu=cpu, tiny=tiny)
    weights = {name: parameter.detach() for name, parameter in build_model(size).named_parameters()}
    context: Any = torch.multiprocessing.get_context("fork" if cpu else "spawn")  # CUDA survives no fork
    ours, theirs = context.Pipe()
    reader = context.Process(target=read, args=(theirs,), daemon=True)
    reader.start()
    theirs.close()
    held = None if cpu else torch.cuda.memory_allocated()
    try:
        seconds = [_publish_change(weights, version, ours) for version in range(6)]
        _must_notice(weights, ours)
        ours.send(None)
        reader.join(PATIENCE_S)
    finally:
        reader.kill()
    if held is not None:
        torch.cuda.ipc_collect()
        if (kept := torch.cuda.memory_allocated() - held) > 0:
            raise ArithmeticError(f"{kept} bytes that were lent did not come back")
    yield {
        "weights_mib": round(sum(weight.nbytes for weight in weights.values()) / 2**20, 1),
        "first_visible_s": round(seconds[0], 4),
        "visible_s": round(statistics.median(seconds[1:]), 5),
        "verified": len(seconds),
        "corruption_noticed": True,
    }


def read(theirs: Connection) -> None:
    """In the other process: copy every loan, and answer with what is wrong about it."""
    while (loan := theirs.recv()) is not None:
        theirs.send(_copy(loan))


def _copy(loan: LentWeights) -> str | None:
    try:
        sealed = loan.open(READER)
        sealed.verify()
    except PolicyError as error:
        return str(error)
    own = {name: tensor.clone() for name, tensor in sealed.weights.items()}
    return None if checksums(own) == loan.checksums else "the copy is another"


def _ask(loan: LentWeights, ours: Connection) -> str | None:
    ours.send(loan)
    if not ours.poll(PATIENCE_S):
        raise TimeoutError(f"the reader has not answered for {PATIENCE_S:g} s")
    answer: str | None = ours.recv()
    return answer


def _publish_change(weights: Mapping[str, Tensor], version: int, ours: Connection) -> float:
    """Change the weights and publish them; seconds of the publication."""
    for weight in weights.values():
        weight.mul_(1.5)
    begun = time.perf_counter()
    loan, _memory = lend(weights, version, readers=[READER], dtypes={})
    wrong = _ask(loan, ours)
    if wrong is not None:
        raise ArithmeticError(wrong)
    return time.perf_counter() - begun


def _must_notice(weights: Mapping[str, Tensor], ours: Connection) -> None:
    """The reader must notice a single wrong bit in the memory."""
    loan, memory = lend(weights, 0, readers=[READER], dtypes={})
    memory[len(memory) // 2] ^= 1
    if _ask(loan, ours) is None:
        raise ArithmeticError("one bit was changed and the reader did not notice")
