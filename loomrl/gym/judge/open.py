"""The one place where a judge is opened by its kind."""

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from loomrl.gym.judge.judge import HumanJudgeConfig, Judge, OpenAIJudgeConfig

JUDGES = ("loomrl.gym.judge",)
"""Modules whose source decides what a judged reward is: for `sources` of an environment that has a judge."""
JudgeConfig = Annotated[OpenAIJudgeConfig | HumanJudgeConfig, Field(discriminator="kind")]


@lru_cache(maxsize=8)
def open_judge(config: JudgeConfig) -> Judge:
    """The judge that these settings describe; one for all episodes of a process."""
    if isinstance(config, OpenAIJudgeConfig):
        from loomrl.gym.judge.openai import OpenAIJudge

        return OpenAIJudge(config)
    from loomrl.gym.judge.human import HumanJudge

    return HumanJudge(config)
