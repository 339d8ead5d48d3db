"""Opens a judge by its kind."""

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from loomrl.gym.judge.judge import HumanJudgeConfig, Judge, OpenAIJudgeConfig

JUDGES = ("loomrl.gym.judge",)
"""Modules whose source determines a judged reward: for `sources` of an environment that has a judge."""
JudgeConfig = Annotated[OpenAIJudgeConfig | HumanJudgeConfig, Field(discriminator="kind")]


@lru_cache(maxsize=8)
def open_judge(config: JudgeConfig) -> Judge:
    """The judge for these settings; one serves all episodes of a process."""
    if isinstance(config, OpenAIJudgeConfig):
        from loomrl.gym.judge.openai import OpenAIJudge

        return OpenAIJudge(config)
    from loomrl.gym.judge.human import HumanJudge

    return HumanJudge(config)
