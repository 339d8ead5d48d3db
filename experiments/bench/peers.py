"""vLLM's own server, LiteLLM's proxy before it, and our gateway before vLLM: the same streams, on the same cores."""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from loomrl.errors import LoomError
from loomrl.experiments.bench.served import START_S, Service, all_streams, served, terminating

NAME = "talk"
"""The model's name at every server."""


def measure(folder: Path, litellm: str, *, rounds: int, streams: int, tokens: int) -> dict[str, Any]:
    """Tokens per second and milliseconds to the first token of each, in turns; `litellm` is its program."""
    with ExitStack() as stack:
        plain = stack.enter_context(_vllm(folder / NAME))
        doors = {
            "vllm": plain,
            "litellm": stack.enter_context(_litellm(litellm, plain, folder)),
            "gateway": stack.enter_context(served(folder, NAME, "engine.kind=vllm")),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in doors}
        for _ in range(1 + rounds):
            for name, door in doors.items():
                found[name].append(asyncio.run(all_streams(door, streams, tokens)))
    figures: dict[str, Any] = {}
    for name, each in found.items():
        rate, first_s = (statistics.median(column) for column in zip(*each[1:], strict=True))  # the first warms up
        figures |= {f"peer_{name}_tokens_per_s": round(rate), f"peer_{name}_ttft_ms": round(1e3 * first_s, 1)}
    return figures


@contextmanager
def _vllm(folder: Path) -> Iterator[Service]:
    """vLLM's own server of a model's folder."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    with _program([*command, "--served-model-name", NAME, "--gpu-memory-utilization", "0.1"]) as service:
        yield service


@contextmanager
def _litellm(program: str, behind: Service, folder: Path) -> Iterator[Service]:
    """LiteLLM's proxy before a server."""
    params = {"model": f"hosted_vllm/{NAME}", "api_base": f"{behind.url}/v1", "api_key": "none"}
    settings = folder / "litellm.json"
    settings.write_text(json.dumps({"model_list": [{"model_name": NAME, "litellm_params": params}]}))
    with _program([program, "--config", str(settings)]) as service:
        yield service


@contextmanager
def _program(command: Sequence[str]) -> Iterator[Service]:
    """A server on a free port, once it answers, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    env = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    words = [*command, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=env, start_new_session=True)
    service = Service(f"http://127.0.0.1:{port}", None, "", 0.0, NAME)
    with terminating(process):
        until = time.monotonic() + START_S
        while not _answers(service):
            if process.poll() is not None or time.monotonic() > until:
                raise LoomError(f"{' '.join(words)} does not answer: its messages stand above.")
            time.sleep(0.5)
        yield service


def _answers(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/v1/models", timeout=5).is_success
    except httpx.HTTPError:
        return False
