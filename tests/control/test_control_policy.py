"""Exported policies: what is loaded acts as what was saved, in every space, and nothing half-written is believed."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from loomrl.config.control import Network
from loomrl.control.network import Actor, ActorCritic
from loomrl.control.policy import MANIFEST, TENSORS, ControlPolicy
from loomrl.control.space import acts, flatten, seen, translator
from loomrl.errors import ArtifactError, ConfigError

Space = spaces.Space[Any]
OBSERVED: dict[str, Space] = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "picture": spaces.Box(0, 255, (7, 8, 1), np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "multi_binary": spaces.MultiBinary(3),
    "dict": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.Box(-1, 1, (2,), np.float64)})}),
    "tuple": spaces.Tuple([spaces.Box(0, 9, (1,), np.int32), spaces.MultiDiscrete([2, 2])]),
}
ACTED: dict[str, Space] = {
    "discrete": spaces.Discrete(3),
    "discrete_small": spaces.Discrete(3, start=-1, dtype=np.int8),
    "multi_discrete": spaces.MultiDiscrete([[2, 3], [4, 2]], np.int32, start=[[0, 5], [-2, 1]]),
    "multi_binary": spaces.MultiBinary([2, 2]),
    "box": spaces.Box(-1, 1, (2,)),
    "box_double": spaces.Box(-0.1, 0.1, (2, 1), np.float64),
    "box_half": spaces.Box(-0.1, 0.1, (2,), np.float16),
    "box_of_one": spaces.Box(-1, 1, ()),
    "box_unbounded": spaces.Box(np.array([-np.inf, 0], np.float32), np.array([0, np.inf], np.float32)),
}
NETWORKS = {
    "towers": Network(hidden=(8, 8)),
    "trunk": Network(hidden=(8,), shared=True, activation="silu", layer_norm=True),
    "linear": Network(hidden=(), activation="gelu"),
}
COUNT = 16


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def policy(observed: Space, acted: Space, network: Network = NETWORKS["towers"]) -> ControlPolicy:
    """With weights and statistics that are not those of the beginning."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = ActorCritic(seen(observed), acts(acted), network, normalize=True)
    chance = seeded(3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=chance))
    if net.normalizer is not None:
        size = seen(observed).shape[0]
        net.normalizer.observe(7.0, torch.rand(size, generator=chance), torch.rand(size, generator=chance))
    return ControlPolicy(net, observed, acted, network)


def some(space: Space) -> list[Any]:
    space.seed(5)
    return [space.sample() for _ in range(COUNT)]


def together(space: Space, ones: list[Any]) -> Any:
    """Observations of a vector environment."""
    return concatenate(space, ones, create_empty_array(space, len(ones)))


def as_environment_takes(policy: ControlPolicy, observations: Any) -> Any:
    """The mode of what the network says, by the parts that training uses."""
    net = policy.net
    with torch.inference_mode():
        seen_B = torch.from_numpy(np.array(flatten(policy.observation_space)(observations)))
        drawn = net.distribution.mode(net.decide(net.features(seen_B), seen_B))
    return translator(acts(policy.action_space))(drawn.numpy())


@pytest.mark.parametrize(
    ("observed", "acted", "network"),
    [*zip(cycle(OBSERVED), ACTED, cycle(NETWORKS), strict=False), ("picture", "box", "trunk")],
)
def test_a_loaded_policy_is_the_one_that_was_saved(observed: str, acted: str, network: str, tmp_path: Path) -> None:
    saved = policy(OBSERVED[observed], ACTED[acted], NETWORKS[network])
    saved.save(tmp_path)
    before = torch.random.get_rng_state()
    loaded = ControlPolicy.load(tmp_path)
    assert torch.equal(before, torch.random.get_rng_state()), "loading draws no numbers from elsewhere"
    assert (loaded.observation_space, loaded.action_space) == (OBSERVED[observed], ACTED[acted])
    observations = some(OBSERVED[observed])
    for one in observations[:4]:
        np.testing.assert_array_equal(loaded.act(one), saved.act(one))
        drawn = [each.act(one, explore=True, generator=seeded(9)) for each in (saved, loaded)]
        np.testing.assert_array_equal(*drawn)
        assert loaded.value(one) == saved.value(one)
    batch = together(OBSERVED[observed], observations)
    np.testing.assert_array_equal(loaded.act_batch(batch), saved.act_batch(batch))
    space = ACTED[acted]
    low, high = (space.low, space.high) if isinstance(space, spaces.Box) else (None, None)
    expected = as_environment_takes(saved, batch).astype(space.dtype)
    np.testing.assert_array_equal(loaded.act_batch(batch), expected.clip(low, high))


