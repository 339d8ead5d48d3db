"""Exported control policies: a folder of tensors and JSON that acts without RLlib.

`policy.safetensors` has the numbers of network and normaliser, `policy.json` everything else. The JSON is written last
and has the checksum of the tensors: a folder without it, or with other tensors, is refused.

Axes: `_N` observations, `_B` the network's inputs, `_I` inputs of a distribution, `_S` numbers of a memory's state.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike
from safetensors import SafetensorError
from torch import Tensor, nn

from loomrl.canonical import canonical_json
from loomrl.config.control import Network
from loomrl.control.memory import MemoryState, check_state
from loomrl.control.network import Actor, ActorCritic
from loomrl.control.preference import is_steered, with_preference
from loomrl.control.q_network import QHead, QNet
from loomrl.control.space import (
    ACTION_MASK,
    Array,
    acts,
    as_batch,
    flatten,
    seen,
    space_from_json,
    space_to_json,
    translator,
)
from loomrl.control.weave import Threads, WeaveNet
from loomrl.errors import ArtifactError, ConfigError
from loomrl.files import write_whole
from loomrl.schema import Config

FORMAT = 1
MANIFEST = "policy.json"
TENSORS = "policy.safetensors"
SEVERAL = "policies.json"
"""In a folder of several policies (`loomrl.control.team_policy`): their names, those of their folders."""


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


class NetworkForm(Config):
    """The form of a network beside its layers and spaces."""

    normalize: bool
    squashed: bool = False
    """True if actions are between -1 and 1, scaled to the bounds; such a policy has no value function."""
    threads: Threads | None = None
    """For weave: the numbers of experts and critics."""
    head: QHead | None = None
    """For dqn: the form of its values."""


class PolicyManifest(NetworkForm):
    """The content of `policy.json`."""

    format: int = FORMAT
    network: Network
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


def read_manifest(folder: Path) -> PolicyManifest:
    """The manifest; an ArtifactError if it is missing or of another format."""
    try:
        raw = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        if (folder / SEVERAL).is_file():
            raise ArtifactError(
                f"{str(folder)!r} has several policies, each in a folder of its name: give one of these."
            ) from None
        raise load_error(folder, f"it has no {MANIFEST}: it is another folder, or was not written to its end") from None
    except (OSError, ValueError) as error:
        raise load_error(folder, f"{MANIFEST} cannot be read: {error}") from error
    number = raw.get("format") if isinstance(raw, dict) else None
    if number != FORMAT:
        raise load_error(folder, f"format={number!r}, and this LoomRL reads {FORMAT}: use the LoomRL that wrote it")
    try:
        return PolicyManifest.parse(raw, origin=MANIFEST)
    except ConfigError as error:
        raise load_error(folder, str(error)) from error


def read_tensors(folder: Path, manifest: PolicyManifest) -> dict[str, Tensor]:
    """The tensors; an ArtifactError if they are not those of the manifest."""
    try:
        packed = (folder / TENSORS).read_bytes()
    except OSError as error:
        raise load_error(folder, f"{TENSORS} cannot be read: {error}") from error
    if hashlib.sha256(packed).hexdigest() != manifest.sha256:
        raise load_error(folder, f"{TENSORS} is not the one that was written with {MANIFEST}, or is damaged")
    try:
        return safetensors.torch.load(packed)
    except SafetensorError as error:
        raise load_error(folder, f"{TENSORS} cannot be read: {error}") from error


def load_error(folder: Path, cause: str) -> ArtifactError:
    """The error of a folder that is no policy."""
    return ArtifactError(
        f"{str(folder)!r} is not a policy that can be loaded: {cause}. Export it again (ControlPolicy.save), or copy "
        "the whole folder again."
    )


OPSET = 18

Space = spaces.Space[Any]


class ControlPolicy:
    """Acts with a network: takes and returns values in the environment's form.

    The network is not copied: while it is trained, the policy changes with it.
    """

    def __init__(self, net: Actor, observation_space: Space, action_space: Space, network: Network) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.net = net
        self.network = network
        blueprint = _blueprint(observation_space, action_space, network, _form(net))
        fault = _difference(blueprint.state_dict(), net.state_dict())
        if fault is None and str(net) != str(blueprint):
            fault = "its layers are others"
        if fault is not None:
            raise ConfigError(
                f"this network is not the one of {network!r} for {observation_space} and {action_space}: {fault}. "
                "Give the settings and spaces that it was made with."
            )
        self._flatten = flatten(observation_space)
        self._mask = net.mask
        self._translate = translator(acts(action_space), squashed=net.distribution.squashed)

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> MemoryState | None:
        """Prepare for these environments: a ConfigError if their spaces differ from the policy's."""
        for what, ours, theirs in (
            ("sees", self.observation_space, environments.single_observation_space),
            ("decides", self.action_space, environments.single_action_space),
        ):
            if ours != theirs:
                raise ConfigError(
                    f"the policy {what} {ours}, the environment has {theirs}. Give one with the spaces it was made for."
                )
        return self.state(environments.num_envs)

    def state(self, count: int = 1) -> MemoryState | None:
        """The memory's state in so many episodes that begin, to act with until they end; None without a memory."""
        memory = self.net.memory
        return None if memory is None else MemoryState(np.zeros((count, memory.state), np.float32))

    # -- acting -----------------------------------------------------------------------------------------------------

    def act(
        self,
        observation: Any,
        *,
        state: MemoryState | None = None,
        preference: ArrayLike | None = None,
        earned: ArrayLike | None = None,
        explore: bool = False,
        generator: torch.Generator | None = None,
    ) -> Any:
        """The action for one observation: the likeliest, or with `explore` a sampled one.

        A policy with a memory needs the episode's state, `policy.state()` at its beginning, and changes it.
        A policy of several objectives needs a preference: weights that sum to 1. One that uses returns up to now gets
        them by objective; without `earned` the episode is at its start. A generator makes sampling repeatable. An
        observation outside the space is a ConfigError.
        """
        if preference is not None:
            observation = with_preference(self.observation_space, observation, preference, earned)
        elif is_steered(self.observation_space) and not isinstance(observation, Mapping):
            raise ConfigError("this policy has several objectives: say act(observation, preference=[...]).")
        self.refuse_stuck(observation, one=True)
        action = self._act_on(self._decide(self._as_tensor(observation, one=True), state), explore, generator)[0]
        return action if isinstance(self.action_space, spaces.Discrete) else np.asarray(action)

    def act_batch(
        self,
        observations: Any,
        *,
        state: MemoryState | None = None,
        explore: bool = False,
        generator: torch.Generator | None = None,
    ) -> Array:
        """Actions for a vector environment's observations, in its form.

        An observation whose mask allows nothing, as last ones of episodes may, gets any action.
        """
        return self._act_on(self._decide(self._as_tensor(observations, one=False), state), explore, generator)

    def refuse_stuck(self, observations: Any, *, one: bool = False) -> None:
        """A ConfigError if the action mask of an observation allows nothing."""
        if self._mask is None:
            return
        stuck = np.flatnonzero(self._mask.stuck(self._flatten(as_batch(self.observation_space, observations, one=one))))
        if len(stuck):
            which = "" if one else f" {stuck[0]}"
            raise ConfigError(f"the {ACTION_MASK} of observation{which} allows no action.")

    def sample_batch(
        self, observations: Any, *, state: MemoryState | None = None, generator: torch.Generator | None = None
    ) -> tuple[Array, Array]:
        """Sampled actions, and their log-probabilities as they were drawn, before scaling and clipping."""
        inputs_BI = self._decide(self._as_tensor(observations, one=False), state)
        with torch.inference_mode():
            drawn = self._draw(inputs_BI, generator)
            logprobs_B = self.net.distribution.logp(inputs_BI, drawn)
        return self._in_space(drawn), logprobs_B.numpy()

    def chances(self, seen_B: Array, *, greedy: bool) -> Array:
        """Probability of every choice `[B, A]` for the network's inputs; a ConfigError where actions are no choice."""
        if not isinstance(self.action_space, spaces.Discrete):
            raise ConfigError(
                f"probabilities are of one choice among several, and this policy does {self.action_space}."
            )
        inputs_BI = self._decide(torch.from_numpy(np.array(seen_B)), None)
        distribution = self.net.distribution
        choices = torch.arange(int(self.action_space.n))
        with torch.inference_mode():
            logp_BA = torch.stack([distribution.logp(inputs_BI, one.expand(len(inputs_BI))) for one in choices], 1)
            likeliest_B = distribution.mode(inputs_BI)
        chances_BA: Array = np.eye(len(choices))[likeliest_B.numpy()] if greedy else logp_BA.exp().numpy()
        return chances_BA

    @property
    def has_value(self) -> bool:
        """True if `value` is known: the network has a value function, of one objective."""
        return isinstance(self.net, ActorCritic | QNet) and not is_steered(self.observation_space)

    def value(self, observation: Any, *, state: MemoryState | None = None) -> float:
        """The expected discounted return; a ConfigError if that is not one number. The state stays as it is."""
        if not isinstance(self.net, ActorCritic | QNet):
            raise ConfigError("this policy has no value function: its algorithm (sac) judges actions, not states.")
        if is_steered(self.observation_space):
            raise ConfigError("this policy has several objectives: no single number is expected from here.")
        with torch.inference_mode():
            seen_B = self._as_tensor(observation, one=True)
            features_BF, _ = self._recall(seen_B, state)
            if isinstance(self.net, QNet):
                return float(self.net.expect(features_BF, seen_B)[0])
            return float(self.net.value(features_BF)[0])

    def _as_tensor(self, observations: Any, *, one: bool) -> Tensor:
        flat = self._flatten(as_batch(self.observation_space, observations, one=one))
        owned = np.array(flat, order="C")  # torch takes no array that is read-only or runs backwards
        return torch.from_numpy(owned).to(next(self.net.parameters()).device)

    def _act_on(self, inputs_BI: Tensor, explore: bool, generator: torch.Generator | None) -> Array:
        with torch.inference_mode():
            drawn = self._draw(inputs_BI, generator) if explore else self.net.distribution.mode(inputs_BI)
        return self._in_space(drawn)

    def _decide(self, seen_B: Tensor, state: MemoryState | None) -> Tensor:
        with torch.inference_mode():
            features_BF, after_BS = self._recall(seen_B, state)
            if state is not None and after_BS is not None:
                state.numbers_BS = after_BS.cpu().numpy()
            return self.net.decide(features_BF, seen_B).cpu()

    def _recall(self, seen_B: Tensor, state: MemoryState | None) -> tuple[Tensor, Tensor | None]:
        """Features, and the state after this step."""
        check_state(state, self.net.memory, count=len(seen_B))
        return self.net.recall(seen_B, None if state is None else torch.from_numpy(state.numbers_BS).to(seen_B.device))

    def _draw(self, inputs_BI: Tensor, generator: torch.Generator | None) -> Tensor:
        distribution = self.net.distribution
        return distribution.sample(inputs_BI, distribution.noise(len(inputs_BI), generator=generator))

    def _in_space(self, drawn: Tensor) -> Array:
        taken_N = self._translate(drawn.numpy()).astype(self.action_space.dtype)
        if isinstance(self.action_space, spaces.Box):  # bounds of 64 or 16 bits are not those of 32
            taken_N = taken_N.clip(self.action_space.low, self.action_space.high)
        return taken_N

    # -- files ------------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write the policy, replacing an older one; an ArtifactError if the folder cannot be written.

        If killed in the middle, it leaves the older policy, or a folder that `load` refuses.
        """
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.net.state_dict().items()}
        packed = safetensors.torch.save(tensors)
        write(folder / TENSORS, packed)
        write(folder / MANIFEST, canonical_json(self._manifest(packed).model_dump(mode="json")))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The policy saved in this folder, on the CPU; an ArtifactError if it is missing or incomplete."""
        manifest = read_manifest(folder)
        try:
            observed = space_from_json(manifest.observation_space)
            acted = space_from_json(manifest.action_space)
            net = _blueprint(observed, acted, manifest.network, manifest)
            expected = _sizes(net, observed, acted)
        except ConfigError as error:
            raise load_error(folder, f"{MANIFEST} describes no network of ours: {error}") from error
        if manifest.sizes != expected:
            raise load_error(folder, f"{MANIFEST} says {manifest.sizes!r}, from its spaces follows {expected!r}")
        tensors = read_tensors(folder, manifest)
        fault = _difference(net.state_dict(), tensors)
        if fault is not None:
            raise load_error(folder, f"{TENSORS} is not what {MANIFEST} describes: {fault}")
        net.load_state_dict(tensors, assign=True)
        return cls(net, observed, acted, manifest.network)

    def to_onnx(self, file: Path) -> None:
        """Write the greedy path as ONNX: `seen`, flattened observations `[B, …]`, to `inputs` and `actions`.

        `inputs` are those of the distribution, `actions` its mode: neither clipped to bounds nor shifted to the first
        choice. Both, and the spaces, are in the file's metadata under `loomrl`, as in `policy.json`. With a memory it
        also takes `state`, `[B, S]`, zeros where an episode begins, and gives `next_state`.
        """
        try:
            import onnx
        except ImportError as error:
            raise ConfigError(f"onnx cannot be imported ({error}). Install: pip install 'loomrl[onnx]'.") from error
        example = torch.zeros(2, *seen(self.observation_space).shape, device=next(self.net.parameters()).device)
        if self.net.pixels is not None:
            example = example.byte()
        examples: tuple[Tensor, ...] = (example,)
        takes = ["seen"]
        gives = ["inputs", "actions"]
        if (state := self.state(2)) is not None:
            examples = (example, torch.from_numpy(state.numbers_BS).to(example.device))
            takes = [*takes, "state"]
            gives = [*gives, "next_state"]
        buffer = BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the exporter that follows it needs onnxscript
            torch.onnx.export(
                _Greedy(self.net),
                examples,
                buffer,  # type: ignore[arg-type]
                input_names=takes,
                output_names=gives,
                dynamic_axes={name: {0: "batch"} for name in (*takes, *gives)},
                opset_version=OPSET,
                dynamo=False,
            )
        model = onnx.load_from_string(buffer.getvalue())
        about = self._manifest(b"").model_dump(mode="json", exclude={"sha256"})
        onnx.helper.set_model_props(model, {"loomrl": canonical_json(about).decode()})
        onnx.checker.check_model(model, full_check=True)
        write(file, model.SerializeToString())

    def _manifest(self, packed: bytes) -> PolicyManifest:
        return PolicyManifest(
            network=self.network,
            **dict(_form(self.net)),
            observation_space=space_to_json(self.observation_space),
            action_space=space_to_json(self.action_space),
            sizes=_sizes(self.net, self.observation_space, self.action_space),
            sha256=hashlib.sha256(packed).hexdigest(),
        )


