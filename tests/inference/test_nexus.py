"""Deltas lose nothing, whatever the bits; a receiver has all of a version or none of it, however it came."""

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loomrl.errors import PolicyError
from loomrl.inference.weights.nexus import DeltaKind, Receiver, Sender, compress, decode, encode
from loomrl.inference.weights.sealed import Sealed, checksum, seal

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_any_bits_come_back_from_any_others(dtype: torch.dtype, data: st.DataObject) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
    unsigned = np.dtype(f"u{dtype.itemsize}")
    new, base = (
        torch.from_numpy(np.atleast_1d(data.draw(arrays.arrays(unsigned, shape))).view(np.uint8))
        .view(dtype)
        .reshape(shape)
        for _ in range(2)
    )
    far = torch.cat([torch.zeros(700, dtype=dtype), new.reshape(-1), torch.zeros(300, dtype=dtype)])
    kind, raw = encode(far, zeros := torch.zeros_like(far))
    assert checksum(decode(kind, raw, far.to("meta"), zeros)) == checksum(far)
    for known in (base, new, None):
        kind, raw = encode(new, known)
        got = decode(kind, raw, torch.empty(shape, dtype=dtype, device="meta"), known)
        assert checksum(got) == checksum(new)


def stepped(tensor: torch.Tensor, share: float, seed: int) -> torch.Tensor:
    """Some numbers moved to a neighbour, as a small step does."""
    generator = torch.Generator().manual_seed(seed)
    moved = torch.rand(tensor.shape, generator=generator) < share
    up = torch.rand(tensor.shape, generator=generator) < 0.5
    bits = tensor.view(torch.int16)
    return torch.where(moved, torch.where(up, bits + 1, bits - 1), bits).view(torch.bfloat16)


