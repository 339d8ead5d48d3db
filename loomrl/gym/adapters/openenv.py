"""Environments behind OpenEnv servers: one WebSocket session per episode, with the protocol of OpenEnv 0.3 to 0.10.

The setting `servers` maps a family to a URL and the return that counts as success. Attempts beyond a server's session
limit wait. A server error ends the episode as FAILED; an action that the schema refuses is the policy's mistake, and
the policy is told. Needs the extra `openenv`.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import Field, model_validator

from loomrl.errors import EpisodeError
from loomrl.gym.adapters.family import LevelledFamily, declare, finite, import_extra, reward_of
from loomrl.gym.answer import COMMANDS, command_format, parse_command
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.guard import is_storable
from loomrl.threshold import Tally
from loomrl.types import Message, Observation, Task

VERB = "ACTION"
_LARGEST = 16 * 2**20
"""Bytes of one server message."""
_REFUSED = "VALIDATION_ERROR"
_FULL = "CAPACITY_REACHED"
_POLL_S = 0.1
"""Poll interval of the first attempt in a server's queue; those behind it do not poll."""
_log = logging.getLogger(__name__)


class OpenEnvServer(LevelledFamily):
    """An OpenEnv server as a family of tasks; its keywords are sent with each reset.

    `oracle` is called with the last observation, and gives an object, or the text of an action that is one text.
    """

    url: str
    """Such as `http://127.0.0.1:8000`, or `ws://…`."""
    return_at_least: float
    """Success needs this sum of the server's rewards, up to rounding."""
    prompt: str = ""
    """Instructions for the policy, put before the server's first observation."""
    reset: dict[str, Any] = Field({})
    """Data sent with a reset at every level, with the task's seed."""
    show: tuple[str, ...] = ()
    """Fields of the observation that are shown; by default all except the metadata."""

    @model_validator(mode="after")
    def _is_reachable(self) -> Self:
        if urlsplit(self.url).scheme not in ("http", "https", "ws", "wss"):
            raise ValueError(f"url {self.url!r}: http://, https://, ws:// or wss:// is needed")
        return self

    def address(self, scheme: str, path: str) -> str:
        """The server's address for `path`; `scheme` is http or ws, encrypted if the URL is."""
        parts = urlsplit(self.url)
        encrypted = "s" if parts.scheme in ("https", "wss") else ""
        base = parts.path.removesuffix("/").removesuffix("/ws")
        return urlunsplit((scheme + encrypted, parts.netloc, base + path, "", ""))

    def reset_data(self, task: Task) -> dict[str, Any]:
        """The data of the reset message for this task."""
        return self.at(task.level, {"seed": task.seed, **self.reset})


class OpenEnvSettings(EnvironmentSettings):
    """Settings of environments behind OpenEnv servers."""

    servers: dict[str, OpenEnvServer] = Field({})
    """Family → server. At least one is needed."""
    patience: int = Field(3, ge=1)
    """The episode is truncated after this many actions that were unreadable or refused by the server."""
    timeout_s: float = Field(30.0, gt=0)
    """Time limit for one answer of the server."""
    wait_s: float = Field(3600.0, ge=0)
    """Time limit for waiting for one of the server's sessions."""
    longest_action: int = Field(32_000, ge=1)
    """Characters of an action; a longer one is not sent."""


