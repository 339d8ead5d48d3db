"""Demonstrations for the warm start: the oracles' episodes, made imperfect on purpose, as tokens to imitate.

Answers come in several formats, of which an environment may accept one, and some are wrong, as are some of the other
actions. A policy that has seen only one way would leave reinforcement learning nothing to choose from. An agent plays
its tasks itself, while their oracle answers in the place of the model.
"""

import asyncio
import math
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import cycle, islice

import numpy as np
from transformers import PreTrainedTokenizerBase

from loomrl.canonical import content_hash
from loomrl.config import WarmStart
from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.adapters.harness.environment import Harness
from loomrl.gym.answer import parse_submission
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.episode import Attempt
from loomrl.gym.guard import act, begin
from loomrl.gym.preference import Preference, add_preference, preference_of
from loomrl.inference.chat import as_template, pictures_of
from loomrl.inference.vision import Vision
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.agents import AgentGateway, AgentSessions, ScriptedServedPolicy, Speak
from loomrl.types import End, Message, Source, Task

log = redacted_logger(__name__)
AT_ONCE = 8
"""Agents that play at the same time."""
Conversation = tuple[Message, ...]


Played = tuple[Conversation, ...] | EpisodeError
"""The conversations of a draw, or the reason why there are none."""


async def play_agents(draws: Sequence[tuple[Harness, Task]], *, wrong: float, seed: int) -> list[Played]:
    """The conversations of each draw's agent, one for each of its threads.

    Before every text of the oracle, a guess takes its place with probability `wrong`. An agent plays only once for
    equal tasks and seeds, also in later calls.
    """
    gateway = AgentGateway()
    rooms = asyncio.Semaphore(AT_ONCE)
    keys = [content_hash((harness.settings.model_dump(mode="json"), task.key, wrong, seed)) for harness, task in draws]

    found: list[Played] = []

    async def play(key: str, harness: Harness, task: Task) -> None:
        async with rooms:
            played = _conversations_of(key)
            if played:
                return
            failed = [one for one in found if isinstance(one, EpisodeError)]
            if len(found) == len(failed) >= AT_ONCE:  # it fails at every task: another try would only take time
                played.append(failed[-1])
                return
            played.append(await _play(gateway, harness, task, _Oracle(harness, task, wrong, random.Random(key))))
            found.append(played[0])

    unlike = dict(zip(keys, draws, strict=True))
    async with asyncio.TaskGroup() as group:
        for key, (harness, task) in unlike.items():
            group.create_task(play(key, harness, task))
    return [_conversations_of(key)[0] for key in keys]


@lru_cache(20_000)
def _conversations_of(key: str) -> list[Played]:
    """The place of what an agent played; empty before that."""
    return []


class _Oracle:
    """The oracle of a task, with slips."""

    def __init__(self, harness: Harness, task: Task, wrong: float, rng: random.Random) -> None:
        self._harness = harness
        self._task = task
        self._wrong = wrong
        self._rng = rng

    async def __call__(self, conversation: Conversation) -> str:
        """The next text."""
        slips = self._rng.random() < self._wrong
        guess = self._harness.guess(self._task, self._rng) if slips else None
        return self._harness.reply(self._task, conversation) if guess is None else guess


async def _play(gateway: AgentGateway, harness: Harness, task: Task, says: Speak) -> Played:
    scripted = ScriptedServedPolicy(says)
    sessions = AgentSessions(gateway, lambda attempt: scripted)
    attempt = Attempt(id="demonstration", task=task, group="demonstration", source=Source.DEMONSTRATION)
    played = await harness.player(sessions, attempt)
    if played.end is End.FAILED:
        return EpisodeError(f"{task.family}: the agent failed on its oracle's answers: {played.failure}")
    return whole(scripted.conversations)


def whole(conversations: Sequence[Conversation]) -> tuple[Conversation, ...]:
    """The conversations that none of the others continues."""
    continued = {other[: len(one)] for other in conversations for one in conversations if len(one) < len(other)}
    return tuple(dict.fromkeys(one for one in conversations if one not in continued))


