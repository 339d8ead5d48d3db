"""Sealed weights: every tensor with the checksum it had in the learner, verified again in the engine."""

import hashlib
import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from loomrl.errors import PolicyError, did_you_mean

Weights = Mapping[str, Tensor]
"""A model's parameters by the names of its state dict."""
HEADER = "loomrl"
"""Metadata key of a staged file that holds version and checksums."""


@dataclass(frozen=True, slots=True, eq=False)
class Sealed:
    """A version's weights, by name, with the checksum of each."""

    version: int
    weights: Weights
    checksums: Mapping[str, str]
    base: str | None = None
    """If these are low-rank additions (`weights.adapter`): `identify` of the weights to which they are added."""

    def verify(self) -> None:
        """A PolicyError names the tensors that are missing, unexpected or changed."""
        given = {name: checksum(tensor) for name, tensor in self.weights.items()}
        wrong = sorted({name for name, _ in given.items() ^ self.checksums.items()})
        if wrong:
            shown = ", ".join(wrong[:3])
            raise PolicyError(
                f"weights of version {self.version}: {len(wrong)} of {len(self.checksums)} tensors are not what the "
                f"learner sealed ({shown}). Nothing of them was used; publish the version again."
            )


def seal(weights: Weights, version: int, *, base: str | None = None) -> Sealed:
    """Seal the current weights, or low-rank additions to those of this identity."""
    return Sealed(version, weights, checksums(weights), base)


def checksums(weights: Weights) -> dict[str, str]:
    """The checksum of each tensor."""
    return {name: checksum(tensor) for name, tensor in weights.items()}


def identify(weights: Iterable[tuple[str, Tensor]]) -> str:
    """A name that follows from all weights, equal in every number format that they are opened in."""
    import xxhash

    rounded = {name: checksum(tensor.detach().to(torch.bfloat16)) for name, tensor in weights}
    return xxhash.xxh3_128(json.dumps(sorted(rounded.items())).encode()).hexdigest()


def weights_hash(weights: Weights) -> str:
    """SHA-256 over the names, types, shapes and bytes of all tensors, as it is on record of a version."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        hashed.update(f"{name} {tensor.dtype}{tuple(tensor.shape)}\n".encode())
        hashed.update(_bytes(tensor))
    return hashed.hexdigest()


def checksum(tensor: Tensor) -> str:
    """Checksum of type, shape and bytes."""
    import xxhash  # here: engines import this module where xxhash may be missing (`make gpu-check`)

    hashed = xxhash.xxh3_128(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    hashed.update(_bytes(tensor))
    return hashed.hexdigest()


def stage(sealed: Sealed, file: Path) -> Path:
    """Write a file atomically; in a folder of shared memory, readers map it."""
    header = json.dumps({"version": sealed.version, "checksums": dict(sealed.checksums)})
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    save_file(_apart(sealed.weights), partial, metadata={HEADER: header})
    partial.replace(file)
    return file


def unstage(file: Path) -> Sealed:
    """The staged weights, not yet verified."""
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()[HEADER])
        weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    return Sealed(header["version"], weights, header["checksums"])


def _bytes(tensor: Tensor) -> bytes | memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else b""


def _apart(weights: Weights) -> dict[str, Tensor]:
    """Contiguous copies without shared memory, which safetensors refuses."""
    seen: set[int] = set()
    apart: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        whole = tensor.detach().cpu().contiguous()
        apart[name] = whole.clone() if whole.data_ptr() in seen else whole
        seen.add(whole.data_ptr())
    return apart


SHARED_MEMORY = Path("/dev/shm")


def staging_folder() -> Path:
    """Shared memory if available, else the temporary folder."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def own_staging_folder(name: str) -> Path:
    """A new folder of this process."""
    sweep_staging()
    folder = staging_folder() / f"{name}-of-{os.getpid()}"
    folder.mkdir()
    return folder