def test_acting_needs_no_ray_and_sharing_no_pettingzoo() -> None:
    code = "import sys, loomrl.control.policy, loomrl.control.shared; print({'ray', 'pettingzoo'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("acted", ACTED)
def test_actions_are_such_as_the_environment_takes(acted: str) -> None:
    space = ACTED[acted]
    observed = OBSERVED["box"]
    actor = policy(observed, space)
    observations = some(observed)
    for explore in (False, True):
        one_by_one = [actor.act(one, explore=explore, generator=seeded(1)) for one in observations]
        assert all(space.contains(action) and action.dtype == space.dtype for action in one_by_one)
        batch = actor.act_batch(together(observed, observations), explore=explore, generator=seeded(1))
        assert all(
            space.contains(action if isinstance(space, spaces.Discrete) else np.asarray(action)) for action in batch
        )
        assert batch.dtype == space.dtype
        assert len({str(action) for action in batch}) > 1
    greedy = [actor.act(one) for one in observations]
    np.testing.assert_allclose(greedy, actor.act_batch(together(observed, observations)), rtol=1e-3, atol=1e-5)


# -- observations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "given", "words"),
    [
        ("box", np.zeros(3), r"shape \(3,\) has another shape; Box.* of shape \(2, 3\), is needed"),
        ("box", np.full((2, 3), np.nan), r"shape \(2, 3\) has NaN.* of shape \(2, 3\), is needed"),
        ("box", [[1.0, 2.0, 3.0], [1.0]], "rows differ in length"),
        ("box", "north", "not numbers"),
        ("picture", np.zeros((8, 7, 1), np.uint8), r"\(8, 7, 1\) has another shape.*\(7, 8, 1\)"),
        ("picture", np.zeros((7, 8, 1), np.float32), "float32, not whole numbers"),
        ("discrete", 1, r"choice that does not exist; Discrete\(4, start=2\)"),
        ("multi_discrete", [0, 0], "choice that does not exist"),
        ("multi_binary", [0, 1, 2], "choice that does not exist"),
        ("dict", {"a": 1}, r"observation has a; a dictionary of a, b is needed"),
        ("dict", {"a": 1, "b": {"c": [0.0]}}, r"observation\['b'\]\['c'\] of shape \(1,\).*\(2,\)"),
        ("dict", 3, "is 3; a dictionary of a, b"),
        ("tuple", ([1], [0, 1], [0]), "a tuple of 2 is needed"),
        ("tuple", ([1], [0, 2]), r"observation\[1\] of shape \(2,\) has a choice"),
    ],
)
def test_an_observation_that_is_not_of_its_space_is_named(observed: str, given: Any, words: str) -> None:
    actor = policy(OBSERVED[observed], ACTED["discrete"])
    for ask in (actor.act, actor.value):
        with pytest.raises(ConfigError, match=words):
            ask(given)


@pytest.mark.parametrize("given", [np.zeros((2, 3)), np.zeros((5, 3, 2)), np.float32(1)])
def test_a_batch_that_is_none_is_named(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"another shape; .*\(N, 2, 3\).*is needed"):
        policy(OBSERVED["box"], ACTED["discrete"]).act_batch(given)


