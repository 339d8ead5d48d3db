"""Action masks: probability exactly 0 for what is forbidden, and torch's numbers for the rest."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor
from torch.distributions import Categorical

from loomrl.config import CustomEnvironment, GymnasiumEnvironment, LoggedData
from loomrl.config.control import Attention, Frames, Network, Recurrent
from loomrl.control.environment import open_environment, open_environments
from loomrl.control.logged import write_minari
from loomrl.control.mask import InfoMask, mask_in
from loomrl.control.network import Actor, ActorCritic
from loomrl.control.play import RandomPolicy, play
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, flatten, seen
from loomrl.control.weave import Threads, Ways, WeaveNet
from loomrl.errors import ConfigError, DataError, EpisodeError
from loomrl.feedback.logged import read_logged
from tests.algorithms.control_envs import Picky
from tests.control.logged_support import minari_folder, recorded

__all__ = ["minari_folder"]

ACTED: dict[str, Any] = {"discrete": spaces.Discrete(5), "multi_discrete": spaces.MultiDiscrete([2, 3])}
MASKS_NX = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [1, 0, 0, 1, 0]], np.int8)
MEMORIES: dict[str, Any] = {
    "none": None,
    "gru": Recurrent(size=8),
    "lstm": Recurrent(kind="lstm", size=8),
    "frames": Frames(count=3),
    "attention": Attention(window=4, size=8, heads=2),
}
KINDS = ("discrete", "multi_discrete")
BOTH = [(KINDS[at % 2], memory) for at, memory in enumerate((*MEMORIES, "none"))]


def observed(choices: int = 5) -> spaces.Dict:
    return spaces.Dict({"observation": spaces.Box(-1, 1, (3,)), "action_mask": spaces.MultiBinary(choices)})


def shown(masks_NX: Any = MASKS_NX) -> dict[str, Any]:
    numbers = np.random.default_rng(1).uniform(-1, 1, (len(masks_NX), 3)).astype(np.float32)
    return {"observation": numbers, "action_mask": masks_NX}


def flat(masks_NX: Any = MASKS_NX) -> Tensor:
    return torch.from_numpy(flatten(observed())(shown(masks_NX)))


def net(kind: str, network: Network | None = None, threads: Threads | None = None) -> Any:
    torch.manual_seed(2)
    made: tuple[Any, ...] = seen(observed()), acts(ACTED[kind]), network or Network(hidden=(8,), orthogonal=False)
    if threads is not None:
        return WeaveNet(*made, threads, normalize=True)
    return ActorCritic(*made, normalize=True)


def policy(kind: str, network: Network | None = None) -> ControlPolicy:
    network = network or Network(hidden=(8,), orthogonal=False)
    return ControlPolicy(net(kind, network), observed(), ACTED[kind], network)


def parts(kind: str, numbers: Any) -> Any:
    return [numbers] if kind == "discrete" else np.split(numbers, [2], -1)


def every_action(kind: str) -> Tensor:
    return torch.arange(5) if kind == "discrete" else torch.cartesian_prod(torch.arange(2), torch.arange(3))


def is_allowed(kind: str, mask_X: Any, action: Any) -> bool:
    return all(part[one] for part, one in zip(parts(kind, mask_X), np.ravel(action), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_torch_over_the_allowed_choices(kind: str) -> None:
    made = net(kind)
    free = made.policy(made.features(flat()))
    inputs = made.decide(made.features(flat()), flat())
    entropy = made.distribution.entropy(inputs)
    for n, mask_X in enumerate(MASKS_NX):
        each = [
            Categorical(logits=free[n][torch.from_numpy(place)])
            for place in np.split(np.arange(5), [2] if kind == "multi_discrete" else [])
            for place in [place[mask_X[place] > 0]]
        ]
        torch.testing.assert_close(entropy[n], torch.stack([one.entropy() for one in each]).sum())
        for action in every_action(kind):
            found = made.distribution.logp(inputs[n : n + 1], action[None])[0]
            if not is_allowed(kind, mask_X, action):
                assert found.exp() == 0
                continue
            places = [int(part[:one].sum()) for part, one in zip(parts(kind, mask_X), np.ravel(action), strict=True)]
            right = [one.log_prob(torch.tensor(place)) for one, place in zip(each, places, strict=True)]
            torch.testing.assert_close(found, torch.stack(right).sum())


@pytest.mark.parametrize("experts", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_reaches_a_forbidden_choice(kind: str, experts: int | None) -> None:
    threads = None if experts is None else Threads(experts=experts, epsilons=(0.0, 0.1, 0.2))
    made = net(kind, threads=threads)
    free = made.policy(made.features(flat())).detach().requires_grad_(True)
    inputs = made.block(free, flat())
    actions = torch.stack(
        [next(one for one in every_action(kind) if is_allowed(kind, mask_X, one)) for mask_X in MASKS_NX]
    )
    distribution = made.distribution
    loss = distribution.logp(inputs, actions).sum() + distribution.entropy(inputs).sum()
    loss = loss + distribution.kl(inputs, inputs.detach()).sum()
    (gradient,) = torch.autograd.grad(loss, free)
    assert torch.isfinite(gradient).all()
    per_expert = gradient[:, (experts or 0) :].unflatten(1, (experts or 1, 5))
    blocked = torch.from_numpy(MASKS_NX == 0)[:, None].expand_as(per_expert)
    assert not per_expert[blocked].any()
    assert per_expert[~blocked].any()


@pytest.mark.parametrize("ways", [Ways(), Ways(epsilons=(0.0, 0.3, 0.5)), Ways(temperatures=(0.5, 1.0, 2.0))])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_is_exact_over_the_allowed_choices(kind: str, ways: Ways) -> None:
    threads = Threads(experts=3, temperatures=ways.temperatures, epsilons=ways.epsilons)
    made = net(kind, threads=threads)
    actions = every_action(kind)
    with torch.no_grad():
        inputs = made.decide(made.features(flat()), flat())
        for n, mask_X in enumerate(MASKS_NX):
            row = inputs[n : n + 1].expand(len(actions), -1)
            probability = made.distribution.logp(row, actions).exp()
            allowed = torch.tensor([is_allowed(kind, mask_X, action) for action in actions])
            assert not probability[~allowed].any()
            torch.testing.assert_close(probability.sum(), torch.tensor(1.0))
            many = row[:1].expand(20_000, -1)
            noise = made.distribution.noise(20_000, generator=torch.Generator().manual_seed(3))
            drawn = made.distribution.sample(many, noise)
            share = torch.stack([(drawn == action).reshape(20_000, -1).all(1).float().mean() for action in actions])
            assert not share[~allowed].any()
            torch.testing.assert_close(share, probability, atol=0.02, rtol=0)
            assert is_allowed(kind, mask_X, made.distribution.mode(row[:1])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_random_actions_are_even_among_the_allowed(kind: str) -> None:
    mask = mask_in(observed(), ACTED[kind])
    assert mask is not None
    drawn = mask.draw(np.repeat(flat().numpy(), 3_000, 0), np.random.default_rng(1)).reshape(4, 3_000, -1)
    for mask_X, actions in zip(MASKS_NX, drawn, strict=True):
        found, counts = np.unique(actions, axis=0, return_counts=True)
        assert len(found) == sum(is_allowed(kind, mask_X, action) for action in every_action(kind))
        assert all(is_allowed(kind, mask_X, action) for action in found)
        assert counts.min() > 0.7 * counts.max()


@pytest.mark.parametrize(("kind", "memory"), BOTH)
def test_a_policy_on_disk_acts_by_the_mask(kind: str, memory: str, tmp_path: Path) -> None:
    policy(kind, Network(hidden=(8,), memory=MEMORIES[memory])).save(tmp_path)
    loaded = ControlPolicy.load(tmp_path)
    generator = torch.Generator().manual_seed(1)
    state = loaded.state(4)
    for turn in range(40):
        masks = MASKS_NX[:, ::-1] if kind == "discrete" and turn % 2 else MASKS_NX
        actions, logprobs = loaded.sample_batch(shown(masks), state=state, generator=generator)
        greedy = loaded.act_batch(shown(masks), state=None if state is None else state.copy())
        for mask_X, one, other in zip(masks, actions, greedy, strict=True):
            assert is_allowed(kind, mask_X, one)
            assert is_allowed(kind, mask_X, other)
        assert (logprobs > -20).all()


def test_chances_of_forbidden_choices_are_exactly_zero() -> None:
    for greedy in (False, True):
        chances = policy("discrete").chances(flat().numpy(), greedy=greedy)
        assert not chances[MASKS_NX == 0].any()
        np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize(("kind", "memory"), BOTH)
def test_onnx_says_what_the_network_says(kind: str, memory: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'loomrl[onnx]'")
    from onnx.reference import ReferenceEvaluator

    made = policy(kind, Network(hidden=(8,), orthogonal=False, memory=MEMORIES[memory]))
    made.to_onnx(tmp_path / "policy.onnx")
    given = {"seen": flat().numpy()}
    state = made.state(4)
    if state is not None:
        given["state"] = state.numbers_BS
    inputs, actions, *_ = ReferenceEvaluator(onnx.load(tmp_path / "policy.onnx")).run(None, given)
    np.testing.assert_array_equal(actions, made.act_batch(shown(), state=state))
    np.testing.assert_array_equal(inputs < -1e29, MASKS_NX == 0)


def test_a_mask_that_allows_nothing_is_refused_where_it_is_decided() -> None:
    nobody = MASKS_NX * np.array([[1], [0], [1], [1]], np.int8)
    with pytest.raises(ConfigError, match="the action_mask of observation 1 allows no action"):
        policy("discrete").refuse_stuck(shown(nobody))
    with pytest.raises(ConfigError, match="allows no action"):
        policy("discrete").act({"observation": np.zeros(3, np.float32), "action_mask": nobody[1]})
    half = np.array([[0, 0, 1, 1, 1]], np.int8)
    with pytest.raises(ConfigError, match="observation 0 allows no action"):
        policy("multi_discrete").refuse_stuck(shown(half))
    assert np.isfinite(policy("discrete").sample_batch(shown(nobody))[1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_random_episodes_obey_masks_and_may_end_with_none(kind: str) -> None:
    environments = SyncVectorEnv([lambda: Picky(kind)] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    returns, lengths, *_ = play(RandomPolicy(), environments, 9, seed=1)
    assert lengths == [8] * 9
    assert min(returns) > 0
    stuck = SyncVectorEnv([lambda: Picky(kind, stuck=3)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    with pytest.raises(EpisodeError, match="SyncVectorEnv: the action_mask before step 3 of place 0 allows nothing"):
        play(RandomPolicy(), stuck, 2, seed=1)


@pytest.mark.parametrize(
    ("space", "acted", "words"),
    [
        (observed(3), spaces.Box(-1, 1, (3,)), r"only choices can be masked \(Discrete, MultiDiscrete\).* are box"),
        (observed(3), spaces.MultiBinary(3), "the actions are multi_binary"),
        (observed(4), spaces.Discrete(5), "has 4 numbers, and the actions have 5 choices"),
        (observed(3), spaces.MultiDiscrete([2, 3]), "has 3 numbers, and the actions have 5 choices"),
        (spaces.Dict(a=observed(), b=observed()), spaces.Discrete(5), "2 parts named 'action_mask': keep one"),
        (spaces.Dict(action_mask=spaces.Box(-1, 1, (5,))), spaces.Discrete(5), "a 0 or 1 for every choice is needed"),
        (spaces.Dict(action_mask=spaces.Discrete(5)), spaces.Discrete(5), "is Discrete.5.: a 0 or 1"),
    ],
    ids=["box", "bits", "size", "parts", "two", "bounds", "choice"],
)
def test_masks_that_do_not_fit_are_refused_by_name(space: Any, acted: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        mask_in(space, acted)
    with pytest.raises(ConfigError, match=words):
        Actor(seen(space), acts(acted), Network(), normalize=False)


def test_parts_of_a_mask_may_be_a_tuple_and_stand_deeper() -> None:
    inner = spaces.Dict(action_mask=spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 1, (3,))]))
    mask = mask_in(spaces.Dict(a=spaces.Discrete(4), b=inner), ACTED["multi_discrete"])
    assert mask is not None
    assert mask.place == slice(4, 9)
    assert mask_in(spaces.Dict(a=spaces.Discrete(4)), ACTED["discrete"]) is None


# -- environments ---------------------------------------------------------------------------------------------------


def test_the_mask_of_an_info_becomes_a_part_of_the_observation() -> None:
    choice = GymnasiumEnvironment(id="Taxi-v3", info_mask=True)
    taxis = open_environments(choice, 3, {})
    one = open_environment(choice, {})
    assert taxis.single_observation_space == one.observation_space
    told, info = one.reset(seed=3)
    np.testing.assert_array_equal(told["action_mask"], info["action_mask"])
    returns, *_ = play(RandomPolicy(), taxis, 3, seed=1)
    assert min(returns) > -300  # a pick-up or a delivery in the wrong place, which costs 10, is never allowed
    taxis.close()


class Silent(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tells its mask at the beginning only, in parts."""

    def reset(self, **settings: Any) -> Any:
        seen, _ = self.env.reset(**settings)
        return seen, {"action_mask": (np.ones(2), [True, False, True])}


