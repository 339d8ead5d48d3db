"""Logged episodes of `Identity`, where it is known what is right, as Minari data sets."""

from pathlib import Path

import numpy as np
import pytest

from loomrl.control.logged import Recorded, write_minari
from tests.algorithms.control_envs import Identity


@pytest.fixture
def minari_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Minari keeps its data sets in this test."""
    folder = tmp_path / "minari"
    folder.mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder


def identity_data(
    id: str, kind: str = "discrete", *, episodes: int = 150, right: float = 0.0, shuffled: bool = False
) -> list[Recorded]:
    """Episodes of random actions, of which a share is what was seen; written as data set `id`."""
    rng = np.random.default_rng(0)
    env = Identity(kind)
    env.action_space.seed(0)
    made = []
    for seed in range(episodes):
        seen = [env.reset(seed=seed)[0]]
        actions = []
        rewards = []
        is_over = False
        while not is_over:
            action = seen[-1] if rng.random() < right else env.action_space.sample()
            observation, reward, _, is_over, _ = env.step(action)
            seen.append(observation)
            actions.append(action)
            rewards.append(reward)
        made.append(recorded(seen, actions, rewards, seed=seed))
    if shuffled:
        paid = rng.permutation(np.concatenate([one.rewards for one in made]))
        parts = np.split(paid, episodes)
        made = [recorded(one.observations, one.actions, part.tolist()) for one, part in zip(made, parts, strict=True)]
    write_minari(id, made, None, env.observation_space, env.action_space, made_by="a test")
    return made


def recorded(seen: list, actions: list, rewards: list[float], *, seed: int = 0, terminated: bool = False) -> Recorded:
    return Recorded(
        observations=seen, actions=actions, rewards=rewards, terminated=terminated, logprobs=None, seed=seed
    )
