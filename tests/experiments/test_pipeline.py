"""Evaluations one after the other, their log, and the picture of it."""

import json

import pytest

from loomrl import EvaluationPipeline
from loomrl.errors import ConfigError
from loomrl.gym import Action
from loomrl.gym.catalogue import make


class Guesser:
    """Answers 0 to everything, after some thought."""

    async def act(self, conversation):
        return Action("This may well be right. <answer>0</answer>")


@pytest.fixture
def pipeline(tmp_path):
    return EvaluationPipeline("Math", log_dir=tmp_path, store_url=f"sqlite:///{tmp_path}/loom.db")


def test_an_evaluation_says_how_every_episode_went(pipeline):
    result = pipeline.evaluate(num_episodes=66)
    assert len(result.episode_rewards) == 66
    assert min(result.episode_rewards) > 1
    assert (result.report.overall.success.mean, result.report.overall.completed) == (1.0, 1.0)
    assert result.report.overall.reasoning > 3
    assert {episode.level for episode in result.episodes} == set(range(1, 11))
    assert len({episode.family for episode in result.episodes}) == 33


def test_without_a_policy_it_says_that_it_judges_the_oracle_and_with_one_it_does_not(pipeline, caplog, tmp_path):
    assert pipeline.evaluate(num_episodes=2, policy="oracle").report.policy == "oracle"
    assert not caplog.messages
    assert pipeline.evaluate(num_episodes=2).report.policy == "oracle, as no policy was given"
    assert "judges the oracle" in caplog.text
    records = [json.loads(line) for line in (tmp_path / "evaluations.jsonl").read_text().splitlines()]
    assert [record["policy"] for record in records] == ["oracle", "oracle, as no policy was given"]
    svg = pipeline.plot_learning_curve(tmp_path / "curve.svg")
    assert svg.exists()


def test_levels_are_reached_where_they_are_solved(tmp_path):
    pipeline = EvaluationPipeline("Math", log_dir=tmp_path, levels=(1, 7), store_url=f"sqlite:///{tmp_path}/loom.db")
    assert pipeline.evaluate(num_episodes=66).level_reached == 7
    assert pipeline.evaluate(num_episodes=66, policy="random").level_reached == 0


def test_a_policy_of_ones_own_can_be_judged_in_an_environment_of_ones_own(tmp_path):
    result = EvaluationPipeline(make("Math", {"max_steps": 1}), log_dir=tmp_path).evaluate(20, policy=Guesser())
    assert result.report.policy == "Guesser"
    assert result.report.overall.success.mean < 0.3
    assert {episode.reasoning for episode in result.episodes} == {5}


def test_the_log_is_gone_on_with_and_drawn(pipeline, tmp_path):
    pipeline.evaluate(num_episodes=20, policy="random")
    again = EvaluationPipeline("Math", log_dir=tmp_path, store_url=f"sqlite:///{tmp_path}/loom.db")
    again.evaluate(num_episodes=20, policy="oracle", step=40)
    records = [json.loads(line) for line in (tmp_path / "evaluations.jsonl").read_text().splitlines()]
    assert [(record["step"], record["success"] > 0.5) for record in records] == [(0, False), (40, True)]
    drawn = {name: again.plot_learning_curve(tmp_path / f"curve.{name}").read_bytes() for name in ("png", "svg")}
    assert drawn["png"].startswith(b"\x89PNG")
    assert b"<svg" in drawn["svg"]


def test_a_picture_of_nothing_and_one_in_an_unknown_format_are_refused(pipeline, tmp_path):
    with pytest.raises(ConfigError, match="no evaluation yet"):
        pipeline.plot_learning_curve(tmp_path / "curve.png")
    pipeline.evaluate(num_episodes=2)
    with pytest.raises(ConfigError, match="png"):
        pipeline.plot_learning_curve(tmp_path / "curve.xyz")
