"""The files of an exported control policy, as they are written and read."""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from loomrl.config.control import Network
from loomrl.control.weave import Threads
from loomrl.errors import ArtifactError, ConfigError
from loomrl.files import write_whole
from loomrl.schema import Config

FORMAT = 1
MANIFEST = "policy.json"
TENSORS = "policy.safetensors"


class Sizes(Config):
    """Sizes that follow from the spaces, for readers without Gymnasium."""

    seen: tuple[int, ...]
    """Shape of one observation for the network: numbers, or height, width and channels of a picture."""
    inputs: int
    """Numbers that the distribution over actions takes."""
    actions: int
    """Numbers in one action."""
    state: int = 0
    """Numbers that its memory takes from one step of an episode to the next, all 0 at the first; 0 without a memory."""


class Manifest(Config):
    """The content of `policy.json`."""

    format: int = FORMAT
    network: Network
    normalize: bool
    squashed: bool = False
    """True if actions are between -1 and 1, scaled to the bounds; such a policy has no value function."""
    threads: Threads | None = None
    """For weave: the numbers of experts and critics."""
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    sizes: Sizes
    sha256: str
    """Checksum of the file of tensors."""


def write(file: Path, content: bytes) -> None:
    """All of it, or nothing."""
    try:
        write_whole(file, content)
    except OSError as error:
        raise ArtifactError(
            f"{str(file)!r}: {error}. Choose a folder that can be written, with room for {len(content):,} bytes."
        ) from error


def read_manifest(folder: Path) -> Manifest:
    """The manifest; an ArtifactError if it is missing or of another format."""
    try:
        raw = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise refused(folder, f"it has no {MANIFEST}: it is another folder, or was not written to its end") from None
    except (OSError, ValueError) as error:
        raise refused(folder, f"{MANIFEST} cannot be read: {error}") from error
    number = raw.get("format") if isinstance(raw, dict) else None
    if number != FORMAT:
        raise refused(folder, f"format={number!r}, and this LoomRL reads {FORMAT}: use the LoomRL that wrote it")
    try:
        return Manifest.parse(raw, origin=MANIFEST)
    except ConfigError as error:
        raise refused(folder, str(error)) from error


def read_tensors(folder: Path, manifest: Manifest) -> dict[str, Tensor]:
    """The tensors; an ArtifactError if they are not those of the manifest."""
    try:
        packed = (folder / TENSORS).read_bytes()
    except OSError as error:
        raise refused(folder, f"{TENSORS} cannot be read: {error}") from error
    if hashlib.sha256(packed).hexdigest() != manifest.sha256:
        raise refused(folder, f"{TENSORS} is not the one that was written with {MANIFEST}, or is damaged")
    try:
        return safetensors.torch.load(packed)
    except SafetensorError as error:
        raise refused(folder, f"{TENSORS} cannot be read: {error}") from error


def refused(folder: Path, cause: str) -> ArtifactError:
    """The error of a folder that is no policy."""
    return ArtifactError(
        f"{str(folder)!r} is not a policy that can be loaded: {cause}. Export it again (ControlPolicy.save), or copy "
        "the whole folder again."
    )
