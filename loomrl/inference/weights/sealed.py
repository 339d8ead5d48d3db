"""Sealed weights: every tensor with the checksum it had in the learner, verified again in the engine."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from loomrl.errors import PolicyError

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


def seal(weights: Weights, version: int) -> Sealed:
    """Seal the current weights."""
    return Sealed(version, weights, {name: checksum(tensor) for name, tensor in weights.items()})


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
