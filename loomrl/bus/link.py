"""One connection to a broker: publishing in windows, pulling, and errors by name. All of it is in one event loop."""

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from loomrl.bus.bus import Message
from loomrl.errors import BusAway, BusError, BusRefused, TooLarge

ID = "Nats-Msg-Id"
STATUS = "Status"
DESCRIPTION = "Description"
NO_RESPONDERS = "503"


class NotThere(BusError):
    """A stream or a consumer that does not exist."""


class Wait:
    """Something that waits for the broker's answers about some subjects. It may fail before they come."""

    def __init__(self, about: Iterable[str]) -> None:
        self.about = {subject.lower() for subject in about}
        self.signs = 0
        """Answers so far."""
        self.changed = asyncio.Event()
        self.error: BusError | None = None

    def fail(self, error: BusError) -> None:
        """Wait no longer."""
        self.error = self.error or error
        self.changed.set()


class Batch(Wait):
    """Messages on their way."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__({message.subject for message in messages})
        self.is_new = [False] * len(messages)
        self.open = 0
        self.target = 0
        """`changed` is set once no more than this are open."""
        self.tokens: set[str] = set()

    def take(self, place: int, answer: Msg, subject: str) -> None:
        """The broker's answer about one of them."""
        self.signs += 1
        self.open -= 1
        if answer.headers and answer.headers.get(STATUS) == NO_RESPONDERS:
            return self.fail(NotThere(f"no stream takes subject {subject!r}"))
        said = msgspec.json.decode(answer.data)
        if "error" in said:
            return self.fail(BusError(f"{subject}: the broker refused a message: {said['error'].get('description')}."))
        self.is_new[place] = not said.get("duplicate", False)
        if self.open <= self.target:
            self.changed.set()
        return None


T = TypeVar("T")
WINDOW = 64
"""Messages that wait for their acknowledgement at once."""
RECONNECT_S = 0.2
ACK_S = 5.0
"""Longest time without a sign of the broker."""
VIOLATION = re.compile(r'permissions violation for (\w+) to "([^"]*)"', re.IGNORECASE)
AUTHORIZATION = re.compile(r"authori[sz]ation|authentication|credentials", re.IGNORECASE)
RESETS = 5
"""Times that a connection is tried while the broker resets it."""
ANSWERING = "rl-trainers"
"""Queue group of those who answer requests."""