class _Greedy(nn.Module):
    """The greedy path of a network, for export."""

    def __init__(self, net: Actor) -> None:
        super().__init__()
        self._net = net

    def forward(self, seen_B: Tensor, state_BS: Tensor | None = None) -> tuple[Tensor, ...]:
        """Inputs of the distribution, its mode, and the state after it if there is a memory."""
        features_BF, after_BS = self._net.recall(seen_B, state_BS)
        inputs_BI = self._net.decide(features_BF, seen_B)
        said = inputs_BI, self._net.distribution.mode(inputs_BI)
        return said if after_BS is None else (*said, after_BS)


def _blueprint(observation_space: Space, action_space: Space, network: Network, form: NetworkForm) -> Actor:
    """The network's shapes without numbers; no random numbers are drawn."""
    view = seen(observation_space)
    kind = acts(action_space)
    with torch.device("meta"):
        if form.squashed:
            return Actor(view, kind, network, normalize=form.normalize, squashed=True)
        if form.head is not None:
            return QNet(view, kind, network, form.head, normalize=form.normalize)
        if form.threads is not None:
            return WeaveNet(view, kind, network, form.threads, normalize=form.normalize)
        return ActorCritic(view, kind, network, normalize=form.normalize)


def _form(net: Actor) -> NetworkForm:
    return NetworkForm(
        normalize=net.normalizer is not None,
        squashed=not isinstance(net, ActorCritic | QNet),
        threads=net.threads if isinstance(net, WeaveNet) else None,
        head=net.head if isinstance(net, QNet) else None,
    )


def _sizes(net: Actor, observation_space: Space, action_space: Space) -> Sizes:
    return Sizes(
        seen=seen(observation_space).shape,
        inputs=net.distribution.inputs,
        actions=acts(action_space).count,
        state=0 if net.memory is None else net.memory.state,
    )


def _difference(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    """The first tensor that differs in more than its values."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"tensor {name!r} is missing"
        if name not in expected:
            return f"tensor {name!r} is one too many"
        ours = expected[name]
        theirs = found[name]
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return (
                f"tensor {name!r} has shape {(*theirs.shape,)} of {theirs.dtype}, not {(*ours.shape,)} of {ours.dtype}"
            )
    return None
