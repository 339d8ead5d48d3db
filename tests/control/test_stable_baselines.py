"""Policies of Stable-Baselines3, with the real one: what is taken over, or handed over, acts as before."""

import io
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from typer.testing import CliRunner

from loomrl.config.control import Attention, Network
from loomrl.control.network import Actor, ActorCritic
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.control.stable_baselines import STATISTICS, ZIP, read, write
from loomrl.errors import ArtifactError, ConfigError

sb3 = pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install 'loomrl[sb3]'")
OBSERVED = spaces.Box(-2, 2, (3,), np.float32)
ACTED: dict[str, Any] = {
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-1, -3], np.float32), np.array([1, 5], np.float32)),
}


@pytest.fixture(autouse=True)
def _theirs_finds_no_gym_and_draws_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/gym` is none: they say which Gym is installed."""
    monkeypatch.setitem(sys.modules, "gym", None)
    torch.manual_seed(1)


class Place(gymnasium.Env[Any, Any]):
    def __init__(self, action_space: Any, observation_space: Any = OBSERVED) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def moved(model: Any) -> Any:
    """With weights that are none of the first ones, which are nearly alike for all actions."""
    with torch.no_grad():
        for tensor in model.policy.parameters():
            tensor.add_(torch.randn_like(tensor) * (1.0 if tensor.ndim > 1 else 0.1))
    return model


def save(model: Any, file: Path) -> None:
    with file.open("wb") as packed:  # given a name, they leave the file open
        model.save(packed)


def observations() -> Any:
    return np.random.default_rng(1).uniform(-2, 2, (200, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("algorithm", "kind", "hidden"),
    [
        ("PPO", "discrete", []),
        ("A2C", "multi_discrete", [8]),
        ("PPO", "multi_binary", [16, 5]),
        ("A2C", "box", [16, 5]),
        ("PPO", "box", []),
    ],
)
def test_an_actor_critic_of_theirs_acts_and_values_as_before(
    tmp_path: Path, algorithm: str, kind: str, hidden: list[int]
) -> None:
    theirs = moved(getattr(sb3, algorithm)("MlpPolicy", Place(ACTED[kind]), policy_kwargs={"net_arch": hidden}))
    save(theirs, tmp_path / "theirs.zip")
    ours = read(tmp_path / "theirs.zip", OBSERVED, ACTED[kind])
    assert_alike(ours, theirs)
    values = theirs.policy.predict_values(torch.from_numpy(observations()))[:, 0].tolist()
    assert [ours.value(one) for one in observations()] == pytest.approx(values, rel=1e-5, abs=1e-5)
    _, logprobs = ours.sample_batch(observations())
    if kind != "box":
        assert np.isfinite(logprobs).all()


@pytest.mark.parametrize("activation", ["Tanh", "SiLU"])
def test_sac_of_theirs_acts_as_before(tmp_path: Path, activation: str) -> None:
    words = {"net_arch": [16, 16], "activation_fn": getattr(torch.nn, activation)}
    theirs = moved(sb3.SAC("MlpPolicy", Place(ACTED["box"]), policy_kwargs=words))
    save(theirs, tmp_path / "theirs.zip")
    ours = read(tmp_path / "theirs.zip", OBSERVED, ACTED["box"])
    assert_alike(ours, theirs)
    with torch.no_grad():
        mean, log_std, _ = theirs.actor.get_action_dist_params(torch.from_numpy(observations()))
        got = ours.net.distribution._parts(ours.net.decide(ours.net.features(torch.from_numpy(observations())), None))
    torch.testing.assert_close(got, (mean, log_std))


@pytest.mark.parametrize("kind", [*ACTED, "squashed"])
@pytest.mark.parametrize("normalize", [False, True])
def test_ours_acts_as_before_in_theirs(tmp_path: Path, kind: str, normalize: bool) -> None:
    squashed = kind == "squashed"
    space = ACTED["box" if squashed else kind]
    network = Network(hidden=(16, 5), activation="relu")
    views = seen(OBSERVED), acts(space), network
    net = Actor(*views, normalize=normalize, squashed=True) if squashed else ActorCritic(*views, normalize=normalize)
    with torch.no_grad():
        for tensor in net.parameters():
            tensor.add_(torch.randn_like(tensor) * (1.0 if tensor.ndim > 1 else 0.1))
    if net.normalizer is not None:
        net.normalizer.observe(100, torch.tensor([1.0, -1.0, 0.5]), torch.tensor([4.0, 0.5, 0.03]))
    ours = ControlPolicy(net, OBSERVED, space, network)
    write(ours, tmp_path)
    theirs = (sb3.SAC if squashed else sb3.PPO).load(tmp_path / ZIP, device="cpu")
    assert (tmp_path / STATISTICS).exists() == normalize
    numbers = observations()
    if normalize:
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

        statistics = VecNormalize.load(str(tmp_path / STATISTICS), DummyVecEnv([lambda: Place(space)]))
        assert not statistics.training
        numbers = statistics.normalize_obs(numbers)
    assert_alike(ours, theirs, theirs_see=numbers)
    if not normalize:
        again = read(tmp_path / ZIP, OBSERVED, space)
        assert all(torch.equal(again.net.state_dict()[name], tensor) for name, tensor in net.state_dict().items())


def assert_alike(ours: ControlPolicy, theirs: Any, *, theirs_see: Any = None) -> None:
    numbers = observations()
    expected, _ = theirs.predict(numbers if theirs_see is None else theirs_see, deterministic=True)
    got = ours.act_batch(numbers)
    assert len({str(action) for action in got}) > 1, "policies that always do the same show nothing"
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sb3.DQN("MlpPolicy", Place(ACTED["discrete"])), "none of PPO, A2C or SAC"),
        (lambda: sb3.PPO("MlpPolicy", Place(ACTED["box"]), use_sde=True), "gSDE"),
        (
            lambda: sb3.PPO("MlpPolicy", Place(ACTED["box"]), policy_kwargs={"net_arch": {"pi": [8], "vf": [9]}}),
            "ours are alike",
        ),
        (
            lambda: sb3.PPO("MlpPolicy", Place(ACTED["box"]), policy_kwargs={"activation_fn": torch.nn.ELU}),
            "its activation is .*ELU",
        ),
        (lambda: sb3.PPO("MlpPolicy", Place(ACTED["discrete"])), r"action_net|policy.4.weight is \(4, 64\)"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_by_name(tmp_path: Path, make: Any, said: str) -> None:
    save(make(), tmp_path / "theirs.zip")
    with pytest.raises(ArtifactError, match=said):
        read(tmp_path / "theirs.zip", OBSERVED, ACTED["box"])


def test_what_is_pickled_in_a_file_is_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    save(sb3.PPO("MlpPolicy", Place(ACTED["box"])), tmp_path / "theirs.zip")
    with zipfile.ZipFile(tmp_path / "theirs.zip") as whole:
        told = whole.read("data")
    torch.save({"action_net.weight": Trap()}, tmp_path / "policy.pth")
    with zipfile.ZipFile(tmp_path / "trap.zip", "w") as trap:
        trap.writestr("data", told)
        trap.write(tmp_path / "policy.pth", "policy.pth")
    with pytest.raises(ArtifactError, match="cannot be read"):
        read(tmp_path / "trap.zip", OBSERVED, ACTED["box"])
    assert not (tmp_path / "sprung").exists()


def packed(file: Path, *, data: bytes = b"{}", weights: bytes = b"", **how: Any) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("data", data, **how)
        made.writestr("policy.pth", weights, **how)
    return file


def saved(tensors: dict[str, torch.Tensor]) -> bytes:
    made = io.BytesIO()
    torch.save(tensors, made)
    return made.getvalue()


def memory_mb(work: Callable[[], Any]) -> float:
    """The most that is held at a time while this is refused."""
    tracemalloc.start()
    with pytest.raises(ArtifactError):
        work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 2**20


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = packed(tmp_path / "bomb.zip", data=b" " * (64 << 20))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(ArtifactError, match=r"data unpacks from 65,\d+ bytes to 67,108,864"):
        read(bomb, OBSERVED, ACTED["box"])
    with pytest.raises(ArtifactError, match=r"unpacked it has 64 MB, and at most 10 are read.*--most-mb 65"):
        read(bomb, OBSERVED, ACTED["box"], most_mb=10)
    assert memory_mb(lambda: read(bomb, OBSERVED, ACTED["box"])) < 8


def test_a_file_that_announces_less_than_it_unpacks_to_is_not_unpacked(tmp_path: Path) -> None:
    bomb = packed(tmp_path / "bomb.zip", data=b" " * (64 << 20))
    size = (64 << 20).to_bytes(4, "little")
    lie = (1000).to_bytes(4, "little")
    bomb.write_bytes(bomb.read_bytes().replace(size, lie))
    with pytest.raises(ArtifactError, match="cannot be read: Bad CRC"):
        read(bomb, OBSERVED, ACTED["box"])
    assert memory_mb(lambda: read(bomb, OBSERVED, ACTED["box"])) < 8


def test_tensors_that_are_packed_once_more_are_refused(tmp_path: Path) -> None:
    inner = io.BytesIO()
    plain = zipfile.ZipFile(io.BytesIO(saved({"x": torch.zeros(4 << 20)})))
    with plain, zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as deflated:
        for name in plain.namelist():
            deflated.writestr(name, plain.read(name))
    file = packed(tmp_path / "bomb.zip", weights=inner.getvalue())
    with pytest.raises(ArtifactError, match="packed once more"):
        read(file, OBSERVED, ACTED["box"])


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (lambda: torch.zeros(1).expand(10**12), "larger than what is stored"),
        (lambda: torch.zeros(10**9, 0), "of other spaces"),
        (lambda: torch.zeros(2 * 10**5, 1), "of other spaces"),
    ],
    ids=["repeated", "empty", "wide"],
)
def test_shapes_that_would_need_more_memory_than_the_file_are_refused(
    tmp_path: Path, weight: Callable[[], torch.Tensor], said: str
) -> None:
    towers = ("mlp_extractor.policy_net", "mlp_extractor.value_net")
    tensors = {f"{tower}.{layer}.weight": weight() for tower in towers for layer in (0, 2)}
    tensors |= {name.replace("weight", "bias"): torch.zeros(1) for name in tensors}
    tensors |= {f"{head}.{part}": torch.zeros(1) for head in ("action_net", "value_net") for part in ("weight", "bias")}
    file = packed(tmp_path / "wide.zip", weights=saved(tensors), compress_type=zipfile.ZIP_STORED)
    with pytest.raises(ArtifactError, match=said):
        read(file, OBSERVED, ACTED["box"])


@pytest.mark.parametrize("content", [b"", b"no zip file"])
def test_a_file_that_is_none_of_theirs_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(ArtifactError, match="cannot be read"):
        read(tmp_path / "x.zip", OBSERVED, ACTED["box"])


def test_a_policy_that_an_mlp_policy_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    network = Network(layer_norm=True, memory=Attention(window=4, size=8, heads=2))
    net = ActorCritic(seen(OBSERVED), acts(ACTED["box"]), network, normalize=False)
    with pytest.raises(ConfigError, match="a memory and layer normalisation"):
        write(ControlPolicy(net, OBSERVED, ACTED["box"], network), tmp_path)


def test_the_command_takes_over_a_policy_that_is_then_evaluated(tmp_path: Path) -> None:
    from loomrl.experiments.cli import app

    theirs = moved(sb3.PPO("MlpPolicy", "CartPole-v1"))
    save(theirs, tmp_path / "theirs.zip")
    words = ["policies", "import", str(tmp_path / "theirs.zip"), str(tmp_path / "ours"), "--environment", "CartPole-v1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    place = gymnasium.make("CartPole-v1")
    place.observation_space.seed(1)
    numbers = np.stack([np.clip(place.observation_space.sample(), -3, 3) for _ in range(100)])
    ours = ControlPolicy.load(tmp_path / "ours")
    np.testing.assert_array_equal(ours.act_batch(numbers), theirs.predict(numbers, deterministic=True)[0])
    again = CliRunner().invoke(app, words)
    assert again.exit_code != 0