class BrokerLink:
    """A connection. What the broker refuses becomes a BusRefused, a broken connection a BusAway."""

    def __init__(self, url: str, *, inbox: str) -> None:
        self.place = place_of(url)
        self.user = urlsplit(url).username or ""
        self.refused: BusRefused | None = None
        """The broker does not let this account hear the answers in this inbox."""
        self.was_reset = False
        """The broker closed it without letting us read to the end."""
        self._url = url
        self._inbox = inbox
        self._client = Client()
        self._waiting: set[Wait] = set()
        self._tokens = itertools.count()
        self._sent: dict[str, tuple[Batch, int, str]] = {}
        self._answers = ""
        self._said = ""
        """The broker's last error."""
        self._first: Wait | None = None
        """The first attempt to connect."""

    async def open(self, connect_s: float) -> None:
        """Connect; BusAway or BusRefused if that is not possible now."""
        options: dict[str, Any] = {
            "error_cb": self._take_error,
            "disconnected_cb": self._on_lost,
            "reconnected_cb": self._on_back,
            "name": "loomrl",
            "inbox_prefix": self._inbox,
            "connect_timeout": connect_s,
            "reconnect_time_wait": RECONNECT_S,
            "max_reconnect_attempts": -1,
        }
        try:
            await self._connect(self._client.connect(self._url, **options), connect_s)
            self._answers = self._client.new_inbox()
            await self._client.subscribe(f"{self._answers}.*", cb=self._take_answer)
            await self._client.flush(timeout=max(int(connect_s), 1))
        except (Error, OSError, TimeoutError, ValueError) as error:
            if not self._said:
                self._take(error)
            await self.close()
            raise self.fault() from None

    async def _connect(self, connecting: Coroutine[Any, Any, None], connect_s: float) -> None:
        """Try once. The library would try for ever, so its first complaint ends it."""
        self._first = wait = Wait(())
        task = asyncio.ensure_future(connecting)
        failed = asyncio.ensure_future(wait.changed.wait())
        await asyncio.wait({task, failed}, timeout=connect_s, return_when=asyncio.FIRST_COMPLETED)
        self._first = None
        if task.done():
            failed.cancel()
            return await task
        for one in (task, failed):
            one.cancel()
        await asyncio.gather(task, failed, return_exceptions=True)
        raise TimeoutError(self._said or f"no answer within {connect_s:g} s")

    @property
    def is_closed(self) -> bool:
        """True once it cannot come back by itself."""
        return self._client.is_closed

    @property
    def jetstream(self) -> JetStreamContext:
        """The library's own commands."""
        return self._client.jetstream(timeout=ACK_S)

    def fault(self) -> BusError:
        """The reason why the broker cannot be used now."""
        if AUTHORIZATION.search(self._said):
            return BusRefused(
                f"the broker at {self.place} refuses user {self.user!r}: {self._said}. "
                "Check user and password in the bus URL: nats://USER:PASSWORD@HOST:4222."
            )
        said = f" ({self._said})" if self._said else ""
        return BusAway(
            f"no broker answers at {self.place}{said}. Start one with `loomrl bus broker`, or give another URL."
        )

    async def publish(self, messages: Sequence[Message]) -> list[bool]:
        """Publish in a window and wait for every acknowledgement; True for each that is new."""
        self._check_connected()
        _check_sizes(messages, self._client.max_payload)
        batch = Batch(messages)
        self._waiting.add(batch)
        try:
            for place, message in enumerate(messages):
                if batch.open >= WINDOW:
                    await self._await_acks(batch, WINDOW // 2)
                token = str(next(self._tokens))
                self._sent[token] = (batch, place, message.subject)
                batch.tokens.add(token)
                batch.open += 1
                headers = {ID: message.id, **message.headers} if message.id else dict(message.headers)
                await self._client.publish(
                    message.subject, message.payload, reply=f"{self._answers}.{token}", headers=headers or None
                )
            await self._await_acks(batch, 0)
        except (Error, OSError) as error:
            raise self._translate(error) from None
        finally:
            self._waiting.discard(batch)
            for token in batch.tokens:
                self._sent.pop(token, None)
        return batch.is_new

    async def ask(self, work: Awaitable[T], *about: str) -> T:
        """The result of one of the library's commands; `about` are the subjects that it publishes to."""
        wait = Wait(about)
        self._waiting.add(wait)
        task = asyncio.ensure_future(work)
        failed = asyncio.ensure_future(wait.changed.wait())
        try:
            await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
            if wait.error is not None and not task.done():
                raise wait.error
            return await task
        except (Error, OSError, TimeoutError) as error:
            raise self._translate(error) from None
        finally:
            self._waiting.discard(wait)
            for one in (task, failed):
                one.cancel()
            await asyncio.gather(task, failed, return_exceptions=True)

    async def tell(self, subjects: Collection[str]) -> None:
        """Publish an empty message to each, without waiting for an answer."""
        self._check_connected()
        try:
            for subject in subjects:
                await self._client.publish(subject)
            await self._client.flush(timeout=max(int(ACK_S), 1))
        except (Error, OSError, TimeoutError) as error:
            raise self._translate(error) from None

    async def answer(self, subject: str, reply: Callable[[bytes], bytes]) -> None:
        """Answer requests about a subject, in a thread; requests are shared among all who answer."""

        async def take_request(message: Msg) -> None:
            if message.reply:
                await message.respond(await asyncio.to_thread(reply, message.data))

        try:
            await self._client.subscribe(subject, queue=ANSWERING, cb=take_request)
            await self._client.flush(timeout=max(int(ACK_S), 1))
        except (Error, OSError, TimeoutError) as error:
            raise self._translate(error) from None

    async def close(self) -> None:
        """Say goodbye."""
        for wait in [*self._waiting]:
            wait.fail(BusAway("the bus was closed."))
        await self._client.close()

    async def _await_acks(self, batch: Batch, target: int) -> None:
        """Return once no more than `target` are open; fail if the broker is silent for long."""
        batch.target = target
        while batch.open > target and batch.error is None:
            batch.changed.clear()
            await self._sign(batch)
        if batch.error is not None:
            raise batch.error

    async def _sign(self, wait: Wait, timeout_s: float = ACK_S) -> None:
        signs = wait.signs
        try:
            await asyncio.wait_for(wait.changed.wait(), timeout_s)
        except TimeoutError:
            if wait.signs == signs:
                wait.fail(BusAway(f"the broker at {self.place} has been silent for {timeout_s:g} s."))

    def _check_connected(self) -> None:
        if not self._client.is_connected:
            raise self.fault()

    def _translate(self, error: BaseException) -> BusError:
        match error:
            case ServiceUnavailableError():
                return BusAway(f"the broker at {self.place} has no JetStream now. Start it with: nats-server -js")
            case NotFoundError():
                return NotThere(f"{error.description}")
            case APIError():
                return BusError(f"the broker at {self.place} refused: {error.description} (code {error.err_code}).")
            case Error() | OSError() | TimeoutError():
                self._said = self._said or str(error) or type(error).__name__
                return self.fault()
        raise error

    async def _take_answer(self, answer: Msg) -> None:
        sent = self._sent.pop(answer.subject.rpartition(".")[2], None)
        if sent is not None:
            batch, place, subject = sent
            batch.take(place, answer, subject)

    async def _take_error(self, error: Exception) -> None:
        """Log broker errors; a rejected publish is reported only here."""
        text = str(error)
        found = VIOLATION.search(text)
        if found is None:
            self._take(error)
            if self._first is not None:
                self._first.changed.set()
            return
        subject = found[2].lower()
        refusal = BusRefused(
            f"the broker at {self.place} refuses user {self.user!r} a {found[1]} to {found[2]!r}. Give the account "
            "that right (docs/events.md), or use the URL of another account."
        )
        if self._answers and subject.startswith(self._answers.lower()):
            self.refused = refusal
        for wait in [*self._waiting]:
            if subject in wait.about:
                wait.fail(refusal)

    def _take(self, error: Exception) -> None:
        """Remember why. What the broker said before it closed tells more than that it did."""
        if not (isinstance(error, OSError) and self._said):
            self._said = str(error) or type(error).__name__
            self.was_reset = isinstance(error, ConnectionResetError)

    async def _on_lost(self) -> None:
        for wait in [*self._waiting]:
            wait.fail(BusAway(f"the connection to the broker at {self.place} broke."))

    async def _on_back(self) -> None:
        self._said = ""

    # -- pulling -----------------------------------------------------------------------------------------------------

    async def pulling(self, stream: str, consumer: str) -> "Pulling":
        """Begin to pull what is there for a consumer."""
        pulling = Pulling(self, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", self._client.new_inbox())
        try:
            pulling.listening = await self._client.subscribe(f"{pulling.inbox}.*", cb=pulling.take)
        except (Error, OSError) as error:
            raise self._translate(error) from None
        return pulling

    async def pull(self, pulling: "Pulling", request: dict[str, int | bool], timeout_s: float) -> list[Msg]:
        """The messages that come upon a request, until the broker says that these were all."""
        self._check_connected()
        pulling.begin(int(request["batch"]))
        self._waiting.add(pulling)
        try:
            reply = f"{pulling.inbox}.{pulling.number}"
            await self._client.publish(pulling.next, json.dumps(request).encode(), reply=reply)
            while not pulling.is_done and pulling.error is None:
                pulling.changed.clear()
                await self._sign(pulling, timeout_s)
        except (Error, OSError) as error:
            raise self._translate(error) from None
        finally:
            self._waiting.discard(pulling)
        if pulling.error is not None and not pulling.arrived:
            raise pulling.error
        arrived = pulling.arrived
        pulling.arrived = []
        return arrived


class Pulling(Wait):
    """The requests of one consumer, one after the other. A message that comes late belongs to the next one."""

    def __init__(self, link: BrokerLink, next: str, inbox: str) -> None:
        super().__init__({next})
        self.link = link
        self.next = next
        self.inbox = inbox
        self.number = 0
        self.arrived: list[Msg] = []
        self.is_done = False
        self.listening: Any = None
        self._wanted = 0

    def begin(self, wanted: int) -> None:
        """A further request."""
        self.number += 1
        self._wanted = wanted
        self.is_done = False
        self.error = None
        self.changed.clear()

    async def take(self, message: Msg) -> None:
        """A message, or the broker's word that there are no more."""
        self.signs += 1
        status = (message.headers or {}).get(STATUS)
        if status is None or message.reply:
            self.arrived.append(message)
            self.is_done = self.is_done or len(self.arrived) >= self._wanted
        elif message.subject.endswith(f".{self.number}"):
            self.is_done = True
            if status == NO_RESPONDERS:
                self.fail(NotThere(f"{self.next}: the consumer is gone"))
        if self.is_done:
            self.changed.set()

    async def end(self) -> None:
        """Listen no more."""
        if self.listening is not None and not self.link.is_closed:
            await self.listening.unsubscribe()


async def open_link(url: str, connect_s: float) -> BrokerLink:
    """A connection. Each account has an inbox that others cannot hear, where the broker's permissions allow it."""
    user = urlsplit(url).username or ""
    inboxes = [f"_INBOX_{user}", "_INBOX"] if re.fullmatch(r"[\w-]+", user) else ["_INBOX"]
    for inbox in inboxes:
        link = await _open(url, inbox, connect_s)
        if link.refused is None:
            return link
        await link.close()
    assert link.refused is not None
    raise link.refused


async def _open(url: str, inbox: str, connect_s: float) -> BrokerLink:
    """Tried again if the broker reset the connection: that can lose the reason, which was sent just before."""
    for tries_left in reversed(range(RESETS)):
        link = BrokerLink(url, inbox=inbox)
        try:
            await link.open(connect_s)
            break
        except BusAway:
            if not (link.was_reset and tries_left):
                raise
    return link


def place_of(url: str) -> str:
    """Host and port of a broker's URL, without user and password."""
    parts = urlsplit(url)
    try:
        return f"{parts.hostname or 'localhost'}:{parts.port or 4222}"
    except ValueError:
        raise BusError(f"bus URL: {parts.netloc.rpartition('@')[2]!r} is no HOST:PORT.") from None


def _check_sizes(messages: Sequence[Message], most: int) -> None:
    for message in messages:
        if len(message.payload) > most:
            raise TooLarge(
                f"{message.subject} {message.id!r}: {len(message.payload)} bytes, and the broker takes at most {most}.",
                id=message.id,
            )
