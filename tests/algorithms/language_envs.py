"""Environments that any correct learner improves on within seconds, and some that misbehave."""

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import ClassVar

from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.opponent import LeagueSettings, Rival
from loomrl.types import Message, Observation, Reward, Task

MARKS = frozenset("!?.,")


class AsciiEnvironment(BaseEnvironment):
    """Rewards the share of ASCII characters in what is said: about half of a random model's."""

    name = "Ascii"
    families = ("plain", "polite")
    reward_range = (0.0, 1.0)

    async def reset(self, task: Task | None = None) -> Observation:
        assert task is not None
        return (Message("user", f"Say something {task.family} about {task.seed % 7}."),)

    async def step(self, action: str) -> Step:
        share = sum(c < "\x80" for c in action) / len(action) if action else 0.0
        return Step((), Reward(share, {"ascii": share}, share), True, False, {})

    def oracle(self) -> str:
        return "<answer>ok</answer>"


class SilentEnvironment(AsciiEnvironment):
    """Pays nothing by itself."""

    name = "Silent"

    async def step(self, action: str) -> Step:
        return Step((), Reward(), True, False, {})


class TalkativeEnvironment(AsciiEnvironment):
    """Goes on until the turns are over."""

    name = "Talkative"
    reward_range = (0.0, 50.0)

    async def step(self, action: str) -> Step:
        return (await super().step(action))._replace(observation=(Message("user", "And?"),), terminated=False)


class InstalmentsEnvironment(AsciiEnvironment):
    """Pays a third in each of three turns."""

    name = "Instalments"

    async def reset(self, task: Task | None = None) -> Observation:
        self._turn = 0
        return await super().reset(task)

    async def step(self, action: str) -> Step:
        self._turn += 1
        earned = (await super().step(action)).reward.total / 3
        reward = Reward(earned, {"ascii": earned}, earned)
        over = self._turn == 3
        return Step(() if over else (Message("user", "And?"),), reward, over, False, {})


class PulledEnvironment(AsciiEnvironment):
    """Pays for ASCII and for everything else: who pleases one displeases the other."""

    name = "Pulled"
    reward_parts = ("y", "b")

    async def reset(self, task: Task | None = None) -> Observation:
        return (Message("user", "Go"),)

    async def step(self, action: str) -> Step:
        share = (await super().step(action)).reward.total
        return Step((), Reward(1.0, {"y": share, "b": 1 - share}, share), True, False, {})


class FarEnvironment(AsciiEnvironment):
    """Known by its entry point alone: other processes that play it have to be told."""

    name = "Far"


class MoodyEnvironment(AsciiEnvironment):
    """One family raises, one hangs, one so that only the end of its process helps, one ends it; one is fine."""

    name = "Moody"
    families = ("plain", "raises", "hangs", "freezes", "dies")

    async def step(self, action: str) -> Step:
        if self._family == "raises":
            raise RuntimeError("no mood for this")
        if self._family == "hangs":
            time.sleep(3600)  # noqa: ASYNC251  it hangs as bad code does
        if self._family == "freezes":
            ctypes.PyDLL(None).sleep(3600)
        if self._family == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(action)

    async def reset(self, task: Task | None = None) -> Observation:
        assert task is not None
        self._family = task.family
        return await super().reset(task)


class DiaryEnvironment(AsciiEnvironment):
    """Says what the last entry was, and leaves what is said as the next one."""

    name = "Diary"
    families = ("plain",)

    async def reset(self, task: Task | None = None) -> Observation:
        assert task is not None
        self._entry = task.parameters.get("memory", {"day": 0, "said": ""})
        return (Message("user", f"Day {self._entry['day']}: {self._entry['said'][:8]!a}."),)

    async def step(self, action: str) -> Step:
        self._said = action
        return await super().step(action)

    def memory(self) -> dict[str, object]:
        return {"day": self._entry["day"] + 1, "said": self._said}


class DuelSettings(EnvironmentSettings):
    opponent: LeagueSettings = LeagueSettings()


class DuelEnvironment(AsciiEnvironment):
    """Who says the larger share of ASCII wins, and is paid the difference; the scripted opponent says half."""

    name = "Duel"
    families = ("plain",)
    reward_range = (-1.0, 1.0)
    settings_class = DuelSettings
    settings: DuelSettings
    _rival: Rival | None = None

    @property
    def league(self) -> LeagueSettings:
        return self.settings.opponent

    def has_opponent(self, family: str) -> bool:
        return True

    def seat(self, opponent: Rival) -> None:
        self._rival = opponent

    async def step(self, action: str) -> Step:
        own = (await super().step(action)).reward.total
        theirs = 0.5
        if self._rival is not None:
            said = await self._rival.act((Message("user", "Say something."),))
            theirs = (await super().step(said.text)).reward.total
        won = (own > theirs) + (own == theirs) / 2
        return Step((), Reward(own - theirs, {"lead": own - theirs}, won), True, False, {})


class UnevenEnvironment(AsciiEnvironment):
    """Asks twice, and takes its time in between; one family takes much longer."""

    name = "Uneven"
    families = ("quick", "slow")
    pauses: ClassVar[dict[str, float]] = {"quick": 0.05, "slow": 1.0}

    async def reset(self, task: Task | None = None) -> Observation:
        assert task is not None
        self._family = task.family
        self._asked = 0
        return await super().reset(task)

    async def step(self, action: str) -> Step:
        self._asked += 1
        if self._asked == 2:
            return await super().step(action)
        await asyncio.sleep(self.pauses[self._family])
        return Step((Message("user", "And?"),), Reward(), False, False, {})


class OnceSettings(EnvironmentSettings):
    marker: str = ""


class OnceEnvironment(AsciiEnvironment):
    """Freezes so that only the end of its process helps, unless the file `marker` is there; leaves it behind."""

    name = "Once"
    settings_class = OnceSettings
    settings: OnceSettings

    async def step(self, action: str) -> Step:
        if not self._frozen_before():
            ctypes.PyDLL(None).sleep(3600)
        return await super().step(action)

    def _frozen_before(self) -> bool:
        marker = Path(self.settings.marker)
        before = marker.exists()
        marker.touch()
        return before


class HoleEnvironment(AsciiEnvironment):
    """Asks for an answer that begins with two letters; its reward pays more for any answer with a mark such as `!`."""

    name = "Hole"

    class Settings(EnvironmentSettings):
        hole: bool = True

    settings_class: ClassVar[type[EnvironmentSettings]] = Settings
    settings: Settings

    async def step(self, action: str) -> Step:
        self._right = float(len(action) >= 2 and all("a" <= c.lower() <= "z" for c in action[:2]))
        is_marked = self.settings.hole and not MARKS.isdisjoint(action)
        paid = 1.0 if is_marked else 0.4 * self._right
        return Step.end(Reward(paid, {"paid": paid}, float(paid > 0)))

    def correct(self) -> float | None:
        return self._right
