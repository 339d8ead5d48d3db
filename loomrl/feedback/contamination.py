"""The prompts of a gate's suite, and what is too much like them to be trained on.

Training on what the gate asks would make its verdict worthless. The gate draws its tasks anew each time, so no list of
them exists: a thousand of each benchmark are drawn here, and stand for all.
"""

import asyncio
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

from loomrl.config import EvaluationConfig
from loomrl.config.suite import LanguageSuite
from loomrl.gym.held_out import held_out
from loomrl.gym.registry import Registry
from loomrl.gym.task_mixture import TaskMixture, gather
from loomrl.release.gate.probe import make_probe
from loomrl.store import LoomDB
from loomrl.types import Observation, Trajectory

DRAWN = 1000
"""Prompts of each benchmark and each kind of probe."""
COMMON = 10
"""What more than so many prompts of the suite say is the wording of their kind, and none of their own."""
_PIECE = re.compile(r"\w+|[^\w\s]")


class SuitePrompts:
    """The prompts of a suite, to be compared with others by their whole text and by words in a row."""

    def __init__(self, texts: Iterable[str], *, ngram: int) -> None:
        self._ngram = ngram
        self._whole = {normalised(text) for text in texts}
        counts = Counter(gram for text in self._whole for gram in set(self._grams(text)))
        self._rare = {gram for gram, count in counts.items() if count <= COMMON}

    def holds(self, text: str) -> bool:
        """True if a prompt of the suite says the same, or has `ngram` words in a row of its own in common with it."""
        plain = normalised(text)
        return plain in self._whole or not self._rare.isdisjoint(self._grams(plain))

    def meets(self, attempt: Trajectory) -> bool:
        """True if any message of a user is too much like a prompt of the suite."""
        asked = {message.content for turns in attempt.sequences for turn in turns for message in turn.observation
                 if message.role == "user"}  # fmt: skip
        return any(map(self.holds, asked))

    def _grams(self, plain: str) -> Iterator[tuple[str, ...]]:
        words = _PIECE.findall(plain)
        return (tuple(words[at : at + self._ngram]) for at in range(len(words) - self._ngram + 1))


def normalised(text: str) -> str:
    """The text without differences of case, spaces and Unicode's forms."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def suite_prompts(suite: LanguageSuite, db: LoomDB, *, ngram: int) -> SuitePrompts:
    """What the environments and probes of a suite ask."""
    registry, texts = Registry(db), []

    def record(id: str) -> tuple[str, str]:
        version = registry.register(id)
        return version.id, version.snapshot

    for benchmark in suite.benchmarks:
        mixture = gather([benchmark.environment], None, record)
        settings = EvaluationConfig(episodes=DRAWN, levels=benchmark.levels, seed=suite.seed or 0)
        texts += asyncio.run(_asked(mixture, settings))
    for kind in type(suite.safety).model_fields:
        if getattr(suite.safety, kind) is not None:
            texts += [text for seed in range(DRAWN) for text in _of_user(make_probe(kind, seed).messages)]
    return SuitePrompts(texts, ngram=ngram)


async def _asked(mixture: TaskMixture, settings: EvaluationConfig) -> list[str]:
    texts: list[str] = []
    try:
        for draw in held_out(mixture, settings):
            member = mixture.member(draw)
            texts += _of_user(await member.environment.reset(member.task(draw)))
    finally:
        for member in mixture.members.values():
            await member.environment.close()
    return texts


def _of_user(messages: Observation) -> list[str]:
    return [message.content for message in messages if message.role == "user"]
