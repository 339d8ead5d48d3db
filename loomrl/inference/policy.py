"""Policies that sample tokens: one speaker per episode, all on one engine."""

import random
from dataclasses import dataclass

import torch

from loomrl.config import LanguagePolicy, PolicyChoice, Sampling
from loomrl.config.engine import TorchEngineConfig
from loomrl.errors import ContextFull
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.policy import Action, PolicyFactory
from loomrl.gym.policy import open_policy as open_other_policy
from loomrl.inference.chat import ChatTemplate, Transcript, open_chat
from loomrl.inference.engine import Engine, Request
from loomrl.inference.gguf import model_folder
from loomrl.inference.open import Opening, fitted, open_engine
from loomrl.types import Message, Tokens

SLOTS = 256
"""Open requests of a policy that plays beside others."""


@dataclass(frozen=True, slots=True)
class Voice:
    """The settings shared by all speakers of a policy. `context` is the limit of tokens per episode."""

    engine: Engine
    chat: ChatTemplate
    sampling: Sampling
    context: int
    adapter: str = ""
    """The name under which the engine holds the policy, if it holds several."""


class Speaker:
    """Answers one conversation with tokens from the engine. Text is never tokenised twice."""

    def __init__(self, voice: Voice, environment: BaseEnvironment, rng: random.Random) -> None:
        self._voice = voice
        self._environment = environment
        self._rng = rng
        self._transcript = Transcript(voice.chat)
        self._heard = 0

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The next action; its tokens are the ids that are new in this turn."""
        prompt = self._transcript.observe(conversation[self._heard :])
        drawn = await self._voice.engine.generate(self._request())
        self._transcript.append_sampled(drawn.ids_T)
        self._heard = len(conversation) + 1
        tokens = Tokens.sampled(
            prompt, drawn.ids_T, drawn.logprobs_T, drawn.versions_T, drawn.entropies_T, drawn.shifts_T
        )
        return Action(self._voice.chat.decode(drawn.ids_T), tokens)

    def _request(self) -> Request:
        ids = self._transcript.ids
        sampling = self._voice.sampling
        context = self._voice.context
        room = context - len(ids)
        if room < 1:
            raise ContextFull(
                f"context={context} tokens are too few: the conversation has {len(ids)} before an answer. "
                "Raise the model's context or shorten the episode."
            )
        if room < sampling.max_tokens:
            sampling = sampling.model_copy(update={"max_tokens": room})
        seed = self._rng.getrandbits(63)
        voice = self._voice
        form = self._environment.form()
        return Request(ids, sampling, voice.chat.stop, seed, self._transcript.sights, adapter=voice.adapter, form=form)


def speakers(voice: Voice) -> PolicyFactory:
    """The factory of speakers with these settings."""

    def speaker(environment: BaseEnvironment, rng: random.Random) -> Speaker:
        return Speaker(voice, environment, rng)

    return speaker


def open_policy(choice: PolicyChoice) -> PolicyFactory:
    """The factory that `choice` names; a language policy's model is opened once, here, and shared by all episodes."""
    if not isinstance(choice, LanguagePolicy):
        return open_other_policy(choice)
    return speakers(open_voice(choice))


def open_voice(choice: LanguagePolicy) -> Voice:
    """A language policy's model on a torch engine."""
    trusts = choice.trust_remote_code
    folder = model_folder(choice.path)
    opening = Opening(
        origin=folder,
        context=choice.context,
        slots=SLOTS,
        device="cuda" if torch.cuda.is_available() else "cpu",
        trust_remote_code=trusts,
        version=choice.version,
    )
    chat = open_chat(folder, trust_remote_code=trusts)
    return Voice(open_engine(TorchEngineConfig(), fitted(opening)), chat, choice.sampling, choice.context)
