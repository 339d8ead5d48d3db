"""The parts of a conversation that every dialect has: texts, pictures, messages in their order, tools."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from loomrl.picture import LARGEST, MOST, fault
from loomrl.serving.body import Body, invalid
from loomrl.serving.call import ChatMessage, ToolCall, ToolSpec
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.thread import RecalledConversation

MOST_MESSAGES = 4096
MOST_PARTS = 256
"""Parts of one message."""
MOST_CALLS = 128
"""Calls of one message."""
MOST_TOOLS = 512
BETWEEN = "\n"
"""Between the text parts of one message."""
MOST_JPEG_PIXELS = 1 << 21
"""Pixels of one JPEG file: they are decoded here, and kept as PNG."""
TYPES = ("image/png", "image/jpeg")


class _CacheControl(Body):
    """A hint for the provider's cache, which changes no answer."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class Cacheable(Body):
    """A part of a request after which a provider may be told to cache."""

    cache_control: _CacheControl | None = None


class TextPart(Cacheable):
    """A text among the parts of a message."""

    text: str


class PicturePart(Cacheable):
    """A picture among the parts of a message."""

    @property
    def png(self) -> bytes:
        """The file."""
        raise NotImplementedError


class ConversationReader:
    """Messages as they are read, after earlier ones. Tools answer calls before them."""

    def __init__(self, where: str, earlier: Sequence[ChatMessage] = ()) -> None:
        self._where = where
        self._said = list(earlier)
        self._called = {call.id: call.name for said in earlier for call in said.calls}

    def add(self, said: ChatMessage, where: str) -> None:
        """Append a message."""
        if said.role == "tool" and said.answers not in self._called:
            raise invalid(where, f"a tool answers {said.answers!r}, and no message before it has a call of this id.")
        if len(said.images) > MOST:
            raise invalid(where, f"{len(said.images)} pictures in one message are more than {MOST}.")
        self._called.update({call.id: call.name for call in said.calls})
        self._said.append(said)

    def last(self) -> ChatMessage | None:
        """The newest message."""
        return self._said[-1] if self._said else None

    def amend(self, call: ToolCall) -> None:
        """Add a call to the last message."""
        self._called[call.id] = call.name
        self._said[-1] = replace(self._said[-1], calls=(*self._said[-1].calls, call))

    def check_tool(self, name: str | None, call: str, where: str) -> None:
        """A Refusal if a result names another tool than the call that it answers."""
        if name is not None and name != self._called[call]:
            raise invalid(where, f"{name!r} is not supported. Only {self._called[call]!r} is.")

    def take_prefill(self, choice: str) -> str:
        """Take out the last message, if it is the assistant's: its text is the beginning of the answer."""
        last = self.last()
        if last is None or last.role != "assistant":
            return ""
        if last.calls:
            raise invalid(self._where, "the last message has calls, which cannot be continued: add their results.")
        if choice not in ("auto", "none"):
            raise invalid("tool_choice", "an answer that is begun cannot be forced to be a call: leave out one.")
        return self._said.pop().text

    def end(self) -> tuple[ChatMessage, ...]:
        """All messages. If the assistant's is the last, it speaks again."""
        if not self._said:
            raise invalid(self._where, "the conversation has no message.")
        return tuple(self._said)


def begin_again(earlier: RecalledConversation | None, instructions: str | None) -> list[ChatMessage]:
    """The messages before a request's own: its instructions in the place of the earlier ones."""
    before = [] if earlier is None else list(earlier.messages[earlier.instructed :])
    return before if instructions is None else [ChatMessage(role="system", text=instructions), *before]


def unknown_answer(name: str, where: str) -> Refusal:
    """The Refusal for an answer that is not on record."""
    message = (
        f"{name!r:.100} is not on record whole: another key's, opted out of, redacted, cut off, or never given here. "
        "Send the whole conversation."
    )
    return Refusal(RefusalCause.UNKNOWN, message, where=where)


def check_tools(tools: Sequence[ToolSpec], choice: str, where: str = "tool_choice") -> None:
    """Tools differ by name, and a choice is one of them."""
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid("tools", f"two tools are named {twice!r}.")
    if choice == "required" and not tools:
        raise invalid(where, "a call is required, and there are no tools.")
    if choice.startswith("tool:") and choice.removeprefix("tool:") not in names:
        raise invalid(where, f"no tool is named {choice.removeprefix('tool:')!r}. Known: {', '.join(names) or 'none'}.")


def split_content(content: str | Sequence[Body]) -> tuple[str, tuple[bytes, ...]]:
    """The text of a message, and its pictures."""
    if isinstance(content, str):
        return content, ()
    texts = [part.text for part in content if isinstance(part, TextPart)]
    return BETWEEN.join(texts), tuple(part.png for part in content if isinstance(part, PicturePart))


def _from_url(url: Any) -> bytes:
    """The PNG file of a data URL."""
    head, comma, text = str(url).partition(",")
    if not head.startswith("data:") or not comma:
        raise ValueError(f"{str(url)[:40]!r} is not a data: URL. Pictures are not fetched: send their bytes.")
    if not head.endswith(";base64"):
        raise ValueError("the data: URL is not base64.")
    return png_of(text, head.removeprefix("data:").removesuffix(";base64"))


PictureUrl = Annotated[bytes, BeforeValidator(_from_url)]
"""A data URL, read as a PNG file."""


def png_of(text: str, media_type: str) -> bytes:
    """The PNG file of a picture in base64; a ValueError if it is not one."""
    if media_type not in TYPES:
        raise ValueError(f"{media_type[:40]!r} is not supported. Supported: {', '.join(TYPES)}.")
    if len(text) > LARGEST * 4 // 3 + 4:
        raise ValueError(f"the picture has more than {LARGEST} bytes.")
    try:
        picture = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the base64 is damaged: {error}.") from None
    if media_type == "image/jpeg":
        picture = _png_of_jpeg(picture)
    if reason := fault(picture):
        raise ValueError(f"{reason}.")
    return picture


def _png_of_jpeg(jpeg: bytes) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("JPEG needs Pillow here (pip install 'loomrl[vision]'): send PNG.") from None
    try:
        with Image.open(BytesIO(jpeg), formats=["JPEG"]) as image:
            pixels = image.width * image.height
            made = BytesIO()
            if pixels <= MOST_JPEG_PIXELS:
                image.convert("RGB").save(made, "PNG", compress_level=1)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"the JPEG file cannot be read: {error}.") from None
    if pixels > MOST_JPEG_PIXELS:
        raise ValueError(f"{pixels} pixels are more than {MOST_JPEG_PIXELS}.")
    return made.getvalue()