MOST_SLOW = 12
"""Demonstrations of an environment with a sandbox or a server from which a tokenizer is learnt: each takes a second."""
CHUNK = 256
"""Demonstrations per batch; tokenizers are efficient only on many texts at once."""

ACTION = "{action}"
COMMAND = "{command}"
"""In a format: the place of an action that is no answer between tags, or of its last line."""
WHOLE = "{work}\n<answer>{answer}</answer>"
"""The format of answers where all formats are of actions, and of a wrong one that comes first."""
Ways = Mapping[str, Sequence[str]]
"""Formats of answers by objective."""
NO_WAYS: Ways = {}
Draw = tuple[BaseEnvironment, Task]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An episode to imitate: the messages, their token ids, and a mask of the assistant's tokens."""

    messages: Conversation
    ids: list[int]
    mask: list[bool]

    @property
    def pictures(self) -> tuple[bytes, ...]:
        """The pictures behind the image tokens, in order."""
        return tuple(pictures_of(self.messages))


def demonstrations(
    draws: Iterable[Draw],
    settings: WarmStart,
    tokenizer: PreTrainedTokenizerBase,
    *,
    seed: int,
    vision: Vision | None = None,
    ways: Ways = NO_WAYS,
) -> Iterator[Demonstration]:
    """One demonstration per draw, in order, endless if the draws are. Equal seeds give equal texts."""
    told = conversations(draws, settings, seed=seed, ways=ways)
    while chunk := list(islice(told, CHUNK)):
        yield from _encode_all(chunk, tokenizer, vision)


def conversations(
    draws: Iterable[Draw], settings: WarmStart, *, seed: int, ways: Ways = NO_WAYS, texts: int | None = None
) -> Iterator[Conversation]:
    """The demonstrations before tokenisation; with `texts` those of as many draws, with few of slow environments."""
    flaws = Flaws(settings, random.Random(seed), ways)
    source = iter(draws) if settings.tasks is None else cycle(islice(draws, settings.tasks))
    if texts is not None:
        source = _skip_slow(islice(source, texts))
    failed = FailedDemonstrations(settings.failed)
    while chunk := list(islice(source, CHUNK)):
        perfect = asyncio.run(_play_all(chunk, flaws, failed, seed=seed))
        failed.check()
        for said, (environment, task) in perfect:
            yield flaws.apply_format(said, family=_family(environment, task), preference=preference_of(task))


def _skip_slow(draws: Iterable[Draw]) -> Iterator[Draw]:
    """The draws, with the first `MOST_SLOW` of each environment whose episodes start a sandbox or a server."""
    count: Counter[str] = Counter()
    for environment, task in draws:
        count[environment.name] += environment.sandboxed or environment.starts_process
        if count[environment.name] <= MOST_SLOW:
            yield environment, task


class FailedDemonstrations:
    """Counts the draws without a demonstration, which are left out up to a share."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._draws = 0
        self._failed: list[EpisodeError] = []

    def take(self, played: Played) -> tuple[Conversation, ...]:
        """The conversations of the next draw; none if it failed."""
        self._draws += 1
        if not isinstance(played, EpisodeError):
            return played
        self._failed.append(played)
        return ()

    def check(self) -> None:
        """Log the failures; an EpisodeError if they are too many."""
        count = len(self._failed)
        if not count:
            return
        cause = textwrap.shorten(str(self._failed[-1]), 600)
        line = f"{count} of {self._draws} demonstrations failed, the last: {cause}"
        if count == self._draws or count > math.ceil(self._share * self._draws):
            raise EpisodeError(f"{line} algorithm.warm_start.failed={self._share:g} is the share that is left out.")
        log.warning("%s", line)


async def _play_all(
    draws: Sequence[Draw], flaws: "Flaws", failed: FailedDemonstrations, *, seed: int
) -> list[tuple[Conversation, Draw]]:
    """The environments' resources belong to this event loop, which ends with the chunk, so they are closed."""
    try:
        agents = [(environment, task) for environment, task in draws if isinstance(environment, Harness)]
        told = iter(await play_agents(agents, wrong=flaws.wrong_share(), seed=seed))
        played: list[tuple[Conversation, Draw]] = []
        for environment, task in draws:
            if isinstance(environment, Harness):
                played += [(said, (environment, task)) for said in failed.take(next(told))]
            else:
                shown = await _play_or_fail(environment, task, flaws)
                played += [(said, (environment, task)) for said in failed.take(shown)]
        return played
    finally:
        for environment in {id(environment): environment for environment, _ in draws}.values():
            await environment.close()