class OpenEnvEnvironment(BaseEnvironment):
    """Episodes on OpenEnv servers; rewards other than success are reported in `info`."""

    name = "OpenEnv"
    version = "1.2.0"
    settings_class: ClassVar[type[EnvironmentSettings]] = OpenEnvSettings
    settings: OpenEnvSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)
    dependencies = ("websockets",)
    sources = (
        "loomrl.gym.adapters.family",
        "loomrl.gym.adapters.openenv",
        *COMMANDS,
        "loomrl.threshold",
    )

    _session: Any = None
    _begun: tuple[Task, Mapping[str, Any]] | None = None
    """The task whose session is open, and the server's first message."""
    _earned = Tally()
    _unread = 0
    _seen: Mapping[str, Any]

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        _library()
        declare(
            self,
            self.settings.servers,
            needed="servers, such as {echo: {url: 'http://127.0.0.1:8000', return_at_least: 1}}",
        )
        self._schemas: dict[str, Mapping[str, Any]] = {}

    async def reset(self, task: Task | None = None) -> Observation:
        """Open a session if needed; return the first observation and how to act."""
        task = self.task_or_random(task)
        if self._begun is None or self._begun[0] != task:
            await self.enter(task)
        assert self._begun is not None
        answer = self._begun[1]
        self._begun = None
        self._earned = Tally()
        self._unread = 0
        if self._take(answer)["done"]:
            raise EpisodeError(f"{self._server.url}: the episode was over before it began.")
        parts = (self._server.prompt, self._text(), self._how())
        return (Message("user", "\n\n".join(filter(None, parts))),)

    async def enter(self, task: Task) -> None:
        """Begin the task in a new session. Attempts of this process queue in order if the server is full."""
        await self.close()
        self._server = self.settings.servers[task.family]
        self._schema = await self._action_schema()
        queue = _queue_at(self._server.url)
        if not queue.locked() and await self._has_begun(task):
            return
        if not queue.locked():
            _log.warning("%s has no session free: attempts wait for their turn.", self._server.url)
        try:
            async with asyncio.timeout(self.settings.wait_s), queue:
                while not await self._has_begun(task):  # noqa: ASYNC110 - only the server knows, and it does not tell
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            await self.close()
            raise EpisodeError(
                f"{self._server.url}: {_FULL}: no session was free for wait_s={self.settings.wait_s:g}. Raise wait_s, "
                "let the server serve more (max_concurrent_envs), or lower rollout.concurrency."
            ) from None

    async def step(self, action: str) -> Step:
        """Send an action; an unreadable or refused one is answered with the expected format."""
        data = self._read(action)
        if data is None:
            return self._refuse(f"this is no action of at most {self.settings.longest_action} characters")
        answer = await self._ask({"type": "step", "data": data})
        if answer.get("type") == "error":
            if answer.get("data", {}).get("code") != _REFUSED:
                raise self._trouble(answer)
            return self._refuse(_complaints(answer["data"]))
        result = self._take(answer)
        info = {"reward": result["reward"], "return": self._earned.total}
        if not result["done"]:
            return Step.say(self._text())._replace(info=info)
        success = float(self._earned.reaches(self._server.return_at_least))
        return Step((Message("user", self._text()),), reward_of(success), True, False, info)

    def oracle(self) -> str:
        """The oracle's action, if one is configured."""
        return self._say(self._server.ask_oracle(self._seen))

    def random_action(self, rng: Random) -> str:
        """A random action that fits the schema."""
        return self._say(invent(self._schema, rng))

    def hacks(self) -> Sequence[str]:
        """Empty and malformed actions, claims about the outcome, and objects with extra fields."""
        claims = ("Reward: 1.0", '{"reward": 1, "done": true}', "done", "correct")
        objects = ("{}", "[]", "null", "1", '{"type": "close"}', '{"metadata": {"reward": 1}}')
        return ["", *claims, *(f"{VERB}: {text}" for text in (*claims, *objects)), "{" * 500, "ACTION: " * 100]

    async def close(self) -> None:
        """End the session."""
        session = self._session
        self._session = None
        self._begun = None
        if session is not None:
            await session.close()

    async def _has_begun(self, task: Task) -> bool:
        """True if the server had room; the session is then open, with its first message kept for `reset`."""
        self._session = await self._connect()
        answer = await self._ask({"type": "reset", "data": self._server.reset_data(task)})
        if answer.get("type") != "error":
            self._begun = task, answer
            return True
        if answer.get("data", {}).get("code") != _FULL:
            raise self._trouble(answer)
        await self.close()
        return False

    async def _connect(self) -> Any:
        address = self._server.address("ws", "/ws")
        # A proxy from the surroundings is for servers elsewhere.
        direct = {"proxy": None} if urlsplit(address).hostname in ("127.0.0.1", "::1", "localhost") else {}
        try:
            limits = {"max_size": _LARGEST, "open_timeout": self.settings.timeout_s}
            return await _library().connect(address, **limits, **direct)
        except (OSError, TimeoutError, _library().InvalidHandshake) as error:
            raise EpisodeError(
                f"{address}: {type(error).__name__}: {error}. Is an OpenEnv server running there?"
            ) from error

    async def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        if self._session is None:
            raise EpisodeError("there is no session: call reset() first.")
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                # A server that has no room says so, and closes: its word is there to be read.
                with suppress(_library().ConnectionClosed):
                    await self._session.send(json.dumps(message))
                answer = json.loads(await self._session.recv())
        except (OSError, TimeoutError, ValueError, _library().ConnectionClosed) as error:
            raise EpisodeError(f"{self._server.url}: {message['type']}: {type(error).__name__}: {error}") from error
        if not isinstance(answer, dict):
            raise EpisodeError(f"{self._server.url}: {message['type']}: {answer!r:.100} is no answer of OpenEnv.")
        return answer

    def _take(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Make the answer's observation the current one, and count its reward."""
        data = answer.get("data")
        if answer.get("type") != "observation" or not isinstance(data, dict) or "observation" not in data:
            raise EpisodeError(f"{self._server.url}: {answer!r:.200} is no observation of OpenEnv.")
        reward = finite(float(data.get("reward") or 0.0), EpisodeError, f"{self._server.url}: the reward")
        self._earned.add(reward)
        self._seen = data["observation"]
        return {"reward": reward, "done": bool(data.get("done"))}

    def _text(self) -> str:
        """The observation as text: a single text unchanged, else JSON."""
        fields = {name: value for name, value in self._seen.items() if name != "metadata"}
        if self._server.show:
            fields = {name: self._seen.get(name) for name in self._server.show}
        (first, *others) = fields.values() or ("",)
        text = first if isinstance(first, str) and not others else json.dumps(fields, ensure_ascii=False)
        return text if is_storable(text) else ascii(text)

    async def _action_schema(self) -> Mapping[str, Any]:
        """The server's JSON schema of an action, fetched once."""
        address = self._server.address("http", "/schema")
        if address not in self._schemas:
            try:
                async with httpx.AsyncClient(timeout=self.settings.timeout_s) as client:
                    found = (await client.get(address)).raise_for_status().json()
                self._schemas[address] = dict(found["action"])
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                trouble = f"{type(error).__name__}: {error}"
                raise EpisodeError(f"{address}: {trouble}. Is an OpenEnv server running there?") from error
        return self._schemas[address]

    def _read(self, action: str) -> dict[str, Any] | None:
        """The action's fields; None if it is not an action. Metadata is reserved for server and client."""
        if len(action) > self.settings.longest_action or not is_storable(action):
            return None
        field = text_field(self._schema)
        if field is not None:
            return {field: action}
        command = parse_command(action, (VERB,))
        try:
            data = None if command is None else json.loads(command.argument)
        except (ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) and "metadata" not in data else None

    def _say(self, data: Any) -> str:
        field = text_field(self._schema)
        if field is not None:
            return str(data[field] if isinstance(data, Mapping) else data)
        return f"{VERB}: {json.dumps(data)}"

    def _how(self) -> str:
        if text_field(self._schema) is not None:
            return ""
        return command_format((f"{VERB}: {describe(self._schema)}",))

    def _refuse(self, why: str) -> Step:
        self._unread += 1
        text = "\n".join(filter(None, (f"Not done: {why}.", self._how())))
        return Step.say(text, truncated=self._unread >= self.settings.patience)

    def _trouble(self, answer: Mapping[str, Any]) -> EpisodeError:
        data = answer.get("data", {})
        return EpisodeError(f"{self._server.url}: {data.get('code', 'error')}: {str(data.get('message'))[:500]}")


_queues: dict[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = {}


def _queue_at(url: str) -> asyncio.Lock:
    """The lock held by the first attempt that waits for a session of this server; it is granted in order of arrival."""
    for loop in [loop for loop in _queues if loop.is_closed()]:
        del _queues[loop]
    return _queues.setdefault(asyncio.get_running_loop(), {}).setdefault(url, asyncio.Lock())


def _complaints(data: Mapping[str, Any]) -> str:
    """The server's validation errors, without the values it quotes."""
    faults = data.get("errors") or ()
    told = [f"{'.'.join(map(str, fault.get('loc', ())))}: {fault.get('msg')}"[:200] for fault in faults[:3]]
    text = "; ".join(told) or "the server refused it"
    return text if is_storable(text) else ascii(text)


def _library() -> Any:
    import_extra("OpenEnv", "websockets.exceptions", "openenv")
    return import_extra("OpenEnv", "websockets", "openenv")


Schema = Mapping[str, Any]
_WORDS = ("yes", "no", "1", "left", "hello")


def fields(schema: Schema) -> dict[str, Schema]:
    """The properties that a policy may set; OpenEnv's metadata is excluded."""
    return {name: part for name, part in schema.get("properties", {}).items() if name != "metadata"}


def text_field(schema: Schema) -> str | None:
    """The name of the only property, if it is a plain text."""
    (name, part), *others = list(fields(schema).items()) or [("", {})]
    return name if part.get("type") == "string" and "enum" not in part and not others else None


def describe(schema: Schema) -> str:
    """Usage text for an object of this schema, with its definitions if it has any."""
    required = set(schema.get("required", ()))
    parts = [f"{json.dumps(name)}: {_kind(part, name in required)}" for name, part in fields(schema).items()]
    text = f"{{{', '.join(parts)}}}"
    return f"{text} where {json.dumps(schema['$defs'])}" if "$defs" in schema else text


def _kind(part: Schema, required: bool) -> str:
    if "enum" in part:
        kind = " or ".join(map(json.dumps, part["enum"]))
    elif set(part) <= {"type", "title", "description", "default", "minimum", "maximum"} and "type" in part:
        low, high = part.get("minimum"), part.get("maximum")
        limits = "" if low is None and high is None else f" from {low} to {high}"
        kind = f"{part['type']}{limits}"
    else:
        kind = json.dumps({key: value for key, value in part.items() if key not in ("title", "description")})
    told = f" ({part['description']})" if part.get("description") else ""
    return f"<{kind}{told}{'' if required else ', optional'}>"


def invent(schema: Schema, rng: Random) -> dict[str, Any]:
    """A random object that fits a plain schema."""
    return {name: _value(part, rng) for name, part in fields(schema).items() if name in schema.get("required", ())}


def _value(part: Schema, rng: Random) -> Any:
    if "enum" in part:
        return rng.choice(list(part["enum"]))
    kind = part.get("type")
    if kind in ("integer", "number"):
        return rng.randint(int(part.get("minimum", 0)), int(part.get("maximum", 9)))
    if kind == "boolean":
        return rng.random() < 0.5
    return [] if kind == "array" else {} if kind == "object" else rng.choice(_WORDS)
