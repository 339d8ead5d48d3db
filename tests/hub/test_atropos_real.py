"""The real package against our hub. `make atropos` installs it, in an environment of its own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from atropos_support import serving
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
STEPS = 6


@pytest.mark.system
def test_unmodified_environment_and_trainer_meet_at_our_hub(store_url: str, tmp_path: Path) -> None:
    python = python_of_atropos()
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "tokenizer")
    posted_file = tmp_path / "posted.jsonl"
    with serving(store_url) as client:
        url = str(client.base_url).rstrip("/")
        trainer = subprocess.Popen(
            [python, HERE / "atropos_real_trainer.py", url, str(STEPS)], stdout=subprocess.PIPE, text=True
        )
        environment = subprocess.Popen(
            [python, HERE / "atropos_real_environment.py", url, tmp_path / "tokenizer", posted_file, str(STEPS)],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            printed, _ = trainer.communicate(timeout=120)
            _, log = environment.communicate(timeout=120)
        finally:
            trainer.kill()
            environment.kill()
        assert (trainer.returncode, environment.returncode) == (0, 0), log
        batches = json.loads(printed.splitlines()[-1])
        queue_size = client.get("/status").json()["queue_size"]

    assert len(batches) >= STEPS
    assert {sum(len(data["tokens"]) for data in batch) for batch in batches} == {8}
    received = [data for batch in batches for data in batch]
    posted = [json.loads(line) for line in posted_file.read_text().splitlines()]
    assert {len(data["tokens"]) for data in posted} == {2, 4}
    by_item = {item(data): data for data in posted}
    assert len({item(data) for data in received}) == len(received)
    for data in received:
        sent = by_item[item(data)]
        assert data == {**dict.fromkeys(data), **sent, "env_id": 0}
    assert len(received) + queue_size <= len(posted)
    on_their_way = 2 * 4
    assert queue_size * 2 <= 3 * 8 + on_their_way, "the environment did not stop at three batches"


def python_of_atropos() -> Path:
    python = HERE.parent.parent / ".venv-atropos" / "bin" / "python"
    if not python.exists():
        pytest.fail("CI must run `make atropos`") if os.environ.get("CI") else pytest.skip("needs `make atropos`")
    return python


def item(data: dict[str, Any]) -> int:
    first: int = data["tokens"][0][0]
    return first
