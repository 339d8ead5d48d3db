"""The policies served in the measurement of serving, their service, and its client for streams."""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import torch
from gymnasium import spaces

from loomrl.algorithms.language.build import build_reading
from loomrl.config import Architecture
from loomrl.config.control import Network
from loomrl.control.network import ActorCritic
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.errors import LoomError

MARK = "LOOMRL_BENCH"
"""The environment variable that marks the processes of a service: some outlive the one that started them."""
START_S = 180.0


def save_control(folder: Path) -> None:
    """A policy for CartPole's spaces, of the usual size, untrained."""
    observed = spaces.Box(-5.0, 5.0, (4,))
    network = Network(hidden=(64, 64))
    acted: spaces.Space[Any] = spaces.Discrete(2)
    torch.manual_seed(0)
    folder.mkdir()
    net = ActorCritic(seen(observed), acts(acted), network, normalize=False)
    ControlPolicy(net, observed, acted, network).save(folder)


def save_language(folder: Path) -> None:
    """A Llama of 2.7 million parameters with a tokenizer of bytes, untrained."""
    architecture = Architecture(hidden_size=192, intermediate_size=512, layers=6, heads=6)
    model, tokenizer, _ = build_reading(architecture, ["Tell me about 1."], context=1024, seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@dataclass(frozen=True, slots=True)
class Streamed:
    """The result of one stream."""

    tokens: int
    first_s: float


class Client:
    """Streams answers over plain sockets: a client that costs little beside what it measures."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._at = urlsplit(url)
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Every stream has a connection of its own, which ends with it."""

    async def stream(self, body: dict[str, Any]) -> Streamed:
        """Ask, and read to the end; a RuntimeError for anything but a whole answer."""
        content = json.dumps({**body, "stream_options": {"include_usage": True}}).encode()
        reader, writer = await asyncio.open_connection(self._at.hostname, self._at.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._at.netloc}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(content)}\r\nconnection: close\r\n{self._headers}\r\n"
        began = time.perf_counter()
        writer.write(head.encode() + content)
        try:
            status = await reader.readline()
            if b" 200 " not in status:
                raise RuntimeError(f"{status!r}: {(await reader.read()).decode()[-300:]}")
            first_s = 0.0
            usage = 0
            is_done = False
            async for line in reader:
                if not first_s and line.startswith(b"data: "):  # sent once the first token is there
                    first_s = time.perf_counter() - began
                if line.startswith(b"data: {") and b'"completion_tokens":' in line:
                    usage = json.loads(line[6:])["usage"]["completion_tokens"]
                is_done = is_done or line.startswith(b"data: [DONE]")
        finally:
            writer.close()
        if not is_done:
            raise RuntimeError("a stream broke off")
        return Streamed(usage, first_s or time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class Service:
    """A running `loomrl serve`."""

    url: str
    key: str | None
    mark: str
    """The value of `MARK` in the environment of its processes."""
    start_s: float
    """Seconds from the command to its first answer."""
    endpoint: str


@contextmanager
def served(folder: Path, what: str, *settings: str) -> Iterator[Service]:
    """`loomrl serve` of a folder, until the block ends."""
    command = [sys.executable, "-m", "loomrl", "serve", str(folder / what), "--endpoint", what, "--port", "0", "--json"]
    command += [f"store_url=sqlite:///{folder / what}.db", f"artifact_url={folder / 'artifacts'}", *settings]
    began = time.perf_counter()
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    with terminating(process):
        assert process.stdout is not None
        told = _first_json(process.stdout)
        if told is None:
            raise LoomError(f"{' '.join(command)} ended with {process.wait()}: its message stands above.")
        service = Service(told["url"], told.get("key"), mark, 0.0, what)
        _first_answer(service)
        yield replace(service, start_s=time.perf_counter() - began)


@contextmanager
def terminating(process: subprocess.Popen[Any]) -> Iterator[None]:
    """End the program, and if need be its whole session, when the block ends."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _first_json(lines: Iterable[str]) -> dict[str, Any] | None:
    """The first JSON object that is printed."""
    text = ""
    for line in lines:
        text += line
        with suppress(json.JSONDecodeError):
            found: dict[str, Any] = json.loads(text)
            return found
    return None


def _first_answer(service: Service) -> None:
    body = {"observation": [0.0] * 4} if service.endpoint == "pole" else chat_body(service, tokens=4)
    path = "/v1/act" if service.endpoint == "pole" else "/v1/chat/completions"
    with httpx.Client(base_url=service.url, headers=headers_of(service), timeout=START_S) as client:
        client.post(path, json={"model": service.endpoint, **body}).raise_for_status()


def headers_of(service: Service) -> dict[str, str]:
    """The headers of a request to a service."""
    return {} if service.key is None else {"authorization": f"Bearer {service.key}"}


def chat_body(service: Service, *, tokens: int, stream: bool = False, number: int = 0) -> dict[str, Any]:
    """A request for at most so many tokens."""
    return {
        "model": service.endpoint,
        "messages": [{"role": "user", "content": f"Tell me about {number}."}],
        "max_tokens": tokens,
        "stream": stream,
    }


async def all_streams(service: Service, count: int, tokens: int) -> tuple[float, float]:
    """Tokens per second of so many streams at once, and the median time to the first token."""
    async with Client(service.url, headers_of(service)) as client:
        await client.stream(chat_body(service, tokens=4, stream=True))
        began = time.perf_counter()
        asked = (chat_body(service, tokens=tokens, stream=True, number=number) for number in range(count))
        found = await asyncio.gather(*map(client.stream, asked))
    seconds = time.perf_counter() - began
    return sum(each.tokens for each in found) / seconds, statistics.median(each.first_s for each in found)
