"""PPO on the fast runner: learns in every action space, repeats itself bit for bit, and says what is wrong."""

import os
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.tune.registry import register_env

from loomrl.algorithms.advantage import gae
from loomrl.algorithms.control.learner import Adam
from loomrl.algorithms.control.rollout import Episode
from loomrl.errors import ConfigError, EpisodeError, LearnerError
from tests.algorithms.control_envs import ACTIONS
from tests.algorithms.control_support import MARKS, Lock, Weights, agreed, learn, ppo, resumed, same, trained, weights

pytestmark = MARKS


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_kind_of_action_is_mastered(kind: str) -> None:
    learn(ppo(keywords={"kind": kind}).build_algo(), 0.8 if kind == "box" else 0.95, 100)


def test_a_second_algorithm_of_one_process_warns_of_nothing() -> None:
    ppo().build_algo()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*already in registry", category=UserWarning)
        ppo().build_algo()


def test_pictures_are_understood() -> None:
    learn(ppo("Pictures").build_algo(), 0.9, 30)


@pytest.mark.parametrize("normalize", [False, True])
def test_the_same_seed_gives_the_same_weights(normalize: bool) -> None:
    asked = ppo(normalize_observations=normalize, normalize_rewards=normalize)
    one, other = (weights(trained(asked.copy(copy_frozen=False), 2)) for _ in range(2))
    assert same(one, other)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pictures"])
def test_a_resumed_run_ends_as_one_that_never_stopped(env: Any, tmp_path: Path) -> None:
    if is_curious := env != "CartPole-v1":
        asked = locked({"coefficient": 0.5}).environment(env).env_runners(rollout_fragment_length=16)
    else:
        asked = ppo(env, normalize_observations=True, normalize_rewards=True, schedule={"kind": "linear"}, steps=2000)
    whole, again = resumed(asked, tmp_path)
    if is_curious:
        assert same(novelty(whole.learner_group._learner), novelty(again.learner_group._learner))
    for name in ("episode_return_mean", "num_env_steps_sampled_lifetime"):
        assert np.array_equal(*(algo.told["env_runners"][name] for algo in (whole, again)), equal_nan=True)


@pytest.mark.parametrize(("truncates", "expected"), [(False, [3, 2, 1]), (True, [13, 12, 11])])
def test_the_step_that_only_begins_an_episode_is_no_step(truncates: bool, expected: list[int]) -> None:
    (made,) = ppo("Countdown", {"truncates": truncates}, fragment=10).build_algo().env_runner.sample()
    assert made.seen[:, 0, 0].tolist() == [3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1]
    assert made.valid[:, 0].tolist() == [True, True, True, False] * 2 + [True, True]
    assert made.terminated[:, 0].tolist() == [False, False, not truncates, False] * 2 + [False, False]
    assert made.rewards[:, 0].tolist() == [1, 1, 1, 0] * 2 + [1, 1]
    assert {(episode.reward, episode.steps) for episode in made.episodes} == {(3.0, 3)}
    assert (len(made.episodes), made.env_steps()) == (16, 64)
    values = np.full(made.seen.shape[:2], 10.0)
    returns = gae(made.rewards, values, made.terminated, made.ended, gamma=1.0, lam=1.0) + values[:-1]
    assert returns[:3, 0].tolist() == expected, "what follows a truncation counts, what follows an end does not"


def test_episodes_go_on_across_rollouts_and_are_told_once() -> None:
    algo = ppo("Countdown", fragment=4, keywords={"steps": 7}, minibatch_size=16).build_algo()
    told = [episode for _ in range(8) for made in algo.env_runner.sample() for episode in made.episodes]
    assert told == [Episode(7.0, 7)] * 8 * 4


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", "raised ValueError: the bridge is out"),
        ("nan", "a reward is not a finite number"),
        ("shape", "raised ValueError"),
    ],
)
def test_an_environment_that_misbehaves_is_named(how: str, words: str) -> None:
    algo = ppo("Misbehaving", {"how": how}).build_algo()
    before = weights(algo)
    with pytest.raises(EpisodeError, match=words):
        algo.train()
    assert same(before, weights(algo))
    assert algo.env_runner.sample(num_timesteps=16)[0].seen[0].max() == 8  # a resumed runner begins new episodes


