"""Serving: from command to first answer, acts per second, what the gateway adds to the bare engine, a thousand streams.

Everything goes through `loomrl serve`, as users run it: front, gateways, policy replica, LoomDB, `record: before`.
Load comes from `wrk` where it is installed, which is written in C; else from clients in Python, which are slower.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loomrl.config import Sampling
from loomrl.errors import LoomError
from loomrl.experiments.bench.peers import measure as measure_peers
from loomrl.experiments.bench.rounds import ONE_THREAD, machine, run_part, say
from loomrl.experiments.bench.served import (
    MARK,
    Client,
    Service,
    all_streams,
    chat_body,
    headers_of,
    save_control,
    save_language,
    served,
)
from loomrl.inference.engine import Request
from loomrl.inference.model import open_model, open_tokenizer
from loomrl.inference.torch.engine import TorchEngine

SETTLE_S = 8.0
"""Time after the first answer until a service is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSize:
    """The size of a measurement."""

    act_s: int = 10
    connections: int = 16
    rounds: int = 3
    streams: int = 16
    tokens: int = 128
    crowd: int = 1000
    crowd_tokens: int = 32
    idle_s: int = 60


FULL = ServeSize()
QUICK = ServeSize(act_s=1, rounds=1, tokens=32, crowd=50, idle_s=2)


def measure(size: ServeSize = FULL, *, litellm: str = "") -> dict[str, Any]:
    """Every figure of `loomrl bench serve`; `litellm`: the program of LiteLLM's proxy, to be measured beside."""
    if shutil.which("wrk") is None:
        raise LoomError("wrk is missing, and clients in Python are slower than the gateway: apt install wrk")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="loomrl-bench-") as name:
        folder = Path(name)
        save_control(folder / "pole")
        save_language(folder / "talk")
        say("control: start, acts")
        with served(folder, "pole") as service:
            figures |= _acts(service, size)
        say("language: start, streams")
        with served(folder, "talk") as service:
            figures["serve_start_s"] = round(service.start_s, 1)
            say("idle")
            figures |= _idle(service, size)
            figures |= _against_engine(service, folder / "talk", size)
            say(f"{size.crowd} open streams")
            figures |= _crowd(service, size)
        if litellm:
            say("vLLM's server, LiteLLM's proxy before it, our gateway before vLLM")
            figures |= measure_peers(folder, litellm, rounds=size.rounds, streams=size.streams, tokens=size.tokens)
    figures["machine"] = machine()
    return figures


# -- acting ---------------------------------------------------------------------------------------------------------


def _acts(service: Service, size: ServeSize) -> dict[str, Any]:
    body = json.dumps({"model": "pole", "observation": [0.1, -0.2, 0.3, 0.0]})
    measured: dict[str, list[tuple[float, float]]] = {"act": [], "act_recorded": []}
    for _ in range(size.rounds):
        measured["act"].append(_wrk(service, body, size))
        measured["act_recorded"].append(_wrk(service, body, size, sessions=4 * size.connections))
    figures: dict[str, Any] = {"act_driver": "wrk -t1"}
    for name, rounds in measured.items():
        rates, late = zip(*rounds, strict=True)
        figures |= {f"{name}_qps_{size.connections}": round(statistics.median(rates))}
        figures |= {f"{name}_p99_ms": round(statistics.median(late), 1)}
    return figures


def _wrk(service: Service, body: str, size: ServeSize, *, sessions: int = 0) -> tuple[float, float]:
    """Requests per second, and milliseconds of the 99th percentile; a RuntimeError if one was not answered.

    With `sessions` each call belongs to one of so many, and is recorded before its answer.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f"wrk.method = 'POST'\nwrk.body = '{body}'\nwrk.headers['content-type'] = 'application/json'\n")
        for name, value in headers_of(service).items():
            script.write(f"wrk.headers['{name}'] = '{value}'\n")
        if sessions:
            script.write(
                "local number = 0\n"
                "request = function()\n"
                f"  number = (number + 1) % {sessions}\n"
                "  wrk.headers['x-loomrl-session'] = 's' .. number\n"
                "  return wrk.format()\n"
                "end\n"
            )
        script.flush()
        command = ["wrk", "-t1", f"-c{size.connections}", f"-d{size.act_s}", "--latency", "-s", script.name]
        run = subprocess.run([*command, f"{service.url}/v1/act"], capture_output=True, text=True, check=True)
    if "Non-2xx" in run.stdout or "Socket errors" in run.stdout:
        raise LoomError(f"not every act was answered:\n{run.stdout}")
    rate = float(re.findall(r"Requests/sec:\s+([\d.]+)", run.stdout)[0])
    value, unit = re.findall(r"99%\s+([\d.]+)(us|ms|s)\b", run.stdout)[0]
    return rate, float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


# -- language -------------------------------------------------------------------------------------------------------


def _against_engine(service: Service, folder: Path, size: ServeSize) -> dict[str, Any]:
    """Tokens per second and first tokens of many streams: through the gateway, and from the bare engine, in turns."""
    bare = []
    through = []
    for _ in range(size.rounds):
        bare.append(_bare(folder, size))
        through.append(asyncio.run(all_streams(service, size.streams, size.tokens)))
    rate, ttft = (statistics.median(each[at] for each in bare) for at in (0, 1))
    served_rate, served_ttft = (statistics.median(each[at] for each in through) for at in (0, 1))
    return {
        "engine_tokens_per_s": round(rate),
        "gateway_tokens_per_s": round(served_rate),
        "gateway_overhead": round(1 - served_rate / rate, 3),
        "engine_ttft_ms": round(1e3 * ttft, 1),
        "gateway_ttft_ms": round(1e3 * (served_ttft - ttft), 1),
    }


def _bare(folder: Path, size: ServeSize) -> tuple[float, float]:
    """The engine alone, in a process of its own with the replica's number of threads."""
    amounts = (str(size.streams), str(size.tokens))
    rate, ttft = run_part("serve", str(folder), *amounts, env=os.environ | ONE_THREAD)
    return float(rate), float(ttft)


