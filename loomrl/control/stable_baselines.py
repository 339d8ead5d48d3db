"""Policies of Stable-Baselines3: their zip files as policies of ours, and ours as theirs.

PPO and A2C are an `ActorCritic`, SAC is an `Actor` that is squashed, layer by layer. What theirs pickle is never read.

Their zip files come from strangers: sizes are checked before anything is unpacked, and shapes before anything is built.
"""

import io
import json
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor

from loomrl.config.control import Network
from loomrl.control.network import ACTIVATIONS, Actor, ActorCritic
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.errors import ArtifactError, ConfigError

Space = spaces.Space[Any]
State = dict[str, Tensor]
ZIP = "stable_baselines.zip"
STATISTICS = "vecnormalize.pkl"
EPSILON = 1e-8
"""Added to the variance, as in our `Normalizer`."""
MOST_MB = 512.0
"""Limit of a zip file's unpacked size."""
RATIO = 100
"""Times its packed size that a file may have: theirs are not packed at all, and repeated zeros pack to a thousandth."""


def read(file: Path, observation_space: Space, action_space: Space, *, most_mb: float = MOST_MB) -> ControlPolicy:
    """The policy in a zip file that `model.save` of PPO, A2C or SAC wrote, for an environment of these spaces."""
    told, theirs = _read_zip(file, most_mb)
    squashed = "actor.mu.weight" in theirs
    if not squashed and "action_net.weight" not in theirs:
        raise _load_error(file, "it is none of PPO, A2C or SAC with an MlpPolicy")
    if theirs.get("log_std", torch.zeros(1)).ndim > 1 or "actor.log_std" in theirs:
        raise _load_error(file, "it explores by gSDE, which policies of ours do not")
    towers = ["actor.latent_pi"] if squashed else ["mlp_extractor.policy_net", "mlp_extractor.value_net"]
    widths = [_widths(theirs, tower) for tower in towers]
    if widths[0] != widths[-1]:
        raise _load_error(
            file, f"its policy has the layers {widths[0]} and its value function {widths[1]}; ours are alike"
        )
    network = Network(hidden=tuple(widths[0]), activation=_activation(file, told, "relu" if squashed else "tanh"))
    view = seen(observation_space)
    kind = acts(action_space)

    def built() -> Actor:
        if squashed:
            return Actor(view, kind, network, normalize=False, squashed=True)
        return ActorCritic(view, kind, network, normalize=False)

    with torch.device("meta"):
        needed = built().state_dict()
    try:
        state = _ours(theirs, layers=len(network.hidden), squashed=squashed)
    except (KeyError, RuntimeError) as error:
        raise _load_error(file, f"its layers do not belong together: {error}") from error
    differing = [
        f"{name} is {tuple(state[name].shape) if name in state else 'missing'}, {tuple(tensor.shape)} is needed"
        for name, tensor in needed.items()
        if name not in state or state[name].shape != tensor.shape
    ]
    if differing:
        raise _load_error(
            file, f"it is of other spaces than {observation_space} and {action_space}: {'; '.join(differing)}"
        )
    net = built()
    net.load_state_dict(state)
    return ControlPolicy(net, observation_space, action_space, network)


def write(policy: ControlPolicy, folder: Path) -> None:
    """Write the zip file that `PPO.load` or `SAC.load` reads, and the statistics of a `VecNormalize` if it has some."""
    try:
        from stable_baselines3 import PPO, SAC
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
    except ImportError as error:
        raise ConfigError(
            f"Stable-Baselines3 cannot be imported ({error}). Install: pip install 'loomrl[sb3]'."
        ) from error
    net = policy.net
    network = policy.network
    squashed = not isinstance(net, ActorCritic)
    refused = {
        "a memory": net.memory is not None,
        "layers that policy and value function share": network.shared,
        "layer normalisation": network.layer_norm,
        "pictures": net.pixels is not None,
        "an action mask": net.mask is not None,
        "several experts, or values of choices (dqn)": type(net) not in (Actor, ActorCritic),
        "observations in parts": isinstance(policy.observation_space, spaces.Dict | spaces.Tuple),
    }
    if faults := [name for name, given in refused.items() if given]:
        raise ConfigError(f"this policy has {' and '.join(faults)}, which an MlpPolicy of Stable-Baselines3 has not.")
    place = _Spaces(policy.observation_space, policy.action_space)
    hidden = list(network.hidden)
    words: dict[str, Any] = {
        "activation_fn": type(ACTIVATIONS[network.activation]()),
        "net_arch": {"pi": hidden, "qf" if squashed else "vf": hidden},
    }
    model = (SAC if squashed else PPO)("MlpPolicy", place, policy_kwargs=words, device="cpu")
    theirs = model.policy.state_dict() | _theirs(net, layers=len(hidden), squashed=squashed)
    model.policy.load_state_dict(theirs)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ZIP).open("wb") as packed:
        model.save(packed)
    if net.normalizer is not None:
        seen_by = VecNormalize(DummyVecEnv([lambda: place]), training=False, norm_reward=False, epsilon=EPSILON)
        seen_by.clip_obs = net.normalizer.bound
        found: Any = seen_by.obs_rms
        found.mean = net.normalizer.mean.double().numpy()
        found.var = net.normalizer.variance.double().numpy()
        found.count = float(net.normalizer.count)
        seen_by.save(str(folder / STATISTICS))