@pytest.mark.parametrize("runners", [0, 1])
def test_an_environment_that_cannot_be_made_is_named_before_training(runners: int) -> None:
    asked = ppo(keywords={"kindd": "discrete"}).env_runners(num_env_runners=runners)
    with pytest.raises(ConfigError, match=r"'Identity' with .*kindd.* cannot be made: TypeError"):
        asked.build_algo()


@pytest.mark.slow  # a runner gives its errors back as results, a remote one as the one here
def test_an_environment_that_raises_in_a_remote_runner_ends_the_run_with_its_words() -> None:
    algo = ppo("Misbehaving", keywords={"how": "raises"}).env_runners(num_env_runners=1).build_algo()
    with pytest.raises(EpisodeError, match="raised ValueError: the bridge is out"):
        algo.train()


def test_a_gradient_that_is_no_number_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    algo = ppo(gamma=0.9).build_algo()
    before = weights(algo)
    monkeypatch.setattr("loomrl.algorithms.control.ppo.value_loss", lambda value, *_, clip: value * float("nan"))
    with pytest.raises(LearnerError, match="changed nothing"):
        algo.train()
    assert same(before, weights(algo))


def test_a_setting_that_does_not_exist_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"learning_rat.*learning_rate"):
        ppo(learning_rat=1.0).validate()