class Pair(gymnasium.Env[Any, Any]):
    observation_space = spaces.Discrete(2)
    action_space = spaces.MultiDiscrete([2, 3])

    def __init__(self, over: bool = False) -> None:
        self._over = over

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, self._over, False, {}


def test_a_mask_that_info_lacks_is_an_error_but_for_the_last_step() -> None:
    made = InfoMask(Silent(Pair(over=True)))
    np.testing.assert_array_equal(made.reset()[0]["action_mask"], [1, 1, 1, 0, 1])
    assert not made.step([0, 0])[0]["action_mask"].any()
    running = InfoMask(Silent(Pair()))
    running.reset()
    with pytest.raises(EpisodeError, match=r"there is no action_mask in info .it is empty., and info_mask asks for it"):
        running.step([0, 0])
    with pytest.raises(EpisodeError, match="there is no action_mask in info"):
        InfoMask(Pair()).reset()
    with pytest.raises(ConfigError, match="only choices can be masked"):
        InfoMask(gymnasium.make("Pendulum-v1"))


def test_a_team_shows_its_masks_in_observations() -> None:
    team = CustomEnvironment(entry_point="tests.algorithms.control_envs:PickyTeam", info_mask=True)
    with pytest.raises(ConfigError, match="info_mask is for Gymnasium environments: a ParallelEnv shows every agent"):
        open_environments(team, 2, {})


