from dataclasses import replace
from pathlib import Path

import pytest
import torch

from loomrl.errors import PolicyError
from loomrl.inference.weights.sealed import Sealed, checksum, seal, stage, unstage


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
    }


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
    with pytest.raises(PolicyError, match=r"version 1: \d of 7 tensors are not what the learner sealed \([ac]"):
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