def _crowd(service: Service, size: ServeSize) -> dict[str, Any]:
    """Many streams open at once: the memory they cost, and whether all came to their end."""
    before = _memory(service.mark)
    most = 0

    async def peak_memory() -> list[int]:
        nonlocal most
        crowd = asyncio.create_task(_all(service, size))
        while not crowd.done():
            most = max(most, _memory(service.mark))
            await asyncio.wait((crowd,), timeout=0.25)
        return await crowd

    ended = asyncio.run(peak_memory())
    return {
        "streams_open": size.crowd,
        "streams_finished": len(ended),
        "streams_rss_bytes": max(0, most - before),
    }


async def _all(service: Service, size: ServeSize) -> list[int]:
    async with Client(service.url, headers_of(service)) as client:
        bodies = [chat_body(service, tokens=size.crowd_tokens, stream=True, number=n) for n in range(size.crowd)]
        return [each.tokens for each in await asyncio.gather(*map(client.stream, bodies))]


def _memory(mark: str) -> int:
    """Resident bytes of every process of the service."""
    return os.sysconf("SC_PAGE_SIZE") * sum(int(each[1]) for each in _fields(mark, "statm"))


def _fields(mark: str, name: str) -> Iterator[list[str]]:
    """The fields of this file in /proc of each process of the service, after the program's name if that is there."""
    for each in _processes(mark):
        with suppress(OSError):  # it has ended
            yield (each / name).read_text().rpartition(")")[2].split()


def _processes(mark: str) -> list[Path]:
    """The folders in /proc of the processes that were started with this mark, and of those that these started."""
    wanted = f"{MARK}={mark}".encode()
    parents: dict[str, str] = {}
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[entry.name] = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if wanted in (entry / "environ").read_bytes():  # Ray writes titles over it, so their parents count too
                found.add(entry.name)
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return [Path("/proc") / pid for pid in sorted(found)]


# -- idle -----------------------------------------------------------------------------------------------------------


def _idle(service: Service, size: ServeSize) -> dict[str, Any]:
    """Shares of a core: of an idle service, and of Ray with an empty deployment, which is no work of ours."""
    mark = uuid.uuid4().hex
    bare = run_part("serve", "idle", mark, str(size.idle_s), env=os.environ | {MARK: mark})
    whole = _cores(service.mark, size.idle_s)
    return {"idle_cores": round(whole, 3), "idle_cores_of_ray": round(float(bare), 3)}


def _cores(mark: str, seconds: float) -> float:
    """The share of a core that the processes with this mark take."""
    time.sleep(SETTLE_S)
    began = time.perf_counter()
    before = _cpu_s(mark)
    time.sleep(seconds)
    return (_cpu_s(mark) - before) / (time.perf_counter() - began)


def _cpu_s(mark: str) -> float:
    return sum(int(each[11]) + int(each[12]) for each in _fields(mark, "stat")) / os.sysconf("SC_CLK_TCK")


def _ray_alone(mark: str, seconds: float) -> float:
    from ray import serve

    from loomrl.own_ray import own_ray

    class Empty:
        pass

    with own_ray(num_cpus=1):
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        serve.start(proxy_location="Disabled")
        serve.run_many([serve.RunTarget(serve.deployment(name="empty")(Empty).bind(), name="empty", route_prefix=None)])
        return _cores(mark, seconds)


# -- the bare engine ------------------------------------------------------------------------------------------------


async def _engine_alone(folder: Path, count: int, tokens: int) -> tuple[float, float]:
    from loomrl.inference.chat import ChatTemplate
    from loomrl.types import Message

    chat = ChatTemplate(open_tokenizer(folder))
    engine = TorchEngine(open_model(folder), slots=64, context=1024)
    firsts: list[float] = []

    async def one(number: int, most: int) -> int:
        prompt = chat.opening((Message("user", f"Tell me about {number}."),)).ids
        sampling = Sampling(temperature=1.0, max_tokens=most)
        drawn = 0
        began = time.perf_counter()
        async for piece in engine.stream(Request(prompt, sampling, chat.stop, number)):
            if not drawn:
                firsts.append(time.perf_counter() - began)
            drawn += len(piece.ids_T)
        return drawn

    await one(0, 4)
    firsts.clear()
    began = time.perf_counter()
    drawn = await asyncio.gather(*(one(number, tokens) for number in range(count)))
    return sum(drawn) / (time.perf_counter() - began), float(np.median(firsts))


def main(words: Sequence[str]) -> None:
    """`FOLDER STREAMS TOKENS`: the bare engine's figures as JSON. `idle MARK SECONDS`: that of Ray alone."""
    match words:
        case ["idle", mark, seconds]:
            print(json.dumps(_ray_alone(mark, float(seconds))))
        case [folder, count, tokens]:
            print(json.dumps(asyncio.run(_engine_alone(Path(folder), int(count), int(tokens)))))


if __name__ == "__main__":
    main(sys.argv[1:])
