"""A part of `make gpu-check`: new weights in memory that another process reads, on a GPU by CUDA's own handles.

The reader imports only this file and torch.
"""

import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor

AT_ONCE = 1 << 24
"""Numbers per piece of a checksum."""
PATIENCE_S = 60.0


def publication(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """Seconds from new weights until another process has its own copy, each one verified by its checksum."""
    from loomrl.experiments.bench.model import build_model, settle
    from loomrl.experiments.gpu.compute import model_size

    size = model_size(cpu=cpu, tiny=tiny)
    weights = [p.detach() for p in build_model(size).parameters()]
    flat = torch.empty(sum(w.numel() for w in weights), dtype=weights[0].dtype, device=size.device)
    if cpu:
        flat.share_memory_()
    context: Any = torch.multiprocessing.get_context("fork" if cpu else "spawn")  # CUDA survives no fork
    ours, theirs = context.Pipe()
    reader = context.Process(target=read, args=(theirs,), daemon=True)
    reader.start()
    theirs.close()
    try:
        ours.send(flat)
        begun = time.perf_counter()
        _publish(weights, flat, ours, settle)
        first_s = time.perf_counter() - begun
        seconds = [_publish_change(weights, flat, ours, settle) for _ in range(5)]
        _must_notice(weights, flat, ours, settle)
        ours.send(None)
        reader.join(PATIENCE_S)
    finally:
        reader.kill()
    yield {
        "weights_mib": round(flat.numel() * flat.element_size() / 2**20, 1),
        "first_visible_s": round(first_s, 4),
        "visible_s": round(statistics.median(seconds), 5),
        "verified": len(seconds) + 1,
        "corruption_noticed": True,
    }


def read(theirs: Connection) -> None:
    """In the other process: copy everything published, and answer with the copy's checksum."""
    flat: Tensor = theirs.recv()
    own = torch.empty_like(flat)
    while theirs.recv() is not None:
        own.copy_(flat)
        theirs.send(checksum(own))


def checksum(flat: Tensor) -> int:
    """A checksum of bits and their positions: it changes with any number, and if two numbers change places."""
    bits = flat.view(torch.int16 if flat.element_size() == 2 else torch.int32)
    total = 0
    for begin in range(0, len(bits), AT_ONCE):
        part = bits[begin : begin + AT_ONCE].long()
        place = torch.arange(begin, begin + len(part), device=flat.device) % 65_521 + 1
        total += int((part * place).sum())
    return total


def _publish(weights: list[Tensor], flat: Tensor, ours: Connection, settle: Any) -> int:
    """Copy the weights to the shared memory; returns the reader's checksum of its copy."""
    begin = 0
    for weight in weights:
        flat[begin : begin + weight.numel()].copy_(weight.view(-1))
        begin += weight.numel()
    return _ask(flat, ours, settle)


def _ask(flat: Tensor, ours: Connection, settle: Any) -> int:
    settle(flat.device.type)
    ours.send("read")
    if not ours.poll(PATIENCE_S):
        raise TimeoutError(f"the reader has not answered for {PATIENCE_S:g} s")
    answer: int = ours.recv()
    return answer


def _publish_change(weights: list[Tensor], flat: Tensor, ours: Connection, settle: Any) -> float:
    """Change the weights, publish them, compare; seconds of the publication."""
    for weight in weights:
        weight.mul_(1.5)
    settle(flat.device.type)
    begun = time.perf_counter()
    seen = _publish(weights, flat, ours, settle)
    seconds = time.perf_counter() - begun
    if seen != checksum(torch.cat([weight.view(-1) for weight in weights])):
        raise ArithmeticError("the reader's copy is not what was published")
    return seconds


def _must_notice(weights: list[Tensor], flat: Tensor, ours: Connection, settle: Any) -> None:
    """A single wrong number in the shared memory must change the reader's checksum."""
    expected = checksum(flat)
    middle = len(flat) // 2
    flat[middle] = flat[middle] + 1
    if _ask(flat, ours, settle) == expected:
        raise ArithmeticError("one number was changed and the checksum did not notice")
