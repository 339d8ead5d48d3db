"""Conversations as token ids. Text is tokenised once, when it is new; sampled ids are never re-tokenised from text."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from loomrl.errors import ConfigError, PolicyError
from loomrl.gym.preference import Preference, line, parse_weights
from loomrl.inference.engine import Sight
from loomrl.inference.experts import SETTING
from loomrl.inference.model import open_tokenizer
from loomrl.inference.vision import Vision, open_vision
from loomrl.types import Message

OBJECTIVES = "loomrl_objectives"
"""Names of the objectives of a policy that reads a preference, in the configuration of its tokenizer."""


def objectives_of(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """The objectives that a policy with this tokenizer weighs; none if it reads no preference."""
    return tuple(tokenizer.init_kwargs.get(OBJECTIVES) or ())


def name_objectives(tokenizer: PreTrainedTokenizerBase, objectives: Sequence[str]) -> None:
    """Have the tokenizer's folder name these objectives."""
    if objectives:
        tokenizer.init_kwargs[OBJECTIVES] = list(objectives)


def fix_preference(folder: Path, preference: Preference) -> None:
    """Make a steerable policy's folder an ordinary one, whose chat template always has this preference."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    objectives = settings.pop(OBJECTIVES, None)
    if objectives is None:
        raise ConfigError(f"preference={dict(preference)}: this policy reads no preference, leave it out.")
    if SETTING in json.loads((folder / "config.json").read_text()):
        raise ConfigError(
            "--preference: this policy has several experts, and a mixture of distributions is none that an ordinary "
            "model has. Serve it as it is, by the torch engine, or train with algorithm.experts=1."
        )
    template = folder / "chat_template.jinja"
    apart = template.exists()
    given = template.read_text() if apart else settings["chat_template"]
    always = _always(line(parse_weights(preference, objectives))) + given
    if apart:
        template.write_text(always)
    else:
        settings["chat_template"] = always
    file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def _always(said: str) -> str:
    """The beginning of a chat template that puts a line into the system message, as `gym.preference.shown` does."""
    text = json.dumps(said)
    return (
        "{%- if messages and messages[0].role == 'system' -%}"
        "{%- set first = {'role': 'system', 'content': messages[0].content ~ '\\n' ~ " + text + "} -%}"
        "{%- set messages = [first] + messages[1:] -%}{%- else -%}"
        "{%- set messages = [{'role': 'system', 'content': " + text + "}] + messages -%}{%- endif -%}"
    )


SPACE = "▁"
"""A space in vocabularies of SentencePiece."""


class Spelling:
    """The bytes of each token of a vocabulary. Ids without a token have none."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._kinds = _decoders(tokenizer)
        self._bytes = {letter: byte for byte, letter in enumerate(_letters())}
        self._known: dict[int, bytes] = {}
        self.longest = max((len(token.encode()) for token in tokenizer.get_vocab()), default=1)
        """No token stands for more bytes of text."""

    def __getitem__(self, id: int) -> bytes:
        found = self._known.get(id)
        if found is None:
            found = self._known[id] = self._spell(id)
        return found

    def __len__(self) -> int:
        """The number of ids that have a token."""
        return len(self._tokenizer)

    def _spell(self, id: int) -> bytes:
        tokenizer: Any = self._tokenizer
        token = tokenizer.convert_ids_to_tokens(id) if 0 <= id < len(tokenizer) else None
        if token is None:
            return b""
        if "ByteLevel" in self._kinds:
            known = [self._bytes.get(letter) for letter in token]
            return token.encode() if None in known else bytes(byte for byte in known if byte is not None)
        if "ByteFallback" in self._kinds and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        if self._kinds & {"ByteFallback", "Metaspace"}:
            return str(token).replace(SPACE, " ").encode()
        return str(tokenizer.decode([id], clean_up_tokenization_spaces=False)).encode()


def _decoders(tokenizer: Any) -> set[str]:
    """The names of the parts of a fast tokenizer's decoder; none for others."""
    decoder = tokenizer.backend_tokenizer.decoder if tokenizer.is_fast else None
    if decoder is None:
        return set()
    told = json.loads(decoder.__getstate__())
    return {told["type"], *(part["type"] for part in told.get("decoders", ()))}


def _letters() -> list[str]:
    """The letter of each byte in byte-level vocabularies: itself if it can be printed, else one after U+0100."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256))
    return [chr(byte) if byte in shown else chr(256 + next(hidden)) for byte in range(256)]


Ids = NDArray[np.int32]

ANSWER = "LoomAnswer"
"""Placeholder for an assistant's text, to render only what surrounds it."""
LITERAL = re.compile("\ue000([0-9]+)\ue001")
"""Placeholder for a special token's name in a message, where the name is text and must not become the token."""
REMEMBERED = 4096
"""Size of the rendering cache: the members of a group share their prompts."""
SEEN = 256
"""Size of the cache for models that see pictures, which are kept with the rendering."""