# -- logs -----------------------------------------------------------------------------------------------------------


def write_log(id: str, *, forbidden: bool) -> Picky:
    env = Picky()
    told, _ = env.reset(seed=1)
    told_all = [told]
    actions = []
    for _ in range(8):
        action = told["asked"]
        told, _, over, *_ = env.step(action)
        told_all.append(told)
        actions.append(action)
    assert over
    if forbidden:
        step = next(t for t in range(8) if not told_all[t]["action_mask"].all())
        actions[step] = 1 + int(told_all[step]["action_mask"].argmin())
    episode = recorded(told_all, actions, [1.0] * 8, terminated=True)
    write_minari(id, [episode], None, env.observation_space, env.action_space, made_by="a test")
    return env


def test_a_log_with_a_forbidden_action_is_refused_by_name(minari_folder: Path) -> None:
    for id, forbidden in (("picky/right-v0", False), ("picky/wrong-v0", True)):
        env = write_log(id, forbidden=forbidden)
        ask: Any = (LoggedData(minari=id), env.observation_space, env.action_space)
        if not forbidden:
            assert len(read_logged(*ask, store_url="sqlite://")) == 1
            continue
        with pytest.raises(
            DataError, match=r"picky/wrong-v0': action \d \(counted from 0\) of step \d in episode 0 is"
        ):
            read_logged(*ask, store_url="sqlite://")
