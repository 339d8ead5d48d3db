"""WEAVE on several objectives: it follows preferences, finds what no sum finds, and says what is wrong."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx.reference import ReferenceEvaluator

from loomrl.algorithms.control.weave import chebyshev, utility_gain
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ConfigError, EpisodeError
from tests.algorithms import control_support
from tests.algorithms.control_support import MARKS, ppo, resumed, same, trained, weights
from tests.algorithms.objective_envs import ARMS, register

pytestmark = [*MARKS, pytest.mark.usefixtures("objective_environments")]
LEFT, MIDDLE, RIGHT = range(3)
CHEBYSHEV = {"kind": "chebyshev"}
numbers = st.floats(-10, 10, width=32)


@pytest.fixture
def objective_environments() -> None:
    register()


def weave(env: str = "Arms", keywords: Any = None, **settings: Any) -> Any:
    asked = {"objectives": ["left", "right"], "gamma": 0.99, "experts": 2, "critics": 2}
    return control_support.weave(env, keywords, fragment=32, **(asked | settings))


def learnt(config: Any, updates: int = 60) -> ControlPolicy:
    policy: ControlPolicy = trained(config, updates).policy()
    return policy


def chosen(policy: ControlPolicy, left: float) -> int:
    return int(policy.act(np.zeros(1, np.float32), preference=[left, 1 - left]))


@pytest.mark.parametrize("how", ["honest", "parts"])
@pytest.mark.slow
def test_the_policy_does_what_it_is_asked_for(how: str) -> None:
    policy = learnt(weave(keywords={"how": how}))
    assert [chosen(policy, left) for left in (0.9, 0.75, 0.25, 0.1)] == [LEFT, LEFT, RIGHT, RIGHT]


@pytest.mark.slow
def test_chebyshev_finds_what_no_weighted_sum_finds(tmp_path: Path) -> None:
    linear = learnt(weave())
    policy = learnt(weave(scalarisation=CHEBYSHEV, reference=[-1, -1]))
    assert MIDDLE not in {chosen(linear, left) for left in np.linspace(0, 1, 21)}
    assert [chosen(policy, left) for left in (0.95, 0.5, 0.05)] == [LEFT, MIDDLE, RIGHT]
    policy.save(tmp_path)
    again = ControlPolicy.load(tmp_path)
    assert [chosen(again, left) for left in np.linspace(0, 1, 21)] == [
        chosen(policy, left) for left in np.linspace(0, 1, 21)
    ]
    begun = {"preference": [0.5, 0.5], "earned": [0.0, 0.0]}
    assert again.act(np.zeros(1, np.float32), **begun) == MIDDLE


@pytest.mark.slow
def test_real_numbers_follow_preferences() -> None:
    policy = learnt(weave("Reach", network={"log_std": -1.0}), 120)
    left, right = (policy.act(np.zeros(1, np.float32), preference=p) for p in ([0.95, 0.05], [0.05, 0.95]))
    assert left[0] > left[1] + 0.5
    assert right[1] > right[0] + 0.5


@pytest.mark.parametrize("env", ["Arms", "Reach"])
def test_onnx_says_what_the_policy_does(env: str, tmp_path: Path) -> None:
    policy = learnt(weave(env), 1)
    policy.to_onnx(tmp_path / "policy.onnx")
    model = ReferenceEvaluator(str(tmp_path / "policy.onnx"))
    seen = np.random.default_rng(0).random((5, 3)).astype(np.float32)  # five, where the example had two
    _, actions = model.run(None, {"seen": seen})
    shown = {"preference": seen[:, :2], "seen": seen[:, 2:]}
    np.testing.assert_allclose(actions, policy.act_batch(shown), atol=1e-5)


def test_an_exported_policy_says_what_it_needs() -> None:
    policy = learnt(weave(), 1)
    seen = np.zeros(1, np.float32)
    for preference, words in (([0.5], "2 weights"), ([0.7, 0.7], "sum to 1.4"), ([1.5, -0.5], "not negative")):
        with pytest.raises(ConfigError, match=words):
            policy.act(seen, preference=preference)
    with pytest.raises(ConfigError, match="several objectives: say act"):
        policy.act(seen)
    with pytest.raises(ConfigError, match="does not look at returns"):
        policy.act(seen, preference=[0.5, 0.5], earned=[0, 0])


@pytest.mark.parametrize("scalarisation", [{"kind": "linear"}, CHEBYSHEV])
def test_a_resumed_run_ends_as_one_that_never_stopped(scalarisation: dict[str, str], tmp_path: Path) -> None:
    asked = weave(scalarisation=scalarisation, normalize_rewards=True, normalize_observations=True)
    whole, again = resumed(asked, tmp_path)
    told, retold = (algo.metrics_of(algo.told) for algo in (whole, again))
    assert told["return/objective/left"] == retold["return/objective/left"]
    assert whole.front.points.tolist() == again.front.points.tolist()


@pytest.mark.slow
def test_every_runner_has_preferences_of_its_own() -> None:
    algo = weave().env_runners(num_env_runners=2).build_algo()
    algo.train()
    found = algo.env_runner_group.foreach_env_runner(
        lambda runner: [episode.preference[0] for made in runner.sample() for episode in made.episodes],
        local_env_runner=False,
    )
    low, high = sorted(found, key=max)
    assert 0 <= min(low) <= max(low) <= 0.5 <= min(high) <= max(high) <= 1


def test_an_episode_is_told_by_objective_and_weighed() -> None:
    algo = weave(preference={"kind": "fixed", "weights": [0.25, 0.75]}).build_algo()
    (made,) = algo.env_runner.sample()
    assert made.rewards.shape == (32, 8, 2)
    assert {episode.parts for episode in made.episodes} <= {tuple(arm) for arm in ARMS.astype(np.float32).tolist()}
    for episode in made.episodes:
        assert episode.preference == (0.25, 0.75)
        assert episode.reward == pytest.approx(np.dot(episode.preference, episode.parts))


def test_an_objective_that_is_no_number_teaches_nothing() -> None:
    algo = weave(keywords={"how": "nan"}).build_algo()
    before = weights(algo)
    with pytest.raises(EpisodeError, match=r"a reward is not a finite number \(objective right\)"):
        algo.train()
    assert same(before, weights(algo))


def test_a_constant_objective_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="loomrl.algorithms.moving"):
        learnt(weave(keywords={"how": "constant"}), 2)
    assert "objective 'right' was 0.5 in all of the latest 100 episodes" in caplog.text


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        (lambda: weave(objectives=["a", "b", "c"]), ConfigError, "name 2 objectives"),
        (lambda: weave(keywords={"how": "parts"}, objectives=["left", "fun"]), EpisodeError, "is named fun"),
        (lambda: weave("Identity"), EpisodeError, "no part of the reward is named left, right"),
        (lambda: weave("Pictures"), ConfigError, "beside pictures"),
        (lambda: weave(objectives=[]), EpisodeError, "Several objectives are for weave"),
        (lambda: ppo("Arms", gamma=0.99), EpisodeError, "Several objectives are for weave"),
        (lambda: weave().env_runners(batch_mode="complete_episodes"), ConfigError, "no way through RLlib's own"),
    ],
)
def test_what_cannot_be_trained_on_is_named_before_training(config: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        config().build_algo()


@given(arrays(np.float64, (6, 1, 2), elements=numbers), st.floats(0, 1), st.floats(0.1, 5))
def test_what_steps_add_to_utility_sums_to_that_of_the_whole(earned: Any, left: float, width: float) -> None:
    preference = np.array([left, 1 - left])
    span = {"best_H": np.ones(2), "width_H": np.array([width, 1.0]), "slope": 0.05}
    added = utility_gain(earned, np.broadcast_to(preference, (5, 1, 2)), **span)
    whole = chebyshev(earned[-1], preference, **span) - chebyshev(earned[0], preference, **span)
    np.testing.assert_allclose(added.sum(0), whole, atol=1e-3)


@given(arrays(np.float64, 2, elements=numbers), arrays(np.float64, 2, elements=st.floats(0, 5)), st.floats(0, 1))
def test_more_of_anything_is_worth_no_less(returns: Any, more: Any, left: float) -> None:
    span = {"best_H": np.ones(2), "width_H": np.ones(2), "slope": 0.05}
    preference = np.array([left, 1 - left])
    assert chebyshev(returns + more, preference, **span) >= chebyshev(returns, preference, **span) - 1e-9
