"""New weights for a model: all are checked before the first is copied."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from loomrl.errors import PolicyError, did_you_mean
from loomrl.inference.weights.sealed import Sealed, Weights, checksum


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
            raise _refusal(version, f"{name} has shape {tuple(given.shape)}, the model's is {tuple(own[name].shape)}")
        if given.is_floating_point() != own[name].is_floating_point():
            raise _refusal(version, f"{name} is {given.dtype}, the model's is {own[name].dtype}")
        meta = own[name].is_meta
        cast[name] = given.detach() if meta else given.detach().to(own[name])
        if not bool(torch.isfinite(cast[name]).all()):
            raise _refusal(version, f"{name} has values that are not finite in {cast[name].dtype}")
    for names in _group_shared(own):
        present = [cast[name] for name in names if name in cast]
        if any(not torch.equal(present[0], other) for other in present[1:]):
            raise _refusal(version, f"{' and '.join(names)} are one tensor in the model and differ here")
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
        raise _refusal(version, f"{name!r} is none of the model's {len(own)} weights.{did_you_mean(name, own)}")
    for names in _group_shared(own):
        if not any(name in weights for name in names):
            raise _refusal(version, f"{names[0]!r} is missing; a version has all of the model's {len(own)} weights")


def _group_shared(own: Mapping[str, Tensor]) -> list[list[str]]:
    """Names in groups that share memory; most groups have one."""
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, tensor in own.items():
        place = id(tensor) if tensor.is_meta else tensor.data_ptr()
        groups[(place, tensor.shape) if tensor.numel() else (name,)].append(name)
    return list(groups.values())


def _refusal(version: int, cause: str) -> PolicyError:
    return PolicyError(f"weights of version {version}: {cause}. The engine keeps the weights it has.")
