"""PPO leads a team better than the greedy baseline after a sixth of the steps in docs/teamwork.md."""

import pytest

import loomrl.envs.teamwork
from loomrl.envs.teamwork import compare

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster", "one_thread")
def test_ppo_soon_beats_greedy():
    from loomrl.algorithms.control.ppo import PPOConfig

    config = PPOConfig().environment(loomrl.envs.teamwork.ID).debugging(seed=1)
    config.env_runners(num_envs_per_env_runner=64, rollout_fragment_length=64)
    config.training(
        steps=250_000,
        learning_rate=1e-3,
        schedule={"kind": "linear"},
        gamma=0.95,
        minibatch_size=2048,
        epochs=5,
        normalize_observations=True,
        normalize_rewards=True,
        network={"hidden": (128, 128), "log_std": -0.5},
    )
    algo = config.build_algo()
    while algo.env_steps < 250_000:
        algo.train()
    reports = compare({"ppo": algo.policy().act_batch}, episodes=64, seed=50_000)
    algo.stop()
    greedy = reports["greedy"]
    ppo = reports["ppo"]
    assert ppo.reward - ppo.reward_margin > 1.1 * greedy.reward + greedy.reward_margin
    assert ppo.specialisation > reports["assignment"].specialisation
