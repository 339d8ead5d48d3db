"""Four environments to play by hand: `env = LogicPuzzleEnv()`, `await env.reset()`, `await env.step("SOLVE …")`.

With `use_curriculum` tasks get harder as they are solved; without, they are those of `difficulty`. With
`use_human_feedback` a person is asked about every solved episode: `loomrl feedback questions` shows what
waits, in `store`. Verbs may be written with a colon or without.
"""

from collections.abc import Sequence
from random import getrandbits
from typing import Any, ClassVar

from loomrl.envs.logic.environment import VERBS as LOGIC
from loomrl.envs.memory.environment import VERBS as MEMORY
from loomrl.envs.meta.environment import VERBS as META
from loomrl.gym.base import Difficulty
from loomrl.gym.catalogue import EnvironmentType, make
from loomrl.gym.judge import HumanJudgeConfig
from loomrl.gym.manual import CurriculumGenerator, ManualEnvironment

STORE = "sqlite:///loom.db"
PATIENCE_S = 600.0
"""Seconds that a person may take to answer."""


class _Played(ManualEnvironment):
    """One kind of environment, made from keywords."""

    kind: ClassVar[EnvironmentType]
    verbs: ClassVar[Sequence[str]] = ()

    def __init__(
        self, settings: dict[str, Any], *, use_curriculum: bool, difficulty: Difficulty, seed: int | None
    ) -> None:
        seed = getrandbits(31) if seed is None else seed
        tasks = CurriculumGenerator([self.kind], initial_difficulty=difficulty, seed=seed) if use_curriculum else None
        super().__init__(make(self.kind, settings | {"difficulty": difficulty}), tasks=tasks, seed=seed)

    def read(self, action: str) -> str:
        """With the colon that commands have: `SOLVE cat` is `SOLVE: cat`."""
        return "\n".join(map(self._with_colon, action.split("\n"))) if self.verbs else action

    def _with_colon(self, line: str) -> str:
        verb, _, argument = line.partition(" ")
        return f"{verb}: {argument}" if verb in self.verbs else line


class MetaReasoningEnv(_Played):
    """Questions to think about: `THINK …`, then `ANSWER …`."""

    kind = EnvironmentType.META_REASONING
    verbs = META

    def __init__(
        self,
        use_curriculum: bool = True,
        use_human_feedback: bool = False,
        max_steps: int = 10,
        *,
        difficulty: Difficulty = "beginner",
        seed: int | None = None,
        store: str = STORE,
    ) -> None:
        settings = {"max_steps": max_steps, "judge": _judge(use_human_feedback, store)}
        super().__init__(settings, use_curriculum=use_curriculum, difficulty=difficulty, seed=seed)


class LogicPuzzleEnv(_Played):
    """Puzzles with one solution: `SOLVE …`, or `QUERY …` for a fact at a price."""

    kind = EnvironmentType.LOGIC_PUZZLE
    verbs = LOGIC

    def __init__(
        self,
        use_curriculum: bool = True,
        max_steps: int = 10,
        *,
        difficulty: Difficulty = "beginner",
        seed: int | None = None,
    ) -> None:
        super().__init__({"max_steps": max_steps}, use_curriculum=use_curriculum, difficulty=difficulty, seed=seed)


class DialogueEnv(_Played):
    """Conversations with a scripted partner, in free text with the commands that the partner's opening names."""

    kind = EnvironmentType.DIALOGUE

    def __init__(
        self,
        use_curriculum: bool = True,
        use_human_feedback: bool = False,
        max_turns: int = 20,
        *,
        difficulty: Difficulty = "beginner",
        seed: int | None = None,
        store: str = STORE,
    ) -> None:
        settings = {"max_steps": max_turns, "judge": _judge(use_human_feedback, store)}
        super().__init__(settings, use_curriculum=use_curriculum, difficulty=difficulty, seed=seed)


class MemoryBufferEnv(_Played):
    """News to be remembered: `STORE key | category | text`, `RETRIEVE words`, `ANSWER …`. The memory stays."""

    kind = EnvironmentType.MEMORY_BUFFER
    verbs = MEMORY

    def __init__(
        self,
        use_curriculum: bool = True,
        max_steps: int = 50,
        memory_size: int = 100,
        *,
        difficulty: Difficulty = "beginner",
        seed: int | None = None,
    ) -> None:
        settings = {"max_steps": max_steps, "memory_size": memory_size}
        super().__init__(settings, use_curriculum=use_curriculum, difficulty=difficulty, seed=seed)


def _judge(wanted: bool, store: str) -> dict[str, Any] | None:
    return HumanJudgeConfig(store=store, timeout_s=PATIENCE_S).model_dump() if wanted else None
