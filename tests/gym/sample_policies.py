"""Policies that tests name by entry point, in this process and in actors."""

import asyncio
import os
import signal

from loomrl.gym.policy import Action


class Says:
    """Gives these answers, one after the other, and keeps what it was told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.heard = []

    async def act(self, conversation):
        self.heard.append(conversation)
        answer = self.answers.pop(0)
        return Action(answer) if isinstance(answer, str) else answer


class Pid:
    """Says in which process it acts, after a rest."""

    def __init__(self, rest_s=0.0):
        self.rest_s = rest_s

    async def act(self, conversation):
        await asyncio.sleep(self.rest_s)
        return Action(str(os.getpid()))


class Kills:
    """Kills its own process, again and again."""

    async def act(self, conversation):
        os.kill(os.getpid(), signal.SIGKILL)


class Brackets:
    """Says what makes a careless regular expression run for ever."""

    async def act(self, conversation):
        return Action("(" * 60)


def open_pid(choice):
    """Opens `Pid`, whatever was chosen."""
    return lambda environment, rng: Pid()