def test_plain_lists_and_views_that_cannot_be_written_will_do() -> None:
    actor = policy(OBSERVED["box"], ACTED["box"])
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    backwards = numbers[::-1]
    backwards.flags.writeable = False
    np.testing.assert_array_equal(actor.act(backwards), actor.act([[3, 4, 5], [0, 1, 2]]))
    picture = policy(OBSERVED["picture"], ACTED["box"])
    view = np.arange(56, dtype=np.uint8).reshape(7, 8, 1)
    np.testing.assert_array_equal(picture.act(view[::-1]), picture.act(view[::-1].tolist()))


# -- folders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("step", range(4))
def test_a_save_that_was_killed_leaves_what_was_there_or_what_is_refused(
    step: int, older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = some(OBSERVED["box"])[0]
    old = policy(OBSERVED["box"], ACTED["box"])
    new = policy(OBSERVED["box"], ACTED["box"], NETWORKS["trunk"])
    if older:
        old.save(tmp_path)
    with monkeypatch.context() as patched:
        steps = iter(range(4))
        for name in ("write_bytes", "replace"):
            patched.setattr(Path, name, killed_at(step, steps, getattr(Path, name)))
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path)
    if older and step < 2:
        np.testing.assert_array_equal(ControlPolicy.load(tmp_path).act(one), old.act(one))
    else:
        with pytest.raises(
            ArtifactError, match="is not the one" if older else f"has no {MANIFEST}.*not written to its"
        ):
            ControlPolicy.load(tmp_path)
    new.save(tmp_path)
    np.testing.assert_array_equal(ControlPolicy.load(tmp_path).act(one), new.act(one))