class _Spaces(gymnasium.Env[Any, Any]):
    """Spaces, where an environment is asked for."""

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def _read_zip(file: Path, most_mb: float) -> tuple[dict[str, Any], State]:
    """The zip file's description of the model, and the tensors of its policy."""
    try:
        with zipfile.ZipFile(file) as packed:
            members = [packed.getinfo("data"), packed.getinfo("policy.pth")]
            _refuse_large(file, members, most_mb)
            said, weights = (_unpack(packed, member) for member in members)
        told = json.loads(said)
        with zipfile.ZipFile(io.BytesIO(weights)) as inner:
            if sum(member.file_size for member in inner.infolist()) > len(weights):
                raise _load_error(file, "its tensors are packed once more, which torch.save never does")
        tensors = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError) as error:
        raise _load_error(file, f"it cannot be read: {error}") from error
    if not isinstance(told, dict) or not isinstance(tensors, dict):
        raise _load_error(file, "it is no model that `save` wrote")
    if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise _load_error(file, "its policy.pth holds other things than tensors")
    if sum(tensor.nbytes for tensor in tensors.values()) > len(weights):
        raise _load_error(file, "its tensors are larger than what is stored of them")
    return told, tensors


def _refuse_large(file: Path, members: Sequence[zipfile.ZipInfo], most_mb: float) -> None:
    """Before anything is unpacked: what it would become."""
    size_mb = sum(member.file_size for member in members) / 2**20
    if size_mb > most_mb:
        cause = f"unpacked it has {size_mb:,.0f} MB, and at most {most_mb:,.0f} are read. If it is yours: --most-mb"
        raise _load_error(file, f"{cause} {size_mb + 1:.0f}")
    for member in members:
        if member.file_size > RATIO * max(member.compress_size, 2**10):
            raise _load_error(
                file,
                f"{member.filename} unpacks from {member.compress_size:,} bytes to {member.file_size:,}, as no policy "
                "does. If it is yours, load it with Stable-Baselines3 and save it again",
            )


def _unpack(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The content, of the announced size: the rest is never unpacked, and fails the CRC."""
    with packed.open(member) as content:
        return content.read(member.file_size)


def _widths(theirs: State, tower: str) -> list[int]:
    found = {
        int(name.split(".")[-2]): len(tensor)
        for name, tensor in theirs.items()
        if re.fullmatch(rf"{re.escape(tower)}\.\d+\.weight", name)
    }
    return [found[index] for index in sorted(found)]


def _activation(file: Path, told: Mapping[str, Any], usual: str) -> str:
    said = told.get("policy_kwargs", {}).get("activation_fn", usual)
    name = str(said).rstrip("'>").rpartition(".")[2].lower()
    if name not in ACTIVATIONS:
        raise _load_error(file, f"its activation is {said}; ours are {', '.join(ACTIVATIONS)}")
    return name


def _names(*, layers: int, squashed: bool) -> dict[str, list[str]]:
    """Our layer → theirs, the last ones in the order in which ours puts out their numbers."""
    if squashed:
        return {f"policy.{2 * i}": [f"actor.latent_pi.{2 * i}"] for i in range(layers)} | {
            f"policy.{2 * layers}": ["actor.mu", "actor.log_std"]
        }
    hidden = {
        f"{ours}.{2 * i}": [f"mlp_extractor.{theirs}.{2 * i}"]
        for ours, theirs in (("policy", "policy_net"), ("critic", "value_net"))
        for i in range(layers)
    }
    return hidden | {f"policy.{2 * layers}": ["action_net"], f"critic.{2 * layers}": ["value_net"]}


def _ours(theirs: State, *, layers: int, squashed: bool) -> State:
    made = {
        f"{ours}.{part}": torch.cat([theirs[f"{name}.{part}"] for name in names])
        for ours, names in _names(layers=layers, squashed=squashed).items()
        for part in ("weight", "bias")
    }
    return made | ({"log_std": theirs["log_std"]} if "log_std" in theirs else {})


def _theirs(net: Actor, *, layers: int, squashed: bool) -> State:
    ours = net.state_dict()
    made = {
        f"{name}.{part}": tensor
        for own, names in _names(layers=layers, squashed=squashed).items()
        for part in ("weight", "bias")
        for name, tensor in zip(names, ours[f"{own}.{part}"].chunk(len(names)), strict=True)
    }
    return made | ({"log_std": ours["log_std"]} if "log_std" in ours else {})


def _load_error(file: Path, cause: str) -> ArtifactError:
    return ArtifactError(f"{str(file)!r} cannot be taken over: {cause}.")
