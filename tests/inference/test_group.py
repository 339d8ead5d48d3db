"""Weights through a process group of three: they arrive whole, or not at all, and nobody waits forever."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loomrl.errors import PolicyError
from loomrl.inference.weights import group
from loomrl.inference.weights.group import GroupMember, host, receive, send
from loomrl.inference.weights.sealed import Sealed, checksum, seal, stage, unstage

CPU = torch.device("cpu")


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tied = torch.randn(4, 3, generator=generator)
    return {
        "a": torch.randn(3, 5, generator=generator),
        "b": torch.randn(3, 5, generator=generator),
        "half": torch.randn(7, generator=generator).to(torch.bfloat16),
        "tied.in": tied,
        "tied.out": tied,
        "turned": torch.randn(4, 6, generator=generator).T,
        "none": torch.zeros(0, 2),
        "scalar": torch.tensor(3.5),
    }


def passed(*versions: Sealed) -> list[Any]:
    """The answer of each of two receivers to each version: its weights, or its error."""
    meeting, store = host("test", 3, "127.0.0.1")

    def receiver(rank: int) -> list[Any]:
        member, answers = GroupMember(meeting, rank, CPU), []
        for _ in versions:
            try:
                answers.append(receive(member))
            except PolicyError as error:
                answers.append(error)
        return answers

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(receiver, rank) for rank in (1, 2)]
        member = GroupMember(meeting, 0, CPU, store=store)
        for sealed in versions:
            send(member, sealed)
        return [one.result() for one in waiting]


def test_versions_arrive_bit_by_bit_in_buckets_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "BUCKET_BYTES", 100)
    first, second = seal(weights(), 3), seal({name: tensor + 1 for name, tensor in weights().items()}, 4)
    for got in passed(first, second):
        assert [one.version for one in got] == [3, 4]
        assert [one.checksums for one in got] == [first.checksums, second.checksums]
        assert got[1].weights.keys() == second.weights.keys()
        assert all(torch.equal(got[1].weights[name], tensor) for name, tensor in second.weights.items())


def test_what_was_not_sealed_is_refused_by_name_and_the_group_goes_on() -> None:
    broken = seal(weights(), 3)
    broken.weights["b"][0] += 1
    for refused, got in passed(broken, seal(weights(), 4)):
        assert "not what the learner sealed (b)" in str(refused)
        assert got.version == 4


def test_who_waits_for_somebody_that_never_comes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "TIMEOUT_S", 1.0)
    meeting, store = host("test", 2, "127.0.0.1")
    began = time.monotonic()
    with pytest.raises(PolicyError, match="rank 0 did not meet the others"):
        GroupMember(meeting, 0, CPU, store=store)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("leaves", [True, False], ids=["left", "silent"])
def test_who_waits_for_somebody_that_left_or_is_silent_says_so(monkeypatch: pytest.MonkeyPatch, leaves: bool) -> None:
    meeting, store = host("test", 2, "127.0.0.1")
    met = threading.Event()
    done = threading.Event()

    def other() -> None:
        member = GroupMember(meeting, 0, CPU, store=store)
        # A member that leaves while another still connects is one that never came, not one that left.
        met.wait(60)
        if leaves:
            member.leave()
        done.wait(60)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(other)
        try:
            member = GroupMember(meeting, 1, CPU)
            monkeypatch.setattr(group, "TIMEOUT_S", 3.0)
            met.set()
            began = time.monotonic()
            with pytest.raises(PolicyError, match="a bucket did not reach all members"):
                receive(member)
            assert time.monotonic() - began < 10
        finally:
            met.set()
            done.set()


def test_staged_weights_come_back_as_they_were_sealed(tmp_path: Path) -> None:
    sealed = seal(weights(), 7)
    found = unstage(stage(sealed, tmp_path / "7"))
    found.verify()
    assert found.version == 7
    assert found.checksums == sealed.checksums
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in sealed.weights.items())
    assert [file.name for file in tmp_path.iterdir()] == ["7"]


def broken(kind: str) -> Sealed:
    sealed = seal(weights(), 1)
    changed = {name: tensor.clone() for name, tensor in sealed.weights.items()}
    match kind:
        case "one bit":
            changed["a"].view(torch.int32)[1, 2] ^= 1
        case "swapped":
            changed["a"], changed["b"] = changed["b"], changed["a"]
        case "missing":
            del changed["a"]
        case "too many":
            changed["c"] = torch.zeros(1)
        case "another shape":
            changed["a"] = changed["a"].reshape(5, 3)
        case "another type":
            changed["a"] = changed["a"].view(torch.int32)
    return replace(sealed, weights=changed)


@pytest.mark.parametrize("kind", ["one bit", "swapped", "missing", "too many", "another shape", "another type"])
def test_what_was_not_sealed_is_named(kind: str) -> None:
    with pytest.raises(PolicyError, match=r"version 1: \d of 8 tensors are not what the learner sealed \([ac]"):
        broken(kind).verify()


def test_a_damaged_file_is_seen(tmp_path: Path) -> None:
    file = stage(seal(weights(), 1), tmp_path / "1")
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)
    with pytest.raises(PolicyError, match="not what the learner sealed"):
        unstage(file).verify()


def test_layout_in_memory_does_not_matter() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert checksum(tensor.T) == checksum(tensor.T.contiguous()) != checksum(tensor)
