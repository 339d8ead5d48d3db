"""WEAVE on several objectives: it follows preferences, finds what no sum finds, and says what is wrong."""

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx.reference import ReferenceEvaluator

from loomrl.algorithms.control.rollout import Rollout
from loomrl.algorithms.control.weave import chebyshev, utility_gain
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ConfigError, EpisodeError
from tests.algorithms import control_support
from tests.algorithms.control_support import MARKS, Weights, ppo, resumed, same, trained, weights
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


def test_onnx_says_what_the_policy_does(tmp_path: Path) -> None:
    policy = learnt(weave(), 1)
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


# -- preferences that move, are held, or are a tree; and nodes, which each have a region of their own -----------------


LEAST = -0.2
CONSTRAINED = {"kind": "constrained", "least": {"harm": LEAST}}
ADAPTIVE = {"kind": "adaptive"}
STEPS = 8 * 32
"""One runner's rollouts in an update."""


def one_of_each(env: str = "Arms", keywords: Any = None, **settings: Any) -> Any:
    return weave(env, keywords, **({"experts": 1, "critics": 1} | settings))


def road(*, steps: int = 1, **settings: Any) -> Any:
    return one_of_each("Road", {"steps": steps}, **({"objectives": ["progress", "harm"]} | settings))


def followed(config: Any, updates: int) -> tuple[Weights, list[dict[str, float]]]:
    """The trained weights, and the metrics of every update."""
    algo = config.build_algo()
    told = [algo.metrics_of(algo.train()) for _ in range(updates)]
    return weights(algo), told


def mean(told: Sequence[dict[str, float]], name: str) -> float:
    return float(np.mean([row[name] for row in told]))


# -- trees ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalarisation", ["linear", "chebyshev"])
def test_a_tree_of_single_leaves_learns_as_names_do_to_the_last_bit(scalarisation: str) -> None:
    asked = {"scalarisation": {"kind": scalarisation}, "normalize_rewards": True, "gamma": 0.9}
    plain, _ = followed(road(steps=3, **asked), 2)
    tree, _ = followed(road(steps=3, objectives={"go": {"progress": 1}, "stay": {"harm": 1}}, **asked), 2)
    assert same(plain, tree)


def test_every_leaf_has_a_column_of_value_and_a_return_and_the_front_the_axes_of_the_names() -> None:
    objectives = {"task": {"progress": 0.2, "style": 0.8}, "harm": 1}
    algo = road(objectives=objectives, preference={"kind": "fixed", "weights": [1, 0]}).build_algo()
    for _ in range(40):
        told = algo.metrics_of(algo.train())
    assert algo.get_module().net.threads.columns == 3
    # 0.2 · 0.6 + 0.8 · 0.5 of the careful way are more than the 0.2 of the fast one, who has more progress.
    assert told["return/objective/style"] > 0.45
    expected = 0.2 * told["return/objective/progress"] + 0.8 * told["return/objective/style"]
    assert told["return/objective/task"] == pytest.approx(expected)
    assert told["return/training"] == pytest.approx(expected, abs=1e-6)
    assert algo.front.points.shape[1] == 2


def test_returns_are_discounted_as_thresholds_and_references_are() -> None:
    algo = road(steps=3, gamma=0.5, minibatch_size=32).env_runners(rollout_fragment_length=7).build_algo()
    found = [made for _ in range(3) for made in algo.collect_rollouts()]  # episodes go on from one to the next
    rewards, valid, ended = (
        np.concatenate([getattr(r, name) for r in found]) for name in ("rewards", "valid", "ended")
    )
    expected = []
    for n in range(8):
        parts = [np.zeros(2)]
        for reward, counts, over in zip(rewards[:, n], valid[:, n], ended[:, n], strict=True):
            if counts:
                parts.append(reward)
            if over:
                expected.append(sum(0.5**t * part for t, part in enumerate(parts[1:])))
                parts = [np.zeros(2)]
    told = [episode.parts for made in found for episode in made.episodes]
    np.testing.assert_allclose(sorted(map(tuple, told)), sorted(map(tuple, expected)), atol=1e-6)


# -- preferences that move ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_safe_then_good() -> None:
    """With a preference for progress alone the fast way is taken; with the threshold as much as may be."""
    _, plain = followed(road(preference={"kind": "fixed", "weights": [1, 0]}), 40)
    assert mean(plain[-10:], "return/objective/harm") < -0.95
    _, held = followed(road(preference=CONSTRAINED | {"weights": [1, 0]}), 100)
    assert mean(held[-40:], "return/objective/harm") == pytest.approx(LEAST, abs=0.03)
    # The best that can be had at -0.2 of harm is the careful way, and the fast one in a ninth of the episodes.
    assert mean(held[-40:], "return/objective/progress") == pytest.approx(0.6 + 0.4 / 9, abs=0.03)
    assert mean(held[-40:], "constraint/harm") > 0.5