def version(number: int, share: float = 0.02) -> Sealed:
    """Each of some steps away from the one before it."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        "a": torch.randn(300, 200, generator=generator).to(torch.bfloat16) * 0.02,
        "b": torch.randn(500, generator=generator).to(torch.bfloat16),
        "frozen": torch.randn(64, 64, generator=generator).to(torch.bfloat16),
        "none": torch.zeros(0, 3),
        "turned": torch.randn(40, 30, generator=generator).to(torch.bfloat16).T,
    }
    for step in range(number):
        for name in ("a", "b", "turned"):
            weights[name] = stepped(weights[name].contiguous(), share, step)
    return seal(weights, number)


def sent(sender: Sender, receiver: Receiver) -> int:
    """The newest version travels; how many bytes of it."""
    parcel = sender.parcel(receiver.holds)
    for index in receiver.offer(parcel.manifest):
        receiver.take(index, bytes(parcel.chunks[index]))
    receiver.finish()
    return parcel.size


def has(receiver: Receiver, wanted: Sealed) -> bool:
    held = receiver._held
    return held is not None and held.version == wanted.version and {**held.checksums} == {**wanted.checksums}


def test_versions_follow_each_other_as_small_deltas() -> None:
    sender, receiver, sizes = Sender(), Receiver(), []
    for number in range(4):
        sender.hold(version(number))
        sizes.append(sent(sender, receiver))
        assert has(receiver, version(number))
    assert max(sizes[1:]) < sizes[0] / 5


def test_tensor_that_changed_beyond_a_delta_comes_whole_and_one_that_did_not_costs_nothing() -> None:
    before, after = version(0), version(1, share=0.1)
    other = {**after.weights, "a": -after.weights["a"].flip(0) * 1e4}
    kinds = {name: encode(tensor, before.weights[name])[0] for name, tensor in other.items()}
    assert kinds == {
        "a": DeltaKind.WHOLE,
        "b": DeltaKind.DELTA,
        "frozen": DeltaKind.SAME,
        "none": DeltaKind.SAME,
        "turned": DeltaKind.DELTA,
    }


def test_receiver_with_another_base_gets_all_of_it() -> None:
    sender, behind = Sender(kept=2), Receiver()
    sender.hold(version(0))
    whole = sent(sender, behind)
    for number in (1, 2):
        sender.hold(version(number))
    assert sent(sender, behind) > whole * 0.9
    assert has(behind, version(2))


def test_number_used_again_for_other_weights_is_another_base() -> None:
    sender, receiver = Sender(kept=4), Receiver()
    sender.hold(version(1))
    sent(sender, receiver)
    sender.hold(seal(version(2).weights, 1))
    sent(sender, receiver)
    assert has(receiver, seal(version(2).weights, 1))


def test_receiver_that_lost_its_connection_asks_for_what_it_lacks() -> None:
    sender, receiver = Sender(chunk_bytes=2000), Receiver()
    sender.hold(version(0))
    parcel = sender.parcel(receiver.holds)
    missing = receiver.offer(parcel.manifest)
    assert len(missing) > 10
    for index in missing[::2]:
        receiver.take(index, bytes(parcel.chunks[index]))
    with pytest.raises(PolicyError, match="not complete"):
        receiver.finish()
    assert receiver.offer(parcel.manifest) == missing[1::2]
    for index in missing[1::2]:
        receiver.take(index, bytes(parcel.chunks[index]))
    assert receiver.finish().version == 0


def test_newer_version_that_comes_in_between_replaces_what_had_arrived() -> None:
    sender, receiver = Sender(chunk_bytes=2000), Receiver()
    sender.hold(version(0))
    first = sender.parcel(None)
    receiver.offer(first.manifest)
    receiver.take(0, bytes(first.chunks[0]))
    sender.hold(version(1))
    sent(sender, receiver)
    assert has(receiver, version(1))


def test_damaged_chunk_is_refused_and_still_to_come() -> None:
    sender, receiver = Sender(chunk_bytes=2000), Receiver()
    sender.hold(version(0))
    parcel = sender.parcel(None)
    missing = receiver.offer(parcel.manifest)
    damaged = bytearray(parcel.chunks[1])
    damaged[7] ^= 1
    for index, chunk in ((1, bytes(damaged)), (2, bytes(parcel.chunks[1])), (len(missing), b"")):
        with pytest.raises(PolicyError, match="came damaged: send it again"):
            receiver.take(index, chunk)
    assert receiver.offer(parcel.manifest) == missing


def test_delta_on_a_base_that_has_changed_is_found_by_the_seal_and_the_next_parcel_is_whole() -> None:
    sender, receiver = Sender(), Receiver()
    sender.hold(version(0))
    whole = sent(sender, receiver)
    assert receiver._held is not None
    receiver._held.weights["a"].view(torch.int16)[3, 4] ^= 1
    sender.hold(version(1))
    with pytest.raises(PolicyError, match=r"1 of 5 tensors are not what the learner sealed \(a\)"):
        sent(sender, receiver)
    assert receiver.holds is None
    assert sent(sender, receiver) > whole * 0.9
    assert has(receiver, version(1))


def test_delta_for_a_base_that_is_not_here_is_refused() -> None:
    sender, first, other = Sender(), Receiver(), Receiver()
    sender.hold(version(0))
    sent(sender, first)
    sender.hold(version(1))
    with pytest.raises(PolicyError, match="a base that is not here"):
        other.offer(sender.parcel(first.holds).manifest)
    with pytest.raises(PolicyError, match="offer a manifest first"):
        other.take(0, b"")


@pytest.mark.parametrize("broken", [b"", b"\xc1", compress(b"\xc1"), compress(msgspec.msgpack.encode({"version": 1}))])
def test_manifest_that_is_none_is_refused(broken: bytes) -> None:
    with pytest.raises(PolicyError, match="manifest cannot be read"):
        Receiver().offer(broken)


def test_nothing_published_is_nothing_to_send() -> None:
    with pytest.raises(PolicyError, match="no version was published"):
        Sender().parcel(None)


def test_bytes_of_another_length_are_no_tensor() -> None:
    _, raw = encode(torch.ones(8), None)
    like = torch.empty(9, device="meta")
    with pytest.raises(PolicyError, match="of 36 bytes came as 32"):
        decode(DeltaKind.WHOLE, raw, like, None)
    moved = encode(torch.ones(8), torch.zeros(8))[1]
    for small in (torch.zeros(1), torch.zeros(4)):
        with pytest.raises(PolicyError, match=r"announce|moves number 7 of 4"):
            decode(DeltaKind.DELTA, moved, torch.empty(small.shape, device="meta"), small)
    with pytest.raises(PolicyError, match="cannot be decompressed"):
        decode(DeltaKind.WHOLE, b"no zstd", like, None)
    with pytest.raises(PolicyError, match="its base is missing"):
        decode(DeltaKind.SAME, b"", like, torch.ones(8))
