"""Another version's answer at a place of a recorded conversation, from the recorded token ids."""

import asyncio
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loomrl.config import Sampling, TorchEngineConfig
from loomrl.errors import ConfigError
from loomrl.inference.chat import ChatTemplate, open_chat
from loomrl.inference.engine import Completion, Request
from loomrl.inference.open import Opening, fitted, longest_context, open_engine
from loomrl.serving.deployment.source import PolicySource, fetch, source_of
from loomrl.store import LoomDB
from loomrl.types import Trajectory, Turn

CONTEXT = 4096
"""Tokens of a conversation with a model that no run made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPlace:
    """A sampled token of a thread, by its number over all turns of the thread, and the tokens around it."""

    thread: int
    turn: int
    """Within the thread, from 1."""
    token: int
    before_T: NDArray[np.int32]
    said_T: NDArray[np.int32]
    """The tokens from there to the end of the turn's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The recorded text from a token on, and the other version's."""

    version: str
    thread: int
    turn: int
    """Within the thread, from 1."""
    token: int
    recorded: str
    said: str
    ids: list[int]
    logprobs: list[float]
    finish: str


def starts_of(trajectory: Trajectory, thread: int) -> list[int]:
    """The number of the first sampled token of each turn that has one; -1 for others."""
    found = []
    at = 0
    for turn in trajectory.sequences[thread] if thread < len(trajectory.sequences) else ():
        sampled_K = np.zeros(0) if turn.tokens is None else np.flatnonzero(turn.tokens.mask_T)
        found.append(at + int(sampled_K[0]) if len(sampled_K) else -1)
        at += 0 if turn.tokens is None else len(turn.tokens)
    return found


def find_place(trajectory: Trajectory, *, thread: int, turn: int | None = None, token: int | None = None) -> TokenPlace:
    """The place of a token, of a turn's answer, or of the last one; a ConfigError if nothing was sampled there."""
    if not 0 <= thread < len(trajectory.sequences):
        raise ConfigError(f"thread={thread}: the trajectory has {len(trajectory.sequences)}, counted from 0.")
    turns = trajectory.sequences[thread]
    if any(message.images for each in turns for message in each.observation):
        raise ConfigError("the conversation has pictures, of which a record of ids knows only the place. Take another.")
    starts = starts_of(trajectory, thread)
    if max(starts, default=-1) < 0:
        raise ConfigError("no sampled token is on record in this thread: there is nothing to continue from.")
    if token is None:
        number = len(turns) if turn is None else turn
        if not 1 <= number <= len(turns) or starts[number - 1] < 0:
            raise ConfigError(f"turn={number}: sampled turns are {_numbers(starts)}.")
        token = starts[number - 1]
    return _place_of(turns, thread, token, starts)


def _place_of(turns: tuple[Turn, ...], thread: int, token: int, starts: list[int]) -> TokenPlace:
    at = 0
    before: list[NDArray[np.int32]] = []
    for number, turn in enumerate(turns, start=1):
        if turn.tokens is None:
            continue
        ids_T = turn.tokens.ids_T
        within = token - at
        if 0 <= within < len(ids_T):
            if not turn.tokens.mask_T[within]:
                raise ConfigError(f"token={token} was not sampled. Answers begin at {_numbers(starts, of='token')}.")
            before.append(ids_T[:within])
            before_T = np.concatenate(before)
            return TokenPlace(thread=thread, turn=number, token=token, before_T=before_T, said_T=ids_T[within:])
        before.append(ids_T)
        at += len(ids_T)
    raise ConfigError(f"token={token}: the thread has tokens 0 to {at - 1}.")


def _numbers(starts: list[int], *, of: str = "turn") -> str:
    return ", ".join(str(start if of == "token" else number) for number, start in enumerate(starts, 1) if start >= 0)


def continue_from(
    place: TokenPlace, trajectory: Trajectory, what: str, db: LoomDB, *, temperature: float = 0.0, seed: int = 0
) -> Continuation:
    """The answer of version `RUN/STEP` to the recorded ids before a place."""
    source = source_of(what, db)
    if source.kind != "language":
        raise ConfigError(f"policy {what!r} is one of control: it says nothing.")
    folder = fetch(source, db)
    try:
        chat = open_chat(folder.path, trust_remote_code=source.trust_remote_code)
        _refuse_other_words(chat, trajectory, what)
        context = longest_context(folder.path, source.context or CONTEXT, trust_remote_code=source.trust_remote_code)
        opening = fitted(
            Opening(
                origin=folder.path,
                context=context,
                slots=1,
                trust_remote_code=source.trust_remote_code,
                version=source.number,
            )
        )
        request = _request(place, source, chat, context, temperature=temperature, seed=seed)
        drawn = asyncio.run(_draw(opening, request))
    finally:
        folder.discard()
    return Continuation(
        version=source.version,
        thread=place.thread,
        turn=place.turn,
        token=place.token,
        recorded=chat.decode(place.said_T),
        said=chat.decode(drawn.ids_T),
        ids=drawn.ids_T.tolist(),
        logprobs=[round(float(each), 5) for each in drawn.logprobs_T],
        finish=drawn.finish.value,
    )


async def _draw(opening: Opening, request: Request) -> Completion:
    engine = open_engine(TorchEngineConfig(), opening)
    try:
        return await engine.generate(request)
    finally:
        await engine.close()


def _request(
    place: TokenPlace, source: PolicySource, chat: ChatTemplate, context: int, *, temperature: float, seed: int
) -> Request:
    """The recorded ids as they are, and as many new ones as an answer of the version may have."""
    room = context - len(place.before_T)
    if room < 1:
        raise ConfigError(f"{len(place.before_T)} tokens come before, and {source.version} has a context of {context}.")
    sampling = source.sampling or Sampling(max_tokens=256)
    asked = sampling.model_copy(
        update={"temperature": temperature, "max_tokens": min(room, sampling.max_tokens), "entropies": False}
    )
    return Request(place.before_T, asked, chat.stop, seed)


def _refuse_other_words(chat: ChatTemplate, trajectory: Trajectory, what: str) -> None:
    """Ids mean the same under one tokenizer only: a ConfigError if no answer reads as it was recorded."""
    told = [(turn.tokens, turn.action) for turns in trajectory.sequences for turn in turns if turn.tokens is not None]
    if not any(chat.decode(tokens.ids_T[tokens.mask_T]).strip() == action.strip() for tokens, action in told):
        raise ConfigError(
            f"policy {what!r} reads the recorded ids as other words: it has another tokenizer. Ids are never tokenised "
            "again, so take a version of a run with the same model."
        )