@pytest.mark.parametrize(
    "compression", ["none", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fp16", "powersgd"))]
)
def test_two_learners_have_the_same_weights_and_nothing_is_lost(compression: str) -> None:
    algo = trained(ppo(normalize_observations=True, compression=compression).learners(num_learners=2))
    told = algo.train()
    pids = [result.get() for result in algo.learner_group.foreach_learner(lambda learner: os.getpid())]
    sockets = [each for pid in pids for each in psutil.Process(pid).net_connections("tcp") if each.status == "LISTEN"]
    assert len(sockets) > 2, "Ray's of each, and where they meet"
    assert {each.laddr.ip.removeprefix("::ffff:") for each in sockets} == {"127.0.0.1"}
    agreed(algo)
    assert told["learners"][DEFAULT_MODULE_ID]["num_module_steps_trained_lifetime"] > 0


@pytest.mark.parametrize(
    ("compression", "learners", "words"), [("fp16", 0, "has no effect"), ("bf16", 2, "Choose fp16 or powersgd")]
)
def test_a_compression_that_cannot_be_is_refused(compression: str, learners: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ppo(compression=compression).learners(num_learners=learners).validate()


@pytest.mark.slow
def test_a_killed_runner_is_replaced_and_counts_nothing_twice(tmp_path: Path) -> None:
    asked = ppo("Mortal", keywords={"marker": str(tmp_path / "died")}).env_runners(num_env_runners=2)
    algo = asked.fault_tolerance(delay_between_env_runner_restarts_s=0).build_algo()
    steps: list[int] = []
    gained = np.zeros(0)
    while len(steps) < 60 and (len(steps) < 12 or not (gained[-3:] > 8 * 16).all()):
        steps.append(algo.train()["env_runners"]["num_env_steps_sampled_lifetime"])
        gained = np.diff(steps)
    assert (tmp_path / "died").exists()
    assert (gained <= 2 * 8 * 16).all()
    assert (gained[-3:] > 8 * 16).all(), "both are there again, however long a busy machine took to start it"


@pytest.mark.slow
def test_runners_that_all_die_at_once_come_back_and_go_on(tmp_path: Path) -> None:
    asked = ppo("Mortal", keywords={"marker": str(tmp_path / "died")}).env_runners(num_env_runners=1)
    algo = asked.fault_tolerance(delay_between_env_runner_restarts_s=0).build_algo()
    for _ in range(3):
        told = algo.train()
    assert (tmp_path / "died").exists()
    assert told["env_runners"]["num_env_steps_sampled_lifetime"] > 2 * 8 * 16


def test_what_the_fast_way_cannot_do_goes_rllibs_own_way_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    asked = ppo("CartPole-v1", gamma=0.99).callbacks(on_episode_end=lambda **_: None)
    algo = asked.build_algo()
    assert algo.config.fallback_reasons == ("callback on_episode_end",)
    assert any("several times slower" in line and "callback on_episode_end" in line for line in caplog.messages)
    assert algo.train()["env_runners"]["num_env_steps_sampled_lifetime"] > 0
    algo.stop()
    with pytest.raises(ConfigError, match=r"normalize_rewards: RLlib's own.*callback on_episode_end"):
        asked.copy(copy_frozen=False).training(normalize_rewards=True).validate()


def locked(curiosity: dict[str, Any] | None) -> Any:
    register_env("Lock", lambda context: Lock(**context))
    return ppo("Lock", fragment=64, gamma=0.95, learning_rate=1e-3, entropy_coefficient=0.01, curiosity=curiosity)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_only_a_row_of_right_choices_opens_is_found_by_curiosity_alone(seed: int) -> None:
    found = []
    for curiosity in (None, {}):
        algo = locked(curiosity).debugging(seed=seed).build_algo()
        found.append(max((algo.train(), (algo.window.means() or (0.0, 0.0))[0])[1] for _ in range(20)))
    assert found[0] == 0 < found[1]


def test_what_was_seen_often_is_worth_ever_less() -> None:
    algo = ppo("Countdown", curiosity={}, minibatch_size=32).build_algo()
    paid = [algo.train()["learners"]["default_policy"]["reward/curiosity"] for _ in range(20)]
    assert 0 < paid[-1] < 0.5 * paid[0]


def test_a_state_that_was_taken_does_not_change_any_more() -> None:
    algo = trained(locked({}))
    taken = novelty(algo.learner_group._learner)
    kept = {name: one.clone() for name, one in taken.items()}
    algo.train()
    assert same(taken, kept)
    assert not same(taken, novelty(algo.learner_group._learner))


def novelty(learner: Any) -> Weights:
    return learner.get_state()["loomrl"]["curiosity"]["novelty"]


@pytest.mark.slow
def test_two_learners_are_curious_about_the_same() -> None:
    algo = trained(locked({}).learners(num_learners=2), 2)
    found = algo.learner_group.foreach_learner(novelty)
    assert same(*(result.get() for result in found))
    agreed(algo)


def test_rllibs_own_way_is_not_curious_and_says_so() -> None:
    with pytest.raises(ConfigError, match="curiosity"):
        locked({}).callbacks(on_episode_end=lambda **_: None).validate()


def test_adam_without_torchs_compiler_equals_torchs_own_bit_for_bit_and_from_a_state() -> None:
    ours = adapted(lambda parameters: Adam(parameters, rate=1e-2, eps=1e-5))
    theirs = adapted(lambda parameters: torch.optim.Adam(parameters, lr=1e-2, eps=1e-5, fused=True))
    assert torch.equal(ours, theirs)


def adapted(make: Callable[[Any], torch.optim.Optimizer]) -> torch.Tensor:
    """Weights after ten steps, with another optimizer from the middle on."""
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(64)) for _ in range(2)]
    optimizer = make(weights)
    for step in range(10):
        if step == 5:
            state = deepcopy(optimizer.state_dict())
            optimizer = make(weights)
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        sum((each - torch.randn(64)).square().sum() for each in weights).backward()
        optimizer.step()
    return torch.cat(weights)
