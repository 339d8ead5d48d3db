"""A caller's wishes in the form that an engine takes: ids, sampling, and the beginning of the answer; or a Refusal."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from loomrl.config import Sampling
from loomrl.errors import PolicyError
from loomrl.inference.chat import PromptIds
from loomrl.inference.engine import Request, Sight
from loomrl.inference.policy import Voice
from loomrl.picture import fault
from loomrl.serving.call import Drawing
from loomrl.serving.policy import Continuation
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.wording import begun_call, opening, restrict_calls, to_messages
from loomrl.types import Form, Message, Odds

Ids = NDArray[np.int32]
MOST_CHOICES = 128
MOST_TOP = 20
"""Likeliest tokens beside each sampled one."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """A continuation, ready to be sampled."""

    continuation: Continuation
    opened_T: Ids
    request: Request
    forced: str
    """The end of the prompt with which a call in the answer begins."""


class Preparation:
    """Renders and tokenises the new part of a conversation. Known ids are never tokenised again."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._chat = voice.chat
        self._tool_role = voice.chat.takes("tool")

    def task(self, continuation: Continuation) -> PreparedRequest:
        """The prompt and the settings; a Refusal if something is wrong with them."""
        drawing = continuation.drawing
        if not 1 <= drawing.n <= MOST_CHOICES:
            raise Refusal(RefusalCause.INVALID, f"n={drawing.n}: 1 to {MOST_CHOICES} choices are possible.", where="n")
        if not all(drawing.stop):
            raise Refusal(RefusalCause.INVALID, "a stop string is empty.", where="stop")
        forced = continuation.prefill or self._force_beginning(continuation)
        known_T = continuation.known_T
        new = self._new(continuation)
        opened_T = np.concatenate([new.ids, self._chat.encode(forced)[:-1]]) if forced else new.ids
        prompt_T = np.concatenate([known_T, opened_T]).astype(np.int32)
        sights = tuple(Sight(picture.png, picture.start) for picture in continuation.pictures)
        sights += tuple(Sight(sight.picture, sight.start + len(known_T)) for sight in new.sights)
        sampling = self._sampling(drawing, len(prompt_T))
        seed = random.getrandbits(63) if drawing.seed is None else drawing.seed % 2**63
        stop = self._chat.stop
        begun = begun_call(forced) if continuation.prefill else forced
        form = _form(continuation)
        if form is not None and continuation.prefill and (begun or drawing.form is not None):
            message = "an answer with a form cannot be begun by the caller: leave out the form, or the last message."
            raise Refusal(RefusalCause.INVALID, message, where="messages")
        request = Request(
            prompt_T, sampling, stop, seed, sights, _top(drawing), self._voice.adapter, form, self._odds(drawing)
        )
        return PreparedRequest(continuation, opened_T.astype(np.int32), request, begun)

    def _force_beginning(self, continuation: Continuation) -> str:
        """The beginning of an answer that has to call a tool."""
        choice = continuation.tool_choice
        names = [tool.name for tool in continuation.tools]
        named = choice.removeprefix("tool:") if choice.startswith("tool:") else None
        if (choice == "required" and not names) or (named is not None and named not in names):
            known = ", ".join(names) or "none"
            raise Refusal(RefusalCause.INVALID, f"tool_choice={choice!r}: the tools are {known}.", where="tool_choice")
        return opening(choice, continuation.tools)

    def _new(self, continuation: Continuation) -> PromptIds:
        """The ids after the known ones; positions of pictures count from the first of them."""
        known_T = continuation.known_T
        prompt = continuation.prompt
        if isinstance(prompt, str):
            self._check_room(continuation, [prompt])
            return self._check_tokens(PromptIds(self._chat.plain(prompt, first=not len(known_T))), known_T)
        if prompt is not None:
            return self._check_tokens(PromptIds(self._ids(prompt)), known_T)
        tools = () if len(known_T) else continuation.tools
        messages = to_messages(continuation.messages, tools, tool_role=self._tool_role)
        self._check_messages(messages, continuation)
        try:
            # without the cache, which keeps what the members of a group share: callers share little
            if not len(known_T):
                return self._check_tokens(self._chat.opening.__wrapped__(messages), known_T)
            new = self._chat.following.__wrapped__(messages)
        except PolicyError as error:
            raise Refusal(RefusalCause.INVALID, str(error), where="messages") from None
        if int(known_T[-1]) != self._chat.end:
            return new
        return PromptIds(new.ids[1:], tuple(Sight(sight.picture, sight.start - 1) for sight in new.sights))

    def _check_tokens(self, prompt: PromptIds, known_T: Ids) -> PromptIds:
        if not len(prompt.ids) and not len(known_T):
            raise Refusal(RefusalCause.INVALID, "the prompt has no tokens: give at least one.", where="prompt")
        return prompt

    def _odds(self, drawing: Drawing) -> Odds | None:
        """The caller's changes of odds; a Refusal for ids that the policy does not have."""
        last = len(self._chat.spelling) - 1
        biased = () if drawing.odds is None else drawing.odds.logit_bias
        if (wrong := next((id for id, _ in biased if id > last), None)) is not None:
            raise Refusal(
                RefusalCause.INVALID, f"there is no token id {wrong}: ids are 0 to {last}.", where="logit_bias"
            )
        return drawing.odds

    def _ids(self, prompt: Sequence[int]) -> Ids:
        last = len(self._chat.spelling) - 1
        wrong = next((id for id in prompt if not 0 <= id <= last), None)
        if wrong is not None:
            raise Refusal(
                RefusalCause.INVALID, f"the prompt has token id {wrong}: ids are 0 to {last}.", where="prompt"
            )
        return np.array(prompt, np.int32)

    def _check_messages(self, messages: Sequence[Message], continuation: Continuation) -> None:
        for png in (png for message in messages for png in message.images):
            if wrong := fault(png):
                raise Refusal(RefusalCause.INVALID, f"a picture cannot be read: {wrong}.", where="messages")
            if not self._chat.sees:
                raise Refusal(RefusalCause.INVALID, "this policy reads no pictures: send text only.", where="messages")
        self._check_room(continuation, [message.content for message in messages])

    def _check_room(self, continuation: Continuation, texts: Sequence[str]) -> None:
        """A Refusal for text that is too long even if all its tokens are the longest, before it is tokenised."""
        if _only_counts(continuation.drawing):
            return
        least = len(continuation.known_T) + sum(len(text.encode()) for text in texts) // self._chat.spelling.longest
        if least >= self._voice.context:
            raise self._too_long(f"at least {least}")

    def _too_long(self, tokens: str) -> Refusal:
        return Refusal(
            RefusalCause.TOO_LONG,
            f"the conversation has {tokens} tokens, and the policy's context is {self._voice.context} tokens with the "
            "answer. Shorten it, or begin another one.",
            where="messages",
        )

    def _sampling(self, drawing: Drawing, prompt: int) -> Sampling:
        """The policy's own sampling with the caller's changes; its length is cut to the room that is left."""
        room = self._voice.context - prompt
        if drawing.max_tokens == 0:  # nothing is drawn: a prompt that is scored has to be read, and a count is a count
            room = 1 if room >= 0 or _only_counts(drawing) else 0
        if room < 1:
            raise self._too_long(str(prompt))
        most = drawing.max_tokens or None
        asked = {"temperature": drawing.temperature, "top_p": drawing.top_p, "max_tokens": most}
        given = {name: value for name, value in asked.items() if value is not None}
        if given.get("top_p") == 0:
            given["top_p"] = 1e-9  # only the likeliest token, as others understand 0
        try:
            sampling = Sampling.model_validate({**self._voice.sampling.model_dump(), "entropies": False, **given})
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][-1])
            raise Refusal(RefusalCause.INVALID, f"{name}={given.get(name)!r}: {first['msg']}.", where=name) from None
        return sampling.model_copy(update={"max_tokens": min(sampling.max_tokens, room)})


def _only_counts(drawing: Drawing) -> bool:
    """True if the prompt is only tokenised."""
    return drawing.max_tokens == 0 and not drawing.logprobs


def _form(continuation: Continuation) -> Form | None:
    try:
        return restrict_calls(continuation)
    except ValueError as error:
        raise Refusal(RefusalCause.INVALID, str(error)) from None


def _top(drawing: Drawing) -> int:
    if not 0 <= drawing.top_logprobs <= MOST_TOP:
        raise Refusal(
            RefusalCause.INVALID,
            f"top_logprobs={drawing.top_logprobs}: it must be 0 to {MOST_TOP}.",
            where="top_logprobs",
        )
    return drawing.top_logprobs if drawing.logprobs else 0