def killed_at(step: int, steps: Iterator[int], method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which in its last moment has half done what it does."""

    def dying(self: Path, *given: Any) -> Any:
        if next(steps) == step:
            if isinstance(given[0], bytes):
                method(self, given[0][: len(given[0]) // 2])
            raise KeyboardInterrupt
        return method(self, *given)

    return dying


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    policy(OBSERVED["box"], ACTED["box"]).save(tmp_path / "policy")
    return tmp_path / "policy"


def rewrite(folder: Path, tensors: dict[str, Tensor] | None = None, **changes: Any) -> None:
    """A manifest of another version of LoomRL."""
    if tensors is not None:
        packed = safetensors.torch.save(tensors)
        (folder / TENSORS).write_bytes(packed)
        changes["sha256"] = hashlib.sha256(packed).hexdigest()
    told = json.loads((folder / MANIFEST).read_bytes()) | changes
    (folder / MANIFEST).write_text(json.dumps(told))


def test_a_folder_says_in_json_what_it_holds(folder: Path) -> None:
    told = json.loads((folder / MANIFEST).read_bytes())
    assert told["format"] == 1
    assert told["network"]["hidden"] == [8, 8]
    assert told["normalize"] is True
    assert told["action_space"] == {"kind": "Box", "shape": [2], "dtype": "float32", "low": -1.0, "high": 1.0}
    assert told["sizes"] == {"seen": [6], "inputs": 4, "actions": 2, "state": 0}
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, TENSORS]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("log_std", None, "tensor 'log_std' is missing"),
        ("normalizer.mean", None, "tensor 'normalizer.mean' is missing"),
        ("log_stds", torch.zeros(2), "tensor 'log_stds' is one too many"),
        ("log_std", torch.zeros(3), r"'log_std' has shape \(3,\) of torch.float32, not \(2,\)"),
        ("log_std", torch.zeros(2, dtype=torch.float64), "torch.float64, not"),
    ],
)
def test_other_tensors_than_the_network_has_are_named(
    folder: Path, name: str, change: Tensor | None, words: str
) -> None:
    tensors = safetensors.torch.load_file(folder / TENSORS)
    tensors.pop(name, None)
    rewrite(folder, tensors | ({} if change is None else {name: change}))
    with pytest.raises(ArtifactError, match=f"{words}.*Export it again"):
        ControlPolicy.load(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format=2, and this LoomRL reads 1: use the LoomRL that wrote it"),
        ({"format": None}, "format=None"),
        ({"network": {"hiden": [8]}}, r"hiden.*Did you mean 'hidden'"),
        ({"action_space": {"kind": "Boxes"}}, "Did you mean 'Box'"),
        ({"observation_space": {"kind": "MultiBinary", "n": 5}}, "from its spaces follows"),
    ],
)
def test_json_that_describes_something_else_is_named(folder: Path, changes: dict[str, Any], words: str) -> None:
    rewrite(folder, **changes)
    with pytest.raises(ArtifactError, match=words):
        ControlPolicy.load(folder)


@pytest.mark.parametrize("name", [MANIFEST, TENSORS])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_folder_is_refused(folder: Path, name: str, damage: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if damage == "cut":
        (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ArtifactError, match=f"{name}.*copy the whole folder again"):
        ControlPolicy.load(folder)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"file.*Choose a folder that can be written"):
        policy(OBSERVED["box"], ACTED["box"]).save(tmp_path / "file")


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Network(hidden=(8,)), r"tensor 'critic.2.bias' has shape \(8,\)"),
        (Network(hidden=(8, 8), activation="relu"), "its layers are others"),
    ],
)
def test_settings_of_another_network_are_refused_before_they_are_saved(network: Network, words: str) -> None:
    made = policy(OBSERVED["box"], ACTED["box"])
    with pytest.raises(ConfigError, match=words):
        ControlPolicy(made.net, made.observation_space, made.action_space, network)


# -- ONNX -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "network", "acted"),
    [
        ("dict", "towers", "discrete"),
        ("box", "trunk", "multi_discrete"),
        ("picture", "linear", "multi_binary"),
        ("dict", "trunk", "box"),
    ],
)
def test_onnx_says_what_the_network_says(observed: str, acted: str, network: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'loomrl[onnx]'")
    from onnx.reference import ReferenceEvaluator

    made = policy(OBSERVED[observed], ACTED[acted], NETWORKS[network])
    made.to_onnx(tmp_path / "policy.onnx")
    batch = together(OBSERVED[observed], some(OBSERVED[observed]))
    model = onnx.load(tmp_path / "policy.onnx")
    flat = flatten(OBSERVED[observed])(batch)
    inputs, actions = ReferenceEvaluator(model).run(None, {"seen": flat})
    with torch.inference_mode():
        expected = made.net.decide(made.net.features(torch.from_numpy(flat)), torch.from_numpy(flat)).numpy()
    np.testing.assert_allclose(inputs, expected, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(expected).max()))
    taken = translator(acts(ACTED[acted]))(actions)
    np.testing.assert_allclose(taken, made.act_batch(batch), rtol=1e-4, atol=1e-5)
    (about,) = model.metadata_props
    made.save(tmp_path / "folder")
    told = json.loads((tmp_path / "folder" / MANIFEST).read_bytes())
    assert about.key == "loomrl"
    assert json.loads(about.value) == {name: value for name, value in told.items() if name != "sha256"}


def test_a_squashed_policy_is_stretched_to_the_bounds_and_has_no_value(tmp_path: Path) -> None:
    observed = OBSERVED["box"]
    acted = spaces.Box(np.array([-3, 10], np.float32), np.array([-1, 50], np.float32))
    network = Network()
    net = Actor(seen(observed), acts(acted), network, normalize=False, squashed=True)
    ControlPolicy(net, observed, acted, network).save(tmp_path)
    loaded = ControlPolicy.load(tmp_path)
    drawn = loaded.act_batch(together(observed, some(observed)), explore=True, generator=seeded(1))
    assert (drawn >= acted.low).all()
    assert (drawn <= acted.high).all()
    assert (np.ptp(drawn, axis=0) > [0.5, 10]).all()
    with pytest.raises(ConfigError, match="no value function"):
        loaded.value(observed.sample())


def test_without_onnx_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[onnx\]'"):
        policy(OBSERVED["box"], ACTED["box"]).to_onnx(tmp_path / "policy.onnx")
