"""Rollouts of vector environments in every way of beginning ended episodes anew."""

from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.control.rollout import flatten_observations
from loomrl.algorithms.control.sac import SACConfig
from loomrl.config import ControlExperiment, CustomEnvironment
from loomrl.control.environment import open_environments
from loomrl.control.vector import final_observations
from loomrl.errors import EpisodeError
from tests.algorithms.control_support import MARKS, same, weights

pytestmark = MARKS
MODES = ("NextStep", "SameStep", "Disabled")


def config(name: str = "Clocks", algorithm: Any = None, **settings: Any) -> Any:
    kind = algorithm or {"kind": "ppo", "minibatch_size": 16, "normalize_rewards": True}
    experiment = ControlExperiment(
        name="clocks",
        environment={"kind": "custom", "entry_point": f"tests.control.vector_envs:{name}", "settings": settings},
        train={"tell_every": 60},
        algorithm=kind,
        rollout={"environments": 3, "steps": 8 if kind["kind"] == "ppo" else 1},
        seed=1,
    )
    return (PPOConfig if kind["kind"] == "ppo" else SACConfig).of(experiment)


def transitions(rollouts: list[Any]) -> dict[int, list[tuple[float, ...]]]:
    """The steps with an action by place: observation, reward, terminated, ended as it was told, and what came after."""
    told: dict[int, list[tuple[float, ...]]] = {}
    for rollout in rollouts:
        for t, n in np.argwhere(rollout.valid):
            before, after = rollout.seen[t, n], rollout.seen[t + 1, n]
            assert before[1] == after[1] == n
            told.setdefault(int(n), []).append((before[0], rollout.rewards[t, n], rollout.terminated[t, n], after[0]))
    return told


@pytest.fixture(scope="module")
def algorithms() -> Any:
    """PPO in every mode."""
    made = {mode: config(mode=mode).build_algo() for mode in MODES}
    yield made
    for algo in made.values():
        algo.stop()


def sample(algo: Any, times: int = 1, **wanted: Any) -> list[Any]:
    """Rollouts from the beginning."""
    algo.env_runner.begin_anew()
    return [rollout for _ in range(times) for rollout in algo.env_runner.sample(**wanted)]


def test_every_mode_gives_the_same_steps_and_episodes(algorithms: Any) -> None:
    found = {}
    for mode, algo in algorithms.items():
        rollouts = sample(algo, 4)
        for rollout in rollouts:
            begins = ~rollout.valid[:-1] & rollout.valid[1:]
            assert (rollout.seen[1:-1][begins][:, 0] == 0).all()  # after a row without an action an episode begins,
            assert not rollout.valid[1:][rollout.ended[:-1]].any()  # and before such a row one ends, or the fragment
        episodes = sorted((episode.steps, episode.reward, episode.success) for r in rollouts for episode in r.episodes)
        found[mode] = transitions(rollouts), episodes
    steps, episodes = found["NextStep"]
    for mode in ("SameStep", "Disabled"):
        assert {n: told[: len(steps[n])] for n, told in found[mode][0].items()} == steps
        assert len(found[mode][1]) > len(episodes) > 12
        assert {*found[mode][1]} == {*episodes} == {(3, 3, 0), (4, 4, 1), (5, 5, 1)}


def test_what_a_truncated_episode_was_worth_at_its_end_counts(algorithms: Any) -> None:
    advantages = {}
    for mode, algo in algorithms.items():
        (rollout,) = sample(algo)
        net = algo.get_module().net
        net.load_state_dict(algorithms["NextStep"].get_module().net.state_dict())
        table = algo.learner_group._learner._part(rollout, torch.from_numpy(rollout.rewards))
        first = np.argwhere(rollout.valid)[:, 1] == 0
        advantages[mode] = table["advantages"].numpy()[first][:3]  # of the first episode of place 0
    assert np.ptp(advantages["NextStep"]) > 0
    for mode in ("SameStep", "Disabled"):
        assert np.allclose(advantages[mode], advantages["NextStep"], atol=1e-6)


def test_an_evaluation_by_rllib_has_its_share_of_episodes_in_every_mode(algorithms: Any) -> None:
    for algo in algorithms.values():
        rollouts = sample(algo, num_episodes=7)
        assert sorted(episode.steps for r in rollouts for episode in r.episodes) == [3, 3, 4, 4, 5, 5, 5]


def test_a_memory_forgets_where_episodes_begin_at_once() -> None:
    kind = {"kind": "ppo", "minibatch_size": 16, "network": {"memory": {"kind": "gru", "size": 4}}}
    algo = config(mode="SameStep", algorithm=kind).build_algo()
    for rollout in sample(algo, 3):
        seen, history = flatten_observations(rollout, "cpu")
        with torch.no_grad():
            inputs, _ = algo.get_module().net(seen, history)
        again = inputs.view(*rollout.seen.shape[:2], -1)[:-1].numpy()
        assert np.allclose(again[rollout.valid], rollout.inputs[rollout.valid], atol=1e-6)
    algo.train()
    algo.stop()


def test_training_resumes_bit_for_bit_in_the_middle_of_episodes(tmp_path: Any) -> None:
    ends = []
    for resumes in (False, True):
        algo = config(mode="SameStep").build_algo()
        algo.train()
        if resumes:
            algo.save_to_path(tmp_path / "kept")
            algo.stop()
            algo = config(mode="SameStep").build_algo()
            algo.restore_from_path(tmp_path / "kept")
        algo.train()
        ends.append(weights(algo))
        algo.stop()
    assert same(*ends)


def test_a_truncated_episode_without_its_last_observation_is_named_and_a_terminated_one_needs_none() -> None:
    one = open_environments(CustomEnvironment(entry_point="tests.control.vector_envs:Muted"), 1, {})
    one.reset()
    for _ in range(3):
        *_, terminated, truncated, info = one.step(np.zeros(1, int))
    with pytest.raises(EpisodeError, match=r"environment 0 was truncated, and info has no 'final_obs'"):
        final_observations(one.single_observation_space, info, terminated, truncated)
    algo = config("Muted", truncates=False).build_algo()
    algo.train()
    assert {episode.steps for episode in algo.window.latest} == {3, 4, 5}
    algo.stop()


def test_n_step_returns_end_with_the_episodes() -> None:
    kind = {"kind": "sac", "n_step": 3, "warmup": 4, "batch": 8, "replay": {"capacity": 512}}
    algo = config(mode="SameStep", algorithm=kind).build_algo()
    for _ in range(3):
        algo.train()
    ring = algo.learner_group._learner.ring
    kept = {name: column[: len(ring)] for name, column in ring.columns.items()}
    apart = kept["after"][:, 0] - kept["seen"][:, 0]
    gamma = algo.config.settings.gamma
    assert (kept["seen"][:, 1] == kept["after"][:, 1]).all()
    assert np.allclose(kept["ahead"], gamma**apart)
    assert np.allclose(kept["rewards"], sum(gamma**k * (apart > k) for k in range(3)))
    assert {*apart.tolist()} == {1, 2, 3}
    algo.stop()
