"""The prompts of a gate's suite, and what is too much like them to be trained on.

Training on what the gate asks would make its verdict worthless. The gate draws its tasks anew each time, so no list of
them exists: a thousand of each benchmark are drawn here, and stand for all.
"""

import asyncio
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence

from loomrl.config import EvaluationConfig
from loomrl.config.suite import LanguageSuite
from loomrl.gym.held_out import draw_held_out
from loomrl.gym.registry import Registry
from loomrl.gym.task_mixture import TaskMixture, gather
from loomrl.release.gate.probe import make_probe
from loomrl.store import LoomDB
from loomrl.types import Observation, Trajectory

DRAWN = 1000
"""Prompts of each benchmark and each kind of probe."""
COMMON = 10
"""A phrase in more prompts of the suite than this is the wording of their kind."""
PHRASE = 3
"""Words of a phrase."""
_PIECE = re.compile(r"\w+|[^\w\s]")
_NUMBER = re.compile(r"\d")
Run = tuple[str, ...]
"""Words and signs in a row."""


class SuitePrompts:
    """The prompts of a suite, compared with others by their whole text and by what varies in them.

    Tasks of one kind share their wording, and often a number or two. So a run of words tells a prompt of the suite only
    if it holds everything that varies in that prompt, or if most of its words vary.
    """

    def __init__(self, texts: Iterable[str], *, ngram: int) -> None:
        self._ngram = ngram
        self._whole = {normalise(text) for text in texts}
        split = [pieces for text in self._whole if (pieces := _split(text))]
        counts = Counter(phrase for pieces in split for phrase in set(_runs(pieces, PHRASE)))
        wording = {phrase for phrase, count in counts.items() if count > COMMON}
        self._telling: dict[Run, set[Run]] = {}
        """By their first `ngram` words."""
        for pieces in split:
            for run in self._telling_runs(pieces, _varies(pieces, wording)):
                self._telling.setdefault(run[:ngram], set()).add(run)

    def holds(self, text: str) -> bool:
        """True if a prompt of the suite says the same, or has a run of words in common with it that tells it."""
        plain = normalise(text)
        if plain in self._whole:
            return True
        pieces = _split(plain)
        return any(
            pieces[start : start + len(run)] == run
            for start, begin in enumerate(_runs(pieces, self._ngram))
            for run in self._telling.get(begin, ())
        )

    def meets(self, attempt: Trajectory) -> bool:
        """True if any message of a user is too much like a prompt of the suite."""
        asked = {message.content for turns in attempt.sequences for turn in turns for message in turn.observation
                 if message.role == "user"}  # fmt: skip
        return any(map(self.holds, asked))

    def _telling_runs(self, pieces: Run, varies: Sequence[bool]) -> Iterator[Run]:
        """Runs of `ngram` words, or more where the first and the last word that varies are further apart.

        A prompt in which nothing varies is told by all of it.
        """
        changing = [at for at, does in enumerate(varies) if does] or range(len(pieces))
        first = changing[0]
        behind = changing[-1] + 1
        length = max(self._ngram, behind - first)
        for start in range(max(0, behind - length), min(first, len(pieces) - length) + 1):
            yield pieces[start : start + length]
        for start, run in enumerate(_runs(pieces, self._ngram)):
            if sum(varies[start : start + self._ngram]) > self._ngram / 2:
                yield run


def _split(plain: str) -> Run:
    return tuple(_PIECE.findall(plain))


def _runs(pieces: Run, length: int) -> Iterator[Run]:
    return (pieces[at : at + length] for at in range(len(pieces) - length + 1))


def _varies(pieces: Run, wording: Container[Run]) -> list[bool]:
    """For each word, True if it varies among prompts; numbers always do, as small ones occur in many prompts by
    chance."""
    varies = [True] * len(pieces)
    for at, phrase in enumerate(_runs(pieces, PHRASE)):
        if phrase in wording:
            varies[at : at + PHRASE] = [False] * PHRASE
    return [does or bool(_NUMBER.search(piece)) for does, piece in zip(varies, pieces, strict=True)]


def normalise(text: str) -> str:
    """The text without differences of case, spaces and Unicode's forms."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def suite_prompts(suite: LanguageSuite, db: LoomDB, *, ngram: int) -> SuitePrompts:
    """The prompts of a suite's environments and probes."""
    record = Registry(db).record
    texts = []
    for benchmark in suite.benchmarks:
        mixture = gather([benchmark.environment], None, record)
        settings = EvaluationConfig(episodes=DRAWN, levels=benchmark.levels, seed=suite.seed or 0)
        texts += asyncio.run(_prompts_of(mixture, settings))
    for kind in type(suite.safety).model_fields:
        if getattr(suite.safety, kind) is not None:
            texts += [text for seed in range(DRAWN) for text in _of_user(make_probe(kind, seed).messages)]
    return SuitePrompts(texts, ngram=ngram)


async def _prompts_of(mixture: TaskMixture, settings: EvaluationConfig) -> list[str]:
    texts: list[str] = []
    try:
        for draw in draw_held_out(mixture, settings):
            member = mixture.member(draw)
            texts += _of_user(await member.environment.reset(member.task(draw)))
    finally:
        for member in mixture.members.values():
            await member.environment.close()
    return texts


def _of_user(messages: Observation) -> list[str]:
    return [message.content for message in messages if message.role == "user"]