def test_a_threshold_that_holds_anyway_changes_nothing() -> None:
    plain, _ = followed(road(), 4)
    held, told = followed(road(preference=CONSTRAINED | {"least": {"harm": -1.0}}), 4)
    assert told[-1]["constraint/harm"] == 0
    assert same(plain, held)


@pytest.mark.parametrize("preference", [ADAPTIVE, CONSTRAINED | {"least": {"harm": 0.0}}])
def test_a_run_whose_preference_moves_resumes_as_if_it_never_stopped(preference: Any, tmp_path: Path) -> None:
    """Episodes are under way, and fewer than a move waits for have ended since the last one."""
    asked = road(steps=5, preference=preference | {"episodes": 70}, normalize_rewards=True)
    kept = trained(asked.copy(copy_frozen=False), 3).moving.state_dict()
    whole, again = resumed(asked, tmp_path, 3)
    assert again.moving.state_dict() == whole.moving.state_dict() != kept
    assert len(kept["waiting"]) > 0
    told, retold = (algo.metrics_of(algo.told) for algo in (whole, again))
    moved = [name for name in told if name.startswith(("preference/", "constraint/", "return/"))]
    assert {name: told[name] for name in moved} == {name: retold[name] for name in moved}


def updates_until(algo: Any, is_so: Callable[[], bool], limit_s: float = 60) -> None:
    until = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until
        algo.train()


# -- nodes ----------------------------------------------------------------------------------------------------------


def kill(algo: Any, index: int) -> None:
    """End the process of one runner."""
    (pid,) = algo.env_runner_group.foreach_env_runner(
        lambda runner: os.getpid(), remote_worker_ids=[index], local_env_runner=False
    )
    os.kill(pid, signal.SIGKILL)


def asked_for(rollouts: Sequence[Rollout]) -> dict[int, Any]:
    """First weights of all steps that the learner is given, by runner."""
    return {rollout.route[0]: rollout.seen[:-1][rollout.valid][:, 0] for rollout in rollouts}


def covered(rollouts: Sequence[Rollout]) -> float:
    """The widest gap between first weights, ends included."""
    found = np.concatenate([[0.0, 1.0], *asked_for(rollouts).values()])
    return float(np.diff(np.sort(found)).max())


@pytest.mark.slow
def test_regions_of_a_lost_runner_are_the_others_and_nothing_is_counted_twice() -> None:
    asked = one_of_each().env_runners(num_env_runners=3)
    algo = asked.fault_tolerance(restart_failed_env_runners=False, ignore_env_runner_failures=True).build_algo()
    told = algo.metrics_of(algo.train())
    assert [told[f"node/preference/{i}"] for i in (1, 2, 3)] == pytest.approx([1 / 6, 1 / 2, 5 / 6], abs=0.1)
    kill(algo, 2)
    updates_until(algo, lambda: algo.env_runner_group.num_healthy_remote_env_runners() == 2)
    algo.train()  # whose episodes are the first of the new regions
    before = algo.env_steps
    taken = 0
    rollouts = []
    for _ in range(3):
        told = algo.metrics_of(algo.train())
        taken += sum(told[f"node/steps/{i}"] for i in (1, 3))
        assert "node/steps/2" not in told
    assert algo.env_steps - before == taken
    for _ in range(3):
        rollouts += algo.collect_rollouts()
    low, high = (np.concatenate([asked_for([r])[i] for r in rollouts if r.route[0] == i]) for i in (1, 3))
    assert low.max() <= 0.5 <= high.min()
    assert covered(rollouts) < 0.05
    assert told["node/preference/1"] == pytest.approx(0.25, abs=0.1)
    assert told["node/return/3"] > 0


@pytest.mark.slow
def test_a_runner_that_comes_back_has_its_region_again() -> None:
    algo = (
        one_of_each().env_runners(num_env_runners=2).fault_tolerance(delay_between_env_runner_restarts_s=0).build_algo()
    )
    algo.train()
    kill(algo, 1)
    group = algo.env_runner_group
    updates_until(algo, lambda: group.num_healthy_remote_env_runners() == 1)
    (alone,) = algo.collect_rollouts()
    (again,) = algo.collect_rollouts()
    assert (alone.route[0], again.route[0]) == (2, 2)
    assert covered([again]) < 0.1  # everywhere, for as long as it is alone
    before = algo.env_steps
    updates_until(algo, lambda: group.num_healthy_remote_env_runners() == 2)
    assert algo.env_steps - before <= 2 * STEPS * (algo.updates + 1)
    algo.train()
    found = asked_for(algo.collect_rollouts())
    assert max(found[1]) <= 0.5 <= min(found[2])


@pytest.mark.slow
def test_an_adaptive_preference_reaches_every_node() -> None:
    algo = one_of_each(preference=ADAPTIVE | {"share": 1.0}).env_runners(num_env_runners=2).build_algo()
    for _ in range(3):
        algo.train()
    expected = np.float32(algo.moving.weights_G[0])
    assert expected != 0.5
    for weight in asked_for(algo.collect_rollouts()).values():  # an episode that is under way keeps its own
        assert np.mean(weight == expected) > 0.9
