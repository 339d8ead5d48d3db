"""A text policy behind `/v1/chat/completions`: it can be evaluated on any server. Without token ids, no training."""

import random

from loomrl.config import OpenAIPolicy
from loomrl.errors import PolicyError
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.policy import Action, PolicyFactory
from loomrl.inference.remote.dialect import as_openai
from loomrl.inference.remote.server import ServerClient, run_apart
from loomrl.types import Message


class ServedSpeaker:
    """Sends the whole conversation and returns the answer."""

    def __init__(self, server: ServerClient, choice: OpenAIPolicy, rng: random.Random) -> None:
        self._server = server
        self._choice = choice
        self._rng = rng

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The server's next message; a PolicyError if there is none."""
        sampling = self._choice.sampling
        body = {
            "model": self._choice.model,
            "messages": [as_openai(message) for message in conversation],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": self._rng.getrandbits(31),
        }
        answer = await self._server.post("/v1/chat/completions", body)
        try:
            text = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            text = None
        if not isinstance(text, str):
            raise PolicyError(f"{self._server.url}: an answer without text: {str(answer)[:300]}")
        return Action(text)


def meet(choice: OpenAIPolicy) -> None:
    """Raise an error if the server does not answer or lacks the model: better once than in every episode."""
    run_apart(_server(choice).check(choice.model))


def speakers_on_server(choice: OpenAIPolicy) -> PolicyFactory:
    """The factory of speakers for one model on one server."""
    server = _server(choice)

    def speaker(environment: BaseEnvironment, rng: random.Random) -> ServedSpeaker:
        return ServedSpeaker(server, choice, rng)

    return speaker


def _server(choice: OpenAIPolicy) -> ServerClient:
    return ServerClient(choice.url, key_variable=choice.key_variable, timeout_s=choice.timeout_s)
