"""Leagues of control policies, on PettingZoo's games of turns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.control.ppo import PPO, PPOConfig
from loomrl.algorithms.league import standings
from loomrl.config import ControlExperiment
from loomrl.control.turns import TurnVector
from loomrl.errors import ConfigError
from loomrl.gym.opponent import PRESENT, SCRIPTED
from tests.algorithms.control_support import MARKS

pytest.importorskip("pettingzoo", reason="needs PettingZoo: pip install 'loomrl[multiagent]'")
pytestmark = [pytest.mark.usefixtures("one_thread"), *MARKS[1:]]
GAME = "pettingzoo.classic.tictactoe_v3:env"
HERE = "tests.algorithms.test_control_league"


class Shuffled(TurnVector):
    """Games whose winners are paid by chance; their results stay what they are."""

    def step(self, actions: Any) -> Any:
        seen, rewards, terminated, truncated, info = super().step(actions)
        return (
            seen,
            np.where(terminated, self._chance.choice([-1.0, 1.0], len(rewards)), 0.0),
            terminated,
            truncated,
            info,
        )


def build(
    entry_point: str = "loomrl.control.turns:TurnVector", *, tables: int = 8, network: Any = None, **opponent: Any
) -> PPO:
    settings = {"game": GAME, "opponent": {"kind": "league", "every": 2, "members": 2, **opponent}}
    experiment = ControlExperiment(
        name="league",
        seed=1,
        environment={"kind": "custom", "entry_point": entry_point, "settings": settings},
        algorithm={
            "kind": "ppo",
            "learning_rate": 1e-3,
            "gamma": 1.0,
            "entropy_coefficient": 0.01,
            "minibatch_size": 256,
            "normalize_rewards": False,
            "network": network or {"hidden": [128, 128]},
        },
        rollout={"environments": tables, "steps": 32},
        train={"tell_every": 1},
    )
    return PPOConfig.of(experiment).build_algo()  # type: ignore[no-any-return]


def outcomes(policy: Any, games: int) -> list[float]:
    """Points of greedy play against the random player, from both seats."""
    tables = TurnVector(GAME, 64)
    seen, _ = tables.reset(seed=7)
    points: list[float] = []
    while len(points) < games:
        seen, *_ = tables.step(policy.act_batch(seen))
        points += [result.points for result in tables.take_results()]
    return points


def test_the_opponent_moves_within_a_step_and_results_are_those_of_the_rewards() -> None:
    tables = TurnVector(GAME, 16)
    seen, _ = tables.reset(seed=0)
    chance = np.random.default_rng(0)
    paid: list[float] = []
    results = []
    for _ in range(60):
        stones = seen["observation"].reshape(16, 9, 2).sum(1)
        assert (np.diff(stones).ravel() <= 1).all()
        assert (stones.sum(1) + seen["action_mask"].sum(1) == 9)[seen["action_mask"].any(1)].all()
        choose = [chance.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in seen["action_mask"]]
        seen, rewards, terminated, truncated, info = tables.step(np.array(choose))
        assert not rewards[~terminated].any()
        assert not truncated.any()
        np.testing.assert_array_equal(info["is_success"][terminated], 0.5 + rewards[terminated] / 2)
        paid += rewards[terminated].tolist()
        results += tables.take_results()
    assert [result.points for result in results] == [0.5 + reward / 2 for reward in paid]
    assert {result.points for result in results} == {0.0, 0.5, 1.0}
    assert {result.opponent for result in results} == {SCRIPTED}
    assert {result.is_first for result in results} == {True, False}


def test_tables_of_one_seed_are_played_alike() -> None:
    def played(seed: int) -> list[Any]:
        tables = TurnVector(GAME, 4)
        tables.reset(seed=seed)
        return [tables.step(np.zeros(4, np.int64) + move)[0]["observation"].tolist() for move in (8, 4)]

    assert played(3) == played(3)
    assert played(3) != played(4)


def test_versions_join_are_met_and_are_rated() -> None:
    algo = build(present_share=0.2, scripted_share=0.2)
    for _ in range(6):
        metrics = algo.metrics_of(algo.train())
    league = algo.league
    assert league is not None
    state = league.pool.state_dict()
    assert [member[0] for member in state["members"]] == [int(name) for name in league._policies]
    assert len(state["versions"]) == 3  # before updates 0, 2 and 4
    met = {name for first, second, *_ in state["games"] for name in (first, second)}
    assert {SCRIPTED, PRESENT, *state["versions"]} == met
    told = standings(state)
    assert {row["player"] for row in told["ratings"]} == met
    assert metrics["league/members"] == 2
    assert metrics["league/rating/low"] < metrics["league/rating"] < metrics["league/rating/high"]
    assert 0 <= metrics["league/points"] <= 1


def test_a_past_version_plays_with_the_weights_that_it_had() -> None:
    algo = build(every=2)
    before = {name: tensor.clone() for name, tensor in algo.policy().net.state_dict().items()}
    algo.train()
    seated = algo.env_runner.env.unwrapped._policies
    assert all(torch.equal(seated["0"].net.state_dict()[name], tensor) for name, tensor in before.items())
    algo.train()
    seated = algo.env_runner.env.unwrapped._policies
    assert all(torch.equal(seated["0"].net.state_dict()[name], tensor) for name, tensor in before.items())
    assert not all(torch.equal(seated[PRESENT].net.state_dict()[name], tensor) for name, tensor in before.items())


def test_a_resumed_run_has_its_pool_and_begins_new_games(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    algo = build()
    for _ in range(3):
        algo.train()
    algo.save_to_path(tmp_path)
    again = build()
    again.restore_from_path(tmp_path)
    assert "PettingZoo's games lose their state" in caplog.text
    assert algo.league is not None
    assert again.league is not None
    assert again.league.pool.state_dict() == algo.league.pool.state_dict()
    again.train()
    seated = again.env_runner.env.unwrapped._policies
    assert seated.keys() == {PRESENT, *algo.league._policies}
    for name, policy in algo.league._policies.items():
        for one, other in zip(policy.net.parameters(), seated[name].net.parameters(), strict=True):
            assert torch.equal(one, other)


class Alone:
    possible_agents = ("only",)
    agent_iter = None


def alone() -> Any:
    return Alone()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"opponent": {"kind": "league", "members": 1}}, r"members=1.*league of one.*Choose 2 to 16"),
        ({"opponent": {"kind": "leage"}}, r"opponent.kind='leage': unknown. Known: league, random, policy.*'league'"),
        ({"opponent": {"kind": "random", "every": 3}}, "kind=random takes no more settings"),
        ({"opponent": {"kind": "league", "evry": 3}}, "evry"),
        ({"game": f"{HERE}:alone"}, r"alone' has 1 agents \(only\), and a game has two seats. With one agent, wrap"),
        ({"game": "gymnasium.envs.classic_control:CartPoleEnv"}, "agents do not take turns.*AEC environment"),
    ],
)
def test_a_league_that_is_none_is_refused_with_its_value_and_a_remedy(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s){said}"):
        TurnVector(**{"game": GAME, **settings})


def test_a_memory_is_refused_as_opponents_have_none() -> None:
    with pytest.raises(ConfigError, match=r"network\.memory=gru: opponents of a league have no memory"):
        build(network={"hidden": [8], "memory": {"kind": "gru"}})


@pytest.mark.slow
def test_a_league_learns_not_to_lose_and_its_ratings_rise_and_with_shuffled_rewards_they_do_not() -> None:
    ratings = {}
    for name in ("loomrl.control.turns:TurnVector", f"{HERE}:Shuffled"):
        algo = build(name, tables=64, every=10, members=8)
        for _ in range(60):
            algo.train()
        assert algo.league is not None
        found = algo.league.pool.ratings().players
        ratings[name] = [found[version].mean for version in algo.league.pool.state_dict()["versions"]]
        points = np.array(outcomes(algo.policy(), 1000))
        ratings[name] += [found[PRESENT].mean, float((points > 0).mean()), float((points == 1).mean())]
        print(name, ratings[name])
    *learnt, last, unbeaten, _ = ratings["loomrl.control.turns:TurnVector"]
    assert unbeaten >= 0.95
    assert last > learnt[2] > 100
    *_, unlearnt, beaten, _ = ratings[f"{HERE}:Shuffled"]
    assert unlearnt < last / 3
    assert beaten < unbeaten - 0.1
