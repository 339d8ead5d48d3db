"""Networks: two critics that are computed as one are two, and begin as their settings say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

from loomrl.config.control import Attention, Frames, Network, Recurrent
from loomrl.control.memory import History, open_memory
from loomrl.control.network import Actor, ActorCritic, Pixels, Twins, tower
from loomrl.control.play import play
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import ActionView, ObservationView, acts, seen
from loomrl.errors import ConfigError
from tests.algorithms.control_envs import Small


@pytest.mark.parametrize("layer_norm", [False, True])
def test_twins_say_what_two_towers_say(layer_norm: bool) -> None:
    network = Network(hidden=(8, 6), activation="relu", layer_norm=layer_norm)
    twins = Twins(3, 2, network)
    inputs = torch.randn(5, 3)
    with torch.no_grad():
        for parameter in twins.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for index, said in enumerate(twins(inputs)):
            torch.testing.assert_close(said, alone(twins, index, network)(inputs))


def alone(twins: Twins, index: int, network: Network) -> nn.Sequential:
    """One of the two as a tower."""
    single = tower(3, 2, network, gain=1.0)
    linear = [layer for layer in single if isinstance(layer, nn.Linear)]
    for layer, weight, bias in zip(linear, twins.weights, twins.biases, strict=True):
        layer.weight.copy_(weight[index].T)
        layer.bias.copy_(bias[index, 0])
    normal = [layer for layer in single if isinstance(layer, nn.LayerNorm)]
    for norm, gain, shift in zip(normal, twins.gains, twins.shifts, strict=True):
        norm.weight.copy_(gain[index, 0])
        norm.bias.copy_(shift[index, 0])
    return single


def test_orthogonal_critics_begin_orthogonal_and_different() -> None:
    first = Twins(4, 1, Network(hidden=(8,), orthogonal=True)).weights[0]
    for weight in first:
        torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(4))
    assert not torch.equal(first[0], first[1])
    plain = Twins(4, 1, Network(hidden=(8,), orthogonal=False)).weights[0][0]
    assert not torch.allclose(plain @ plain.T, 2 * torch.eye(4))


@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 12, 14)])
def test_channels_may_be_the_first_axis(shape: tuple[int, ...]) -> None:
    first = Pixels(shape, width=32)
    last = Pixels((*shape[1:], shape[0]), width=32)
    last.load_state_dict(first.state_dict())
    pictures_BCHW = torch.randint(256, (5, *shape), dtype=torch.uint8)
    features_BF = first(pictures_BCHW)
    assert features_BF.shape == (5, 32)
    torch.testing.assert_close(features_BF, last(pictures_BCHW.permute(0, 2, 3, 1)))


def test_the_features_of_a_picture_are_a_setting_and_of_nothing_else() -> None:
    seen = ObservationView("pixels", (12, 12, 1))
    acts = ActionView("discrete", (4,))
    assert Actor(seen, acts, Network(), normalize=False).size == 256
    assert Actor(seen, acts, Network(features=17), normalize=False).size == 17
    with pytest.raises(ConfigError, match=r"network\.features=17 is of pictures, and these observations are 3 numbers"):
        Actor(ObservationView("numbers", (3,)), acts, Network(features=17), normalize=False)


KINDS: dict[str, Any] = {
    "gru": Recurrent(size=8),
    "lstm": Recurrent(kind="lstm", size=8),
    "frames": Frames(count=3),
    "attention": Attention(window=4, size=8, heads=2),
}
SEEN = spaces.Box(-1, 1, (3,))
ACTED = spaces.Discrete(5)
BEGINS = ((), (1,), (4, 5), (9,), (2, 4, 6, 8))
"""Where episodes begin in each of five sequences of ten steps."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_sequence_at_once_is_its_steps_one_by_one(kind: str, goes_on: bool) -> None:
    torch.manual_seed(1)
    memory = open_memory(KINDS[kind], 3)
    shown_TBF = torch.randn(10, len(BEGINS), 3)
    state_BS = torch.zeros(len(BEGINS), memory.state)
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
        if goes_on:
            for _ in range(3):
                _, state_BS = memory.step(torch.randn(len(BEGINS), 3), state_BS)
        begins_TB = torch.zeros(shown_TBF.shape[:2], dtype=torch.bool)
        for episode, places in enumerate(BEGINS):
            begins_TB[list(places), episode] = True
        at_once = memory.unroll(shown_TBF, History(state_BS, begins_TB))
        assert at_once.shape[-1] == memory.size
        for step, begins_B in enumerate(begins_TB):
            state_BS = state_BS.masked_fill(begins_B[:, None], 0.0)
            added, state_BS = memory.step(shown_TBF[step], state_BS)
            torch.testing.assert_close(added, at_once[step])
    assert (at_once[0, 0] != 0).any() or kind == "frames"


