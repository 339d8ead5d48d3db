"""Conversations in a file of JSON lines, as other trainers take them: read whole, and refused by line."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from loomrl.config import DatasetConfig
from loomrl.errors import DataError
from loomrl.serving.call import ChatMessage, ToolSpec
from loomrl.serving.dialect.chat import ChatDialect
from loomrl.serving.refusal import Refusal
from loomrl.serving.wording import to_messages
from loomrl.types import Message, Turn

LONGEST_LINE = 1 << 24
"""Bytes of a line; pictures are in it."""
SHARE = 0.1
"""Share of the conversations that is held out, if no other is named."""
SALT = "loomrl held out"
FORMS = (
    '{"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …}]} '
    'or {"prompt": …, "completion": …}'
)
ROLES = "system, user, assistant, tool"


@dataclass(frozen=True, slots=True)
class FileChat:
    """A conversation of a file, and where it is."""

    file: str
    line: int
    said: tuple[ChatMessage, ...]
    """Up to the assistant's last message: nothing is learnt after it."""
    tools: tuple[ToolSpec, ...] = ()

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return f"{self.file}, line {self.line}"

    def turns(self, *, tool_role: bool) -> tuple[Turn, ...]:
        """The assistant's turns; `tool_role`: the chat template takes messages of tools."""
        turns: list[Turn] = []
        seen: list[Message] = []
        for message in to_messages(self.said, self.tools, tool_role=tool_role):
            if message.role != "assistant":
                seen.append(message)
                continue
            turns.append(Turn(tuple(seen), message.content))
            seen = []
        return tuple(turns)

    @property
    def question(self) -> tuple[tuple[str, str], ...]:
        """Roles and texts before the first answer."""
        first = next(at for at, message in enumerate(self.said) if message.role == "assistant")
        return tuple((message.role, message.text) for message in self.said[:first])


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """The conversations of an experiment's `data.file`. Equal bytes make equal ones."""

    sha256: str
    """Hash of the file, and of the one that is held out, if it is another."""
    train: tuple[FileChat, ...] = field(compare=False)
    held_out: tuple[FileChat, ...] = field(compare=False)


def read_chat_files(data: DatasetConfig) -> ChatFiles:
    """The conversations to learn from, and those held out; a DataError names file, line and value of a wrong one."""
    assert data.file is not None
    digest = hashlib.sha256(f"{data.held_out} {data.held_out_file}\n".encode())
    chats = tuple(_read(data.file, digest, "data.file"))
    if data.held_out_file is not None:
        others = tuple(_read(data.held_out_file, digest, "data.held_out_file"))
        _refuse_repeated(chats, others)
        return ChatFiles(digest.hexdigest(), chats, others)
    share = SHARE if data.held_out is None else data.held_out
    parts: dict[bool, list[FileChat]] = {False: [], True: []}
    for chat in chats:
        parts[_is_drawn(chat, share)].append(chat)
    if not parts[False]:
        raise DataError(
            f"data.held_out={share:g} holds out all {len(chats)} conversations of {data.file}: lower it, or add others."
        )
    return ChatFiles(digest.hexdigest(), tuple(parts[False]), tuple(parts[True]))


def _is_drawn(chat: FileChat, share: float) -> bool:
    """True for a share of the questions, drawn by a hash: with all answers to them, and as the file grows."""
    drawn = hashlib.sha256(f"{SALT} {chat.question!r}".encode()).digest()
    return int.from_bytes(drawn[:8]) < share * 2**64


def _refuse_repeated(chats: Iterable[FileChat], held_out: Iterable[FileChat]) -> None:
    learnt = {repr((chat.said, chat.tools)): chat for chat in chats}
    for chat in held_out:
        same = learnt.get(repr((chat.said, chat.tools)))
        if same is not None:
            raise DataError(f"{chat.where} is {same.where} too: what is learnt is not held out. Remove one of them.")


def _read(file: str, digest: Any, setting: str) -> Iterator[FileChat]:
    try:
        with Path(file).open("rb") as lines:
            count = 0
            while line := lines.readline(LONGEST_LINE + 1):
                count += 1
                digest.update(line)
                yield _chat(file, count, line)
    except OSError as error:
        raise DataError(f"{setting}={file!r}, seen from {Path.cwd()}: {error.strerror}. Is it spelt right?") from None
    if not count:
        raise DataError(f"{setting}={file!r} is empty: write a conversation on each line, as {FORMS}.")


def _chat(file: str, number: int, line: bytes) -> FileChat:
    """The conversation on a line."""

    def refuse(problem: str) -> NoReturn:
        raise DataError(f"{file}, line {number}: {problem}")

    if len(line) > LONGEST_LINE:
        refuse(f"it has more than {LONGEST_LINE >> 20} MiB. Write one conversation on each line.")
    if not line.strip():
        refuse("it is empty. Remove it.")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        refuse(f"it is not JSON ({error}), got {line[:40]!r}. Write {FORMS}.")
    if not isinstance(raw, dict) or ("messages" in raw) == ({"prompt", "completion"} <= raw.keys()):
        refuse(f"got {line.strip()[:60].decode(errors='replace')}: write {FORMS}.")
    for name in raw.keys() & {"prompt", "completion"}:
        if not isinstance(raw[name], str):
            refuse(f"{name}={str(raw[name])[:40]!r}: text is needed. Write {FORMS}.")
    messages = raw["messages"] if "messages" in raw else _pair(raw)
    if not isinstance(messages, list):
        refuse(f"messages={str(messages)[:40]!r}: a list is needed. Write {FORMS}.")
    closed = [*messages, {"role": "user", "content": ""}]  # a request ends before the assistant's turn
    try:
        read = ChatDialect().read({"model": "-", "messages": closed, "tools": raw.get("tools")})
    except Refusal as refusal:
        hint = f" Roles are {ROLES}." if refusal.where.endswith("role") else ""
        refuse(f"{refusal.where}: {refusal}{hint}" if refusal.where else str(refusal))
    answers = [at for at, message in enumerate(read.messages) if message.role == "assistant"]
    if not answers:
        refuse("no message is the assistant's, so that there is nothing to learn. Add its answer, or remove the line.")
    silent = next((at for at in answers if not (read.messages[at].text or read.messages[at].calls)), None)
    if silent is not None:
        refuse(f"messages.{silent}: the assistant says nothing. Write its answer, or remove the message.")
    return FileChat(file, number, read.messages[: answers[-1] + 1], read.tools)


def _pair(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """A prompt and its completion, as messages."""
    return [{"role": "user", "content": raw["prompt"]}, {"role": "assistant", "content": raw["completion"]}]