async def _play_or_fail(environment: BaseEnvironment, task: Task, flaws: "Flaws") -> Played:
    try:
        return (await play(environment, task, slip=flaws.slip, stumble=flaws.stumble),)
    except EpisodeError as error:
        return error


Slip = Callable[[BaseEnvironment, Preference | None], str | None]
"""An action to take in place of the oracle's, or None."""
Stumble = Callable[[str, str], str | None]
"""Family and right answer → a wrong answer to give before it, or None."""


async def play(
    environment: BaseEnvironment,
    task: Task,
    *,
    slip: Slip = lambda environment, preference: None,
    stumble: Stumble = lambda family, action: None,
) -> Conversation:
    """The oracle's conversation up to its first answer between tags, its first wrong action, or the end."""
    said: Conversation = add_preference(await begin(environment, task), preference_of(task))
    has_stumbled = False
    while True:
        action = environment.oracle()
        is_answer = parse_submission(action) is not None
        if is_answer and not has_stumbled:
            has_stumbled = True
            wrong = stumble(_family(environment, task), action)
            if wrong is not None:
                step = await act(environment, wrong)
                if step.terminated or step.truncated:
                    raise ConfigError(
                        f"algorithm.warm_start.again: {environment.name} ends with the first answer. Set its retry and "
                        "max_steps, or leave `again` out."
                    )
                said += (Message("assistant", wrong), *step.observation)
                continue
        slipped = None if is_answer else slip(environment, preference_of(task))
        said += (Message("assistant", action if slipped is None else slipped),)
        if is_answer or slipped is not None:
            return said
        step = await act(environment, action)
        if step.terminated or step.truncated:
            return said
        said += tuple(step.observation)


class Flaws:
    """Makes perfect episodes imperfect: answers in other formats, some of them wrong."""

    def __init__(self, settings: WarmStart, rng: random.Random, ways: Ways = NO_WAYS) -> None:
        self._settings = settings
        self._ways = ways
        self._rng = rng
        self._answers: dict[str, str] = {}
        """The latest answer of each family."""

    def slip(self, environment: BaseEnvironment, preference: Preference | None = None) -> str | None:
        """A random action, with the probability of a wrong one."""
        return environment.random_action(self._rng) if self._rng.random() < self.wrong_share(preference) else None

    def wrong_share(self, preference: Preference | None = None) -> float:
        """The share of what is wrong in demonstrations by this preference."""
        wrong = self._settings.wrong
        if not isinstance(wrong, Mapping):
            return wrong
        if preference is None:
            return sum(wrong.values()) / len(wrong)
        return sum(share * preference[name] for name, share in wrong.items())

    def stumble(self, family: str, action: str) -> str | None:
        """A wrong answer to give before this one, with the probability that is asked for."""
        if not self._settings.again or self._rng.random() >= self._settings.again:
            return None
        submission = parse_submission(action)
        assert submission is not None, "it is an answer"
        work = submission.reasoning.strip()
        right = submission.answer
        work, answer = self._spoilt(work, right, self._answers.get(family, right))
        return None if answer == right else _format_answer(WHOLE, work, answer)

    def apply_format(self, said: Conversation, *, family: str, preference: Preference | None = None) -> Conversation:
        """The episode with its answer in another format, and its other actions in one that has a place for them."""
        submission = parse_submission(said[-1].content)
        if submission is None:
            return self._format_actions(
                said, self._formats_by_preference(preference) or self._formats_if_any(family) or ()
            )
        work = submission.reasoning.strip()
        answer = submission.answer
        if self._rng.random() < self.wrong_share(preference):
            work, answer = self._spoilt(work, answer, self._answers.get(family, answer))
        self._answers[family] = submission.answer
        formats = self._formats_by_preference(preference) or self._formats(family)
        format = self._rng.choice([format for format in formats if not _is_of_actions(format)] or [WHOLE])
        return (*self._format_actions(said[:-1], formats), Message("assistant", _format_answer(format, work, answer)))

    def _format_actions(self, said: Conversation, formats: Sequence[str]) -> Conversation:
        """Each of the policy's messages in one of these formats that has a place for an action, if there are any."""
        around = [format for format in formats if _is_of_actions(format)]
        if not around:
            return said
        return tuple(
            Message("assistant", _around(self._rng.choice(around), message.content))
            if message.role == "assistant"
            else message
            for message in said
        )

    def _formats_by_preference(self, preference: Preference | None) -> Sequence[str]:
        """The formats of one objective, drawn by its weight; empty if they do not depend on the preference."""
        if not self._ways or preference is None:
            return ()
        (drawn,) = self._rng.choices(list(preference), list(preference.values()))
        return self._ways[drawn]

    def _formats(self, family: str) -> Sequence[str]:
        fitting = self._formats_if_any(family)
        if fitting is None:
            some = ", ".join(self._settings.formats)
            raise ConfigError(f"algorithm.warm_start.formats: none for {family}, only for {some}. Add it, or '*'.")
        return fitting

    def _formats_if_any(self, family: str) -> Sequence[str] | None:
        formats = self._settings.formats
        if not isinstance(formats, Mapping):
            return formats
        return next((each for pattern, each in formats.items() if fnmatchcase(family, pattern)), None)

    def _spoilt(self, work: str, answer: str, other: str) -> tuple[str, str]:
        """Another digit in the answer, and in the work if it ends with the answer; without digits, another answer."""
        digits = [match.start() for match in re.finditer("[0-9]", answer)]
        if not digits:
            return work, other
        at = self._rng.choice(digits)
        digit = self._rng.choice([d for d in "123456789" if d != answer[at]])
        wrong = answer[:at] + digit + answer[at + 1 :]
        return work.removesuffix(answer) + wrong if work.endswith(answer) else work, wrong


