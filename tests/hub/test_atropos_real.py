"""The real package against our hub. `make atropos` installs it, in an environment of its own."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from atropos_support import serving
from hub_samples import hub_command
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from tests.needs import ATROPOS, need

HERE = Path(__file__).parent
STEPS = 6


pytestmark = [pytest.mark.system, pytest.mark.slow]
"""Their quick sibling is `test_atropos_routes.py`: the same exchange, without the package."""


@contextmanager
def real_clients(url: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """The package's trainer, which prints its batches in the end, and its environment, which writes `posted.jsonl`."""
    python = python_of_atropos()
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "tokenizer")
    arguments = [python, HERE / "atropos_real_environment.py", url, folder / "tokenizer", folder / "posted.jsonl"]
    trainer = subprocess.Popen(
        [python, HERE / "atropos_real_trainer.py", url, str(STEPS)], stdout=subprocess.PIPE, text=True
    )
    environment = subprocess.Popen([*arguments, str(STEPS)], stderr=subprocess.PIPE, text=True)
    try:
        yield trainer, environment
    finally:
        trainer.kill()
        environment.kill()


def finish(trainer: subprocess.Popen[str], environment: subprocess.Popen[str]) -> tuple[list[Any], str]:
    """The batches the trainer got, and the environment's log; both must have ended well."""
    printed, _ = trainer.communicate(timeout=120)
    _, log = environment.communicate(timeout=120)
    assert (trainer.returncode, environment.returncode) == (0, 0), log
    return json.loads(printed.splitlines()[-1]), log


@pytest.mark.parametrize("url", ["sqlite_url", "postgres_url"])
def test_unmodified_environment_and_trainer_meet_at_our_hub(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with (
        serving(request.getfixturevalue(url)) as client,
        real_clients(str(client.base_url).rstrip("/"), tmp_path) as clients,
    ):
        batches, _ = finish(*clients)
        queue_size = client.get("/status").json()["queue_size"]

    assert len(batches) >= STEPS
    assert {sum(len(data["tokens"]) for data in batch) for batch in batches} == {8}
    received = [data for batch in batches for data in batch]
    posted = [json.loads(line) for line in (tmp_path / "posted.jsonl").read_text().splitlines()]
    assert {len(data["tokens"]) for data in posted} == {2, 4}
    by_item = {item(data): data for data in posted}
    assert len({item(data) for data in received}) == len(received)
    for data in received:
        sent = by_item[item(data)]
        assert data == {**dict.fromkeys(data), **sent, "env_id": 0}
    assert len(received) + queue_size <= len(posted)
    on_their_way = 2 * 4
    assert queue_size * 2 <= 3 * 8 + on_their_way, "the environment did not stop at three batches"


def test_unmodified_environment_and_trainer_go_on_when_the_hub_is_killed(tmp_path: Path, unused_tcp_port: int) -> None:
    url, posted = f"http://127.0.0.1:{unused_tcp_port}", tmp_path / "posted.jsonl"
    with hub_command(tmp_path, unused_tcp_port) as keeper, real_clients(url, tmp_path) as clients:
        for kill in range(2):
            wait_for_lines(posted, 1 + 4 * kill)
            (server,) = psutil.Process(keeper.pid).children()
            server.kill()
            httpx.get(f"{url}/info", timeout=60)
        batches, log = finish(*clients)

    assert "Failed to send" not in log
    received = [item(data) for batch in batches for data in batch]
    assert len(batches) >= STEPS
    assert len(set(received)) == len(received)


def wait_for_lines(file: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while not file.exists() or len(file.read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def python_of_atropos() -> Path:
    need("atroposlib")
    return ATROPOS


def item(data: dict[str, Any]) -> int:
    first: int = data["tokens"][0][0]
    return first