def test_attention_looks_at_its_window_and_nothing_before_it() -> None:
    memory = open_memory(KINDS["attention"], 3)
    torch.nn.init.normal_(memory.get_parameter("distance"))
    begins_TB = torch.zeros(10, 1, dtype=torch.bool)
    history = History(torch.zeros(1, memory.state), begins_TB)
    one = torch.randn(10, 1, 3)
    other = one.clone()
    other[2] += 1.0
    differs = (memory.unroll(one, history) != memory.unroll(other, history)).any(-1)[:, 0]
    assert differs.tolist() == [2 <= step < 6 for step in range(10)]


def recalling(kind: str | None = "gru", observed: Any = SEEN) -> ControlPolicy:
    """With weights and statistics that are not those of the beginning."""
    network = Network(hidden=(8,), memory=None if kind is None else KINDS[kind])
    chance = torch.Generator().manual_seed(3)
    net = ActorCritic(seen(observed), acts(ACTED), network, normalize=True)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=chance))
    assert net.normalizer is not None
    net.normalizer.observe(7.0, torch.rand(3, generator=chance), torch.rand(3, generator=chance))
    return ControlPolicy(net, observed, ACTED, network)


def shown(steps: int, count: int) -> Any:
    return np.random.default_rng(5).normal(size=(steps, count, 3)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_policy_goes_on_where_the_saved_one_was(kind: str, tmp_path: Path) -> None:
    saved = recalling(kind)
    saved.save(tmp_path)
    loaded = ControlPolicy.load(tmp_path)
    state = saved.state(4)
    assert state is not None
    taken = []
    for observations in shown(6, 4):
        other = state.copy()
        expected = [saved.value(one, state=each(state, row)) for row, one in enumerate(observations)]
        taken.append(saved.act_batch(observations, state=state))
        np.testing.assert_array_equal(loaded.act_batch(observations, state=other), taken[-1])
        np.testing.assert_array_equal(other.numbers_BS, state.numbers_BS)
        assert len(set(expected)) == 4
    forgetful = [saved.act_batch(observations, state=saved.state(4)) for observations in shown(6, 4)]
    assert (np.stack(taken) != np.stack(forgetful)).any()


def each(state: Any, row: int) -> Any:
    one = state.copy()
    one.numbers_BS = one.numbers_BS[row : row + 1]
    return one


@pytest.mark.parametrize("kind", KINDS)
def test_one_episode_is_a_row_of_many(kind: str) -> None:
    policy = recalling(kind)
    state = policy.state()
    many = policy.state(4)
    for observations in shown(6, 4):
        together = policy.act_batch(observations, state=many)
        assert policy.act(observations[2], state=state) == together[2]


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_takes_the_state_and_gives_the_next(kind: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'loomrl[onnx]'")
    from onnx.reference import ReferenceEvaluator

    policy = recalling(kind)
    policy.to_onnx(tmp_path / "policy.onnx")
    model = ReferenceEvaluator(onnx.load(tmp_path / "policy.onnx"))
    state = policy.state(5)
    assert state is not None
    numbers = np.zeros_like(state.numbers_BS)
    for observations in shown(6, 5):
        _, actions, numbers = model.run(None, {"seen": observations, "state": numbers})
        np.testing.assert_array_equal(actions, policy.act_batch(observations, state=state))
        np.testing.assert_allclose(numbers, state.numbers_BS, atol=1e-5)


def test_an_explored_step_changes_the_state_like_any_other() -> None:
    policy = recalling()
    one = policy.state(4)
    other = policy.state(4)
    (observations,) = shown(1, 4)
    assert one is not None
    assert other is not None
    policy.sample_batch(observations, state=one)
    policy.act_batch(observations, state=other)
    np.testing.assert_array_equal(one.numbers_BS, other.numbers_BS)
    assert one.numbers_BS.all()


def test_a_state_that_is_missing_or_another_is_named() -> None:
    policy = recalling()
    plain = recalling(None)
    (observations,) = shown(1, 4)
    with pytest.raises(ConfigError, match=r"has a memory: say act\(observation, state=state\)"):
        policy.act(observations[0])
    with pytest.raises(ConfigError, match=r"state has shape \(3, 8\), and \(4, 8\) is needed"):
        policy.act_batch(observations, state=policy.state(3))
    with pytest.raises(ConfigError, match=r"shape \(4, 16\), and \(4, 8\) is needed"):
        policy.act_batch(observations, state=recalling("lstm").state(4))
    assert plain.state() is None
    with pytest.raises(ConfigError, match="has no memory"):
        plain.act(observations[0], state=policy.state())


class Told(Small):
    """Shows the same in every episode, and pays the action: episodes differ only by what is remembered."""

    observation_space = SEEN
    action_space = ACTED

    def _show(self) -> Any:
        return shown(9, 1)[self._taken, 0].clip(-1, 1)

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        return float(action) * 10.0**self._taken, {}


def test_an_evaluation_begins_every_episode_without_a_memory_of_others() -> None:
    policy = recalling()
    returns, lengths, *_ = play(
        policy, SyncVectorEnv([lambda: Told(6)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP), 6, seed=0
    )
    state = policy.state()
    expected = 0.0
    for step in range(6):
        expected += float(policy.act(shown(9, 1)[step, 0].clip(-1, 1), state=state)) * 10.0**step
    assert returns == [expected] * 6
    assert lengths == [6] * 6