def sweep_staging() -> None:
    """Remove the folders of killed processes."""
    for folder in staging_folder().glob("loomrl-*-of-*"):
        owner = folder.name.rpartition("-of-")[2]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # not ours, or a system without /proc
        return True


def load_weights(model: nn.Module, weights: Weights, version: int) -> None:
    """Copy weights into a model. With one wrong name, shape, type or number, nothing changes.

    For tied weights one name is enough.
    """
    own = model.state_dict()
    cast = check_weights(model, weights, version)
    with torch.no_grad():
        for name, value in cast.items():
            own[name].copy_(value)


def check_weights(model: nn.Module, weights: Weights, version: int) -> dict[str, Tensor]:
    """The weights in this model's types; a PolicyError if they do not fit. The model may be on the device "meta"."""
    own = model.state_dict(keep_vars=True)
    _check_names(own, weights, version)
    cast: dict[str, Tensor] = {}
    for name, given in weights.items():
        if given.shape != own[name].shape:
            raise _misfit(version, f"{name} has shape {tuple(given.shape)}, the model's is {tuple(own[name].shape)}")
        if given.is_floating_point() != own[name].is_floating_point():
            raise _misfit(version, f"{name} is {given.dtype}, the model's is {own[name].dtype}")
        meta = own[name].is_meta
        cast[name] = given.detach() if meta else given.detach().to(own[name])
        if not bool(torch.isfinite(cast[name]).all()):
            raise _misfit(version, f"{name} has values that are not finite in {cast[name].dtype}")
    for names in _group_shared(own):
        present = [cast[name] for name in names if name in cast]
        if any(not torch.equal(present[0], other) for other in present[1:]):
            raise _misfit(version, f"{' and '.join(names)} are one tensor in the model and differ here")
    return cast


def read_back(model: nn.Module, sealed: Sealed) -> None:
    """A PolicyError names the tensors whose values in the model's memory differ from the sealed ones."""
    own = model.state_dict()
    wrong = [
        name for name, given in sealed.weights.items() if checksum(own[name]) != _checksum_to_expect(sealed, name, own)
    ]
    if wrong:
        raise not_what_was_sealed(sealed, wrong)


def not_what_was_sealed(sealed: Sealed, wrong: Sequence[str]) -> PolicyError:
    """The error for tensors that were read back from an engine and differ."""
    return PolicyError(
        f"weights of version {sealed.version}: {len(wrong)} of {len(sealed.weights)} tensors arrived and are not what "
        f"was sealed where the engine computes with them ({', '.join(sorted(wrong)[:3])}): it has changed in between. "
        "Publish the version again; if that does not help, resume the run with fresh engines, and look for faulty "
        "memory."
    )


def _checksum_to_expect(sealed: Sealed, name: str, own: Mapping[str, Tensor]) -> str:
    """The sealed checksum; for a model of another precision, the checksum of the cast tensor."""
    given = sealed.weights[name]
    kept = own[name]
    return sealed.checksums[name] if given.dtype == kept.dtype else checksum(given.to(kept.dtype))


def _check_names(own: Mapping[str, Tensor], weights: Weights, version: int) -> None:
    for name in weights.keys() - own.keys():
        raise _misfit(version, f"{name!r} is none of the model's {len(own)} weights.{did_you_mean(name, own)}")
    for names in _group_shared(own):
        if not any(name in weights for name in names):
            raise _misfit(version, f"{names[0]!r} is missing; a version has all of the model's {len(own)} weights")


def _group_shared(own: Mapping[str, Tensor]) -> list[list[str]]:
    """Names in groups that share memory; most groups have one."""
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, tensor in own.items():
        place = id(tensor) if tensor.is_meta else tensor.data_ptr()
        groups[(place, tensor.shape) if tensor.numel() else (name,)].append(name)
    return list(groups.values())


def _misfit(version: int, cause: str) -> PolicyError:
    return PolicyError(f"weights of version {version}: {cause}. The engine keeps the weights it has.")
