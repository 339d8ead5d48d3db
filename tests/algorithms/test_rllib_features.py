"""Features that users of RLlib expect, and our answer to each. The table in docs/control.md is this one.

After a change: `python -m tests.algorithms.test_rllib_features` writes it anew.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import pytest
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig as StockDQN
from ray.rllib.algorithms.ppo import PPOConfig as StockPPO
from ray.rllib.algorithms.sac import SACConfig as StockSAC
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole, MultiAgentPendulum

from loomrl.algorithms.control.config import STOCK_TRAINING, ControlConfig
from loomrl.algorithms.control.dqn import DQNConfig
from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.control.sac import SACConfig
from loomrl.algorithms.control.translation import ALIASES
from loomrl.errors import ConfigError
from tests.algorithms.control_support import MARKS

pytestmark = MARKS
DOCUMENT = Path(__file__).parents[2] / "docs/control.md"
BEGIN = "<!-- features: written by tests/algorithms/test_rllib_features.py -->\n"
END = "<!-- /features -->\n"
FAST = "fast"
SLOWLY = "slowly"
REFUSED = "refused"


def ppo(env: Any = "CartPole-v1", **settings: Any) -> PPOConfig:
    made = PPOConfig().environment(env).env_runners(num_envs_per_env_runner=2, rollout_fragment_length=32)
    return made.training(**({"minibatch_size": 32} | settings))


def sac(env: Any = "Pendulum-v1", **settings: Any) -> SACConfig:
    made = SACConfig().environment(env).reporting(min_sample_timesteps_per_iteration=110)
    return made.training(**settings)


def dqn(env: Any = "CartPole-v1", **settings: Any) -> DQNConfig:
    made = DQNConfig().environment(env).reporting(min_sample_timesteps_per_iteration=110)
    return made.training(**({"num_steps_sampled_before_learning_starts": 64} | settings))


def team(made: Any, *policies: str) -> Any:
    made = made.environment(env_config={"num_agents": 2})
    return made.multi_agent(
        policies=set(policies), policy_mapping_fn=lambda agent, *_, **__: policies[agent % len(policies)]
    )


def lstm(made: Any) -> Any:
    return made.rl_module(model_config={"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 8})


@dataclass(frozen=True)
class Feature:
    """A feature of RLlib: how it is asked for, which way it goes, and our remark."""

    name: str
    asked: Callable[[], ControlConfig]
    way: str
    words: str = ""


NAMES = {"lr": 1e-3, "lambda_": 0.9, "clip_param": 0.1, "entropy_coeff": 0.01, "vf_loss_coeff": 0.5, "grad_clip": 1.0}
SIZES = {"train_batch_size_per_learner": 128, "num_epochs": 2, "minibatch_size": 64}
RATES = {"actor_lr": 1e-3, "critic_lr": 2e-3, "alpha_lr": 3e-3, "initial_alpha": 0.5}
VALUES = {"double_q": False, "dueling": True, "target_network_update_freq": 200, "epsilon": [(0, 0.9), (500, 0.1)]}
FEATURES = [
    Feature("PPO's `lr`, `lambda_`, `clip_param`, `entropy_coeff`, `vf_loss_coeff`, `grad_clip`",
            lambda: ppo(**NAMES), FAST, "are our settings under other names"),
    Feature("`train_batch_size_per_learner`, `num_epochs`, `minibatch_size`",
            lambda: sized(), FAST, "the first decides `rollout_fragment_length`"),
    Feature("SAC's `actor_lr`, `critic_lr`, `alpha_lr`, `initial_alpha`, `replay_buffer_config`",
            lambda: sac(replay_buffer_config={"capacity": 500}, **RATES), FAST),
    Feature("DQN's `lr`, `double_q`, `dueling`, `n_step`, `epsilon`, `target_network_update_freq`",
            lambda: dqn(lr=2e-3, n_step=3, train_batch_size_per_learner=32, **VALUES), FAST),
    Feature("`num_atoms`, `v_min`, `v_max`, `noisy`, an `epsilon` of several lines",
            lambda: dqn(num_atoms=51), REFUSED, "`quantiles`, `exploration`"),
    Feature("`lr`, `entropy_coeff` as lists (schedules)", lambda: ppo(lr=[[0, 1.0]]), REFUSED, "`schedule`"),
    Feature("`use_kl_loss`, `kl_coeff`, `kl_target`", lambda: ppo(kl_coeff=0.2), REFUSED, "`target_kl`"),
    Feature("`vf_clip_param`", lambda: ppo(vf_clip_param=10.0), REFUSED, "`value_clip`, or `inf`"),
    Feature("`q_model_config`, `training_intensity`, `target_network_update_freq`",
            lambda: sac(training_intensity=64.0), REFUSED, "`network`, `updates_per_step`, `tau`"),
    Feature("`rl_module(model_config={\"fcnet_hiddens\": …, \"fcnet_activation\": …, \"vf_share_layers\": …})`",
            lambda: ppo().rl_module(model_config={"fcnet_hiddens": [8]}), FAST, "are `network.…`"),
    Feature("`rl_module(model_config=DefaultModelConfig(…))`",
            lambda: ppo().rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8])), FAST, "all of it counts"),
    Feature("other settings of a model (`head_fcnet_hiddens`, `conv_filters`, initialisers)",
            lambda: ppo().rl_module(model_config={"head_fcnet_hiddens": [8]}), SLOWLY),
    Feature("`use_lstm`, PPO", lambda: lstm(ppo()), SLOWLY, "fast: `network.memory`"),
    Feature("`use_lstm`, SAC", lambda: lstm(sac()), REFUSED, "`network.memory`"),
    Feature("`use_lstm`, DQN", lambda: lstm(dqn()), SLOWLY),
    Feature("an `action_mask` in observations, as RLlib's `ActionMaskingRLModule` takes it",
            lambda: ppo("Picky"), FAST, "no module of your own is needed"),
    Feature("an `action_mask` where something here is *slowly*",
            lambda: ppo("Picky").callbacks(on_episode_end=lambda **_: None), REFUSED, "a module that masks"),
    Feature("several policies, PPO", lambda: team(ppo(MultiAgentCartPole), "one", "other"), FAST,
            "the mapping may be a dictionary; slowly if it depends on the episode, or agents take turns"),
    Feature("several agents with one policy, PPO", lambda: team(ppo(MultiAgentCartPole), "shared"), FAST),
    Feature("several policies, SAC", lambda: team(sac(MultiAgentPendulum), "one", "other"), SLOWLY),
    Feature("several policies, DQN", lambda: team(dqn(MultiAgentCartPole), "one", "other"), SLOWLY),
    Feature("a `MultiAgentEnv` without `multi_agent(…)`", lambda: ppo(MultiAgentCartPole), REFUSED),
    Feature("connectors of your own", lambda: ppo().env_runners(env_to_module_connector=lambda *_: []), SLOWLY),
    Feature("`callbacks` on episodes", lambda: ppo().callbacks(on_episode_end=lambda **_: None), SLOWLY),
    Feature("other `callbacks`", lambda: ppo().callbacks(on_train_result=lambda **_: None), FAST),
    Feature("`batch_mode=\"complete_episodes\"`", lambda: ppo().env_runners(batch_mode="complete_episodes"), SLOWLY),
    Feature("`clip_actions`, `normalize_actions=False`", lambda: ppo().environment(normalize_actions=False), SLOWLY),
    Feature("`evaluation(…)`", lambda: ppo().evaluation(evaluation_interval=1, evaluation_duration=2), FAST),
    Feature("`explore=False`", lambda: ppo().env_runners(explore=False), FAST),
    Feature("`offline_data(input_=…)`", lambda: ppo().offline_data(input_="/nowhere"), REFUSED,
            "RLlib's BC, MARWIL, CQL"),
    Feature("the old API stack", lambda: ppo().api_stack(
        enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False), REFUSED),
]  # fmt: skip
IDS = [re.sub(r"[^a-zA-Z_]+", "-", feature.name)[:60].strip("-") for feature in FEATURES]


def sized() -> PPOConfig:
    made = PPOConfig().environment("CartPole-v1").env_runners(num_envs_per_env_runner=2)
    return made.training(**SIZES)


def table() -> str:
    """The table of all features in the document."""
    rows = ["| of RLlib | here | |", "|---|---|---|"]
    rows += [f"| {feature.name} | {feature.way} | {feature.words} |" for feature in FEATURES]
    return BEGIN + "\n".join(rows) + "\n" + END


def test_the_table_in_the_document_is_that_of_these_tests() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("feature", FEATURES, ids=IDS)
def test_every_feature_of_rllib_goes_the_way_that_the_table_says(feature: Feature) -> None:
    config = feature.asked()
    if feature.way == REFUSED:
        with pytest.raises(ConfigError, match=r"[Uu]se |Name their policies"):
            config.build_algo()
        return
    config.validate()
    assert bool(config.fallback_reasons) == (feature.way == SLOWLY), config.fallback_reasons


@pytest.mark.slow
@pytest.mark.parametrize("feature", [each for each in FEATURES if each.way != REFUSED], ids=lambda each: each.name[:40])
def test_every_feature_that_is_not_refused_trains(feature: Feature) -> None:
    algo = feature.asked().build_algo()
    assert algo.train()["env_runners"]["num_env_steps_sampled_lifetime"] > 0


def test_names_of_rllib_mean_what_ours_do() -> None:
    config = ppo(vf_clip_param=inf, **NAMES)
    config.validate()
    found = config.settings
    assert (found.learning_rate, found.gae_lambda, found.clip.low, found.clip.high) == (1e-3, 0.9, 0.1, 0.1)
    assert (found.entropy_coefficient, found.value_coefficient, found.clip_norm) == (0.01, 1.0, 1.0)
    sizes = sized().learners(num_learners=2)
    sizes.validate()
    assert (sizes.settings.epochs, sizes.settings.minibatch_size, sizes.rollout_fragment_length) == (2, 128, 128)
    assert sizes.train_batch_size_per_learner == 128
    other = sac(replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 500}, **RATES)
    other.validate()
    settings = other.settings
    assert (settings.actor_rate, settings.critic_rate, settings.temperature_rate) == (1e-3, 2e-3, 3e-3)
    assert (settings.initial_temperature, settings.replay.capacity, settings.replay.prioritized.alpha) == (
        0.5,
        500,
        0.6,
    )


def test_names_of_rllibs_dqn_mean_what_ours_do() -> None:
    config = dqn(lr=2e-3, n_step=3, train_batch_size_per_learner=32, tau=0.5, **VALUES)
    config.validate()
    found = config.settings
    assert (found.learning_rate, found.n_step, found.batch, found.tau, found.warmup) == (2e-3, 3, 32, 0.5, 64)
    assert (found.double, found.dueling, found.target_every) == (False, True, 200)
    assert (found.exploration.begin, found.exploration.end, found.exploration.steps) == (0.9, 0.1, 500)
    assert (config.lr, config.double_q, config.epsilon) == (2e-3, False, [(0, 0.9), (500, 0.1)])
    constant = dqn(epsilon=0.2)
    constant.validate()
    assert {constant.settings.exploration.at(steps) for steps in (0, 10**6)} == {0.2}


def test_a_model_that_is_asked_for_is_the_one_that_learns() -> None:
    for asked in ({"fcnet_hiddens": [8]}, DefaultModelConfig(fcnet_hiddens=[8], fcnet_activation="relu")):
        algo = ppo().rl_module(model_config=asked).build_algo()
        assert algo.get_module().net.size == 8 or algo.config.settings.network.hidden == (8,)
        assert {len(one) for one in algo.get_module().parameters()} <= {1, 2, 8}
        algo.stop()
    by_spec = ppo().rl_module(rl_module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [8]}))
    by_spec.validate()
    assert by_spec.settings.network.hidden == (8,)


def test_what_is_set_in_whichever_way_is_not_lost() -> None:
    by_attribute = ppo()
    by_attribute.lr = 2e-3
    by_dictionary = PPOConfig().update_from_dict({"env": "CartPole-v1", "lr": 2e-3, "lambda": 0.8})
    for config in (by_attribute, by_dictionary):
        config.validate()
        assert config.settings.learning_rate == config.lr == 2e-3
    assert by_dictionary.settings.gae_lambda == 0.8
    later = by_attribute.copy(copy_frozen=False).training(lr=4e-3)
    later.validate()
    assert later.settings.learning_rate == 4e-3


def test_one_setting_by_two_names_is_given_once() -> None:
    with pytest.raises(ConfigError, match=r"learning_rate=0\.01, and 0\.002 by RLlib's name"):
        ppo(learning_rate=1e-2, lr=2e-3).validate()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: ppo(lr=[[0, 1.0]]), r"lr=.* use learning_rate: schedule="),
        (lambda: ppo(kl_coeff=0.2), "kl_coeff=0.2 .* use target_kl"),
        (lambda: sac(lr=1e-3), "lr=0.001 .* use actor_rate, critic_rate"),
        (lambda: dqn(num_atoms=51), "num_atoms=51 .* use quantiles"),
        (lambda: dqn(noisy=True), "noisy=True .* use exploration"),
        (lambda: dqn(epsilon=[(0, 1.0), (9, 0.5), (99, 0.1)]), "epsilon=.* use exploration"),
        (lambda: dqn(lr=[[0, 1.0]]), "lr=.* use learning_rate"),
        (lambda: ppo(train_batch_size_per_learner=33), "Choose a multiple of 2"),
        (
            lambda: ppo(train_batch_size_per_learner=128),
            "asks for fragments of 64 steps, and rollout_fragment_length=32",
        ),
        (lambda: ppo().rl_module(model_config={"fcnet_hidden": [8]}), "fcnet_hidden=.* is not known"),
        (lambda: lstm(ppo(value_clip=0.2)), "value_clip: RLlib's own runner"),
        (lambda: lstm(ppo(clip={"low": 0.1, "high": 0.3})), "clip.high: RLlib's own runner"),
    ],
)
def test_what_has_no_counterpart_is_refused_beside_what_to_use(asked: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked().validate()


@pytest.mark.parametrize(("ours", "stock"), [(PPOConfig, StockPPO), (SACConfig, StockSAC), (DQNConfig, StockDQN)])
def test_no_keyword_of_rllibs_training_is_a_stranger(ours: Any, stock: Any) -> None:
    keywords = [*inspect.signature(AlgorithmConfig.training).parameters.values()]
    keywords += inspect.signature(stock.training).parameters.values()
    asked = {one.name for one in keywords if one.name not in ("self", "kwargs") and one.default != -1}
    known = {*ours.words, *STOCK_TRAINING, *ours.settings_class.model_fields}
    strangers = {name for name in asked if ALIASES.get(name, name) not in known}
    assert strangers <= {"clip_actions"}  # which are env_runners' by now
    with pytest.raises(ConfigError, match="learning_rat"):
        ppo(learning_rat=1.0).validate()


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: table(), text, flags=re.DOTALL))