def _format_answer(format: str, work: str, answer: str) -> str:
    return format.replace("{work}", work).replace("{answer}", answer).strip()


def _is_of_actions(format: str) -> bool:
    return ACTION in format or COMMAND in format


def _around(format: str, action: str) -> str:
    (*_, command) = action.strip().splitlines() or [""]
    return format.replace(COMMAND, command).replace(ACTION, action).strip()


def _family(environment: BaseEnvironment, task: Task) -> str:
    return f"{environment.name}/{task.family}"


def _encode_all(
    episodes: Sequence[Conversation], tokenizer: PreTrainedTokenizerBase, vision: Vision | None
) -> Iterator[Demonstration]:
    spans = [_spans(said, tokenizer, seeing=vision is not None) for said in episodes]
    texts = [text for episode in spans for text in episode]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    for said, episode in zip(episodes, spans, strict=True):
        ids: list[int] = []
        mask: list[bool] = []
        pictures = pictures_of(said)
        for index, span in enumerate(islice(encoded, len(episode))):
            if vision is not None and index % 2 == 0:
                count = span.count(vision.image_token)
                shown = pictures[:count]
                pictures = pictures[count:]
                span = vision.expand(np.asarray(span, np.int32), shown)[0].tolist()
            ids += span
            mask += [index % 2 == 1] * len(span)
        yield Demonstration(said, ids, mask)


def _spans(said: Conversation, tokenizer: PreTrainedTokenizerBase, *, seeing: bool) -> list[str]:
    """Prompt, answer, prompt, answer, …: the assistant's texts, each with its end token, alternate with the rest."""
    spans: list[str] = []
    text = ""
    for index, message in enumerate(said):
        if message.role != "assistant":
            continue
        turns = as_template(said[:index], seeing=seeing)
        rendered = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        if not rendered.startswith(text):
            raise ConfigError(
                "the chat template rewrites earlier turns, so that no episode has one sequence of tokens."
            )
        answer = f"{message.content}{tokenizer.eos_token}"
        spans += [rendered[len(text) :], answer]
        text = rendered + answer
    return spans