class PromptIds(NamedTuple):
    """New ids, and the pictures' positions in them."""

    ids: Ids
    sights: tuple[Sight, ...] = ()


class ChatTemplate:
    """A tokenizer's chat template, split so that every message is rendered and tokenised once.

    Its construction proves that the tokenizer round-trips its own template and that a longer conversation begins with
    exactly the ids of the shorter one; otherwise a ConfigError shows the difference.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vision: Vision | None = None) -> None:
        self._tokenizer = tokenizer
        self._vision = vision
        self._name = tokenizer.name_or_path or type(tokenizer).__name__
        self._specials = sorted(set(tokenizer.all_special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, self._specials)) or "(?!)")
        remembered = REMEMBERED if vision is None else SEEN
        self.opening = lru_cache(remembered)(self._opening)
        self.following = lru_cache(remembered)(self._following)
        if not tokenizer.chat_template:
            raise self._refusal("it has no chat template")
        try:
            self.end = self._end()
            """The token that ends an assistant's turn."""
            self._check()
        except PolicyError as error:
            raise self._refusal(str(error)) from error
        also = set() if tokenizer.eos_token_id is None else {int(tokenizer.eos_token_id)}
        self.stop = frozenset({self.end, *also})
        """The tokens with which a policy can end its turn."""

    @property
    def objectives(self) -> tuple[str, ...]:
        """Those that a preference in the conversation may weigh; none if the policy reads no preference."""
        return objectives_of(self._tokenizer)

    @cached_property
    def spelling(self) -> Spelling:
        """The bytes of every token."""
        return Spelling(self._tokenizer)

    @property
    def sees(self) -> bool:
        """True if messages may have pictures."""
        return self._vision is not None

    def takes(self, role: str) -> bool:
        """True if the template shows messages of this role after an assistant's turn."""
        try:
            shown = self._render([Message("user", "-"), Message("assistant", "-"), Message(role, ANSWER)])
        except PolicyError:
            return False
        return ANSWER in shown

    def plain(self, text: str, *, first: bool = True) -> Ids:
        """The ids of a text without a template, in which names of special tokens are special tokens.

        `first`: with what the tokenizer puts before a text.
        """
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=first), np.int32)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of sampled ids without the stop token. Invalid bytes become U+FFFD."""
        kept = list(map(int, ids))
        if kept and kept[-1] in self.stop:
            kept.pop()
        text = self._tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)

    def encode(self, text: str) -> Ids:
        """An assistant's turn as if it had been sampled: the ids of its text, then the end of the turn."""
        return np.asarray([*self._encode(self._literal(text)), self.end], np.int32)

    def _opening(self, messages: tuple[Message, ...]) -> PromptIds:
        """The ids of a whole conversation up to the assistant's turn."""
        escaped = [m._replace(content=self._literal(m.content)) for m in messages]
        return self._prompt(self._encode(self._render(escaped)), messages)

    def _following(self, messages: tuple[Message, ...]) -> PromptIds:
        """The ids between two texts of the assistant: the end of its turn, then these messages."""
        escaped = [m._replace(content=self._literal(m.content)) for m in messages]
        rendered = self._render([Message("user", "-"), Message("assistant", ANSWER), *escaped])
        ids = self._encode(rendered.partition(ANSWER)[2])
        if not ids or ids[0] != self.end:
            raise PolicyError(f"tokenizer {self._name!r}: its template ends this turn in another way than others.")
        return self._prompt(ids, messages)

    def _prompt(self, ids: list[int], messages: Sequence[Message]) -> PromptIds:
        ids_T = np.asarray(ids, np.int32)
        pictures = pictures_of(messages)
        return PromptIds(ids_T) if self._vision is None else PromptIds(*self._vision.expand(ids_T, pictures))

    def _literal(self, text: str) -> str:
        return self._special.sub(lambda found: f"\ue000{self._specials.index(found[0])}\ue001", text)

    def _render(self, messages: Sequence[Message], *, prompt: bool = True) -> str:
        plain = as_template(messages, seeing=self._vision is not None)
        try:
            text = self._tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=prompt)
        except Exception as error:  # the boundary: templates are programs
            roles = ", ".join(message.role for message in messages) or "no messages"
            raise PolicyError(f"tokenizer {self._name!r}: its template refuses {roles}: {error}") from error
        if any(m.role == "system" and m.content.strip() not in text for m in messages):
            raise PolicyError(
                f"tokenizer {self._name!r}: its template drops the system message, so the policy would not see it. "
                "Say it in the user's first message, or give the folder a template that shows it."
            )
        return str(text)

    def _encode(self, text: str) -> list[int]:
        """Token ids; special tokens are recognised only in the template's own text."""
        ids: list[int] = []
        for index, part in enumerate(LITERAL.split(text)):
            if index % 2:
                name = self._specials[int(part)]
                ids += self._tokenizer.encode(name, add_special_tokens=False, split_special_tokens=True)
            elif part:
                ids += self._tokenizer.encode(part, add_special_tokens=False)
        return ids

    def _end(self) -> int:
        text = self._render([Message("user", "-"), Message("assistant", ANSWER)], prompt=False).partition(ANSWER)[2]
        ids = self._encode(text)
        if not ids or ids[0] not in self._tokenizer.all_special_ids:
            raise self._refusal(f"after an assistant's turn its template puts {text!r}, no special token that ends it")
        return ids[0]

    def _check(self) -> None:
        """Compose a conversation from its parts, as text and as ids, and compare with the whole."""
        ask = Message("user", "1 + 1 = ?\nSay <b>'é'</b>.")
        more = Message("user", " And then? ")
        said = Message("assistant", "Two, I think.")
        first = self._render([ask])
        whole = self._render([ask, said, more, said, more])
        between = self._render([Message("user", "-"), said, more]).partition(said.content)[2]
        composed = first + (said.content + between) * 2
        if composed != whole:
            at = next((i for i, (a, b) in enumerate(zip(composed, whole, strict=False)) if a != b), len(whole))
            raise self._refusal(
                "its template writes earlier turns differently as the conversation grows: "
                f"{composed[at : at + 40]!r} became {whole[at : at + 40]!r}"
            )
        again = self._tokenizer.decode(
            self._encode(whole), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        if again != whole:
            raise self._refusal(f"it turns {whole[:200]!r} into {str(again)[:200]!r}")

    def _refusal(self, difference: str) -> ConfigError:
        return ConfigError(
            f"tokenizer {self._name!r} does not round-trip its own chat template: {difference}. "
            "Use a tokenizer and template that keep text and earlier turns as they are."
        )


def open_chat(folder: str | Path, *, trust_remote_code: bool = False) -> ChatTemplate:
    """The chat of the model in a folder."""
    vision = open_vision(folder, trust_remote_code=trust_remote_code)
    return ChatTemplate(open_tokenizer(folder, trust_remote_code=trust_remote_code), vision)


def pictures_of(messages: Iterable[Message]) -> list[bytes]:
    """All pictures in order."""
    return [picture for message in messages for picture in message.images]


def as_template(messages: Sequence[Message], *, seeing: bool) -> list[dict[str, Any]]:
    """Messages in the form of chat templates; for models with vision, content is a list of parts, pictures first."""
    if seeing:
        return [{"role": m.role, "content": _parts(m)} for m in messages]
    if pictures_of(messages):
        raise PolicyError(
            "the environment shows pictures, and the model has no vision: choose one that sees, or "
            "algorithm.model.build.vision."
        )
    return [{"role": m.role, "content": m.content} for m in messages]


def _parts(message: Message) -> list[dict[str, str]]:
    return [*({"type": "image"} for _ in message.images), {"type": "text", "text": message.content}]


class Transcript:
    """The token ids of one episode, in the order in which the policy sees them; only ever appended to."""

    def __init__(self, chat: ChatTemplate) -> None:
        self._chat = chat
        self._spans: list[Ids] = []
        self.sights: tuple[Sight, ...] = ()
        """The pictures' positions in the transcript."""

    @property
    def ids(self) -> Ids:
        """Everything so far."""
        return np.concatenate(self._spans) if self._spans else np.zeros(0, np.int32)

    def observe(self, messages: Sequence[Message]) -> Ids:
        """Append messages of others and return the new prompt ids.

        They begin with the end of the policy's turn if the policy did not sample it.
        """
        start = sum(map(len, self._spans))
        if not self._spans:
            new, sights = self._chat.opening(tuple(messages))
        else:
            new, sights = self._chat.following(tuple(messages))
            if self._spans[-1].size and self._spans[-1][-1] == self._chat.end:
                new = new[1:]
                start = start - 1
        self._spans.append(new)
        self.sights += tuple(Sight(sight.picture, sight.start + start) for sight in sights)
        return new

    def append_sampled(self, ids: Sequence[int] | Ids) -> None:
        """Append the tokens that the policy sampled."""
        self._spans.append(np.asarray(ids, np.int32))
