"""Opponents that are policies: a model's folder and a model behind a server, opened once in a process."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from loomrl.envs.game import GameEnvironment
from loomrl.envs.game.opponent import _open_factory
from loomrl.errors import EpisodeError
from tests.inference.sample_models import VOCABULARY, tiny_tokenizer

pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A past version: random weights, but a real model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from loomrl.inference.model import save_model

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=4096,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("past") / "model"
    save_model(LlamaForCausalLM(config).eval(), tiny_tokenizer(), path)
    return path


@pytest.fixture
def server():
    """A server that speaks as OpenAI's does, and always plays the first legal move."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            legal = asked["messages"][-1]["content"].split("Legal moves: ")[1].split(",")[0].split("\n")[0]
            answer = json.dumps({"choices": [{"message": {"content": f"MOVE: {legal}"}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}/v1"
        running.shutdown()
        thread.join()


async def game(settings, seed=2):
    """The messages in a game of the oracle, and its last step."""
    environment = GameEnvironment(settings)
    lines = [(await environment.reset(environment.task("board.connect_four", 3, seed)))[0].content]
    while True:
        step = await environment.step(environment.oracle())
        lines += [message.content for message in step.observation]
        if step.terminated:
            return lines, step


async def test_a_past_version_plays_the_same_game_again_and_is_opened_once(folder):
    policy = {
        "kind": "language",
        "path": str(folder),
        "context": 2048,
        "sampling": {"temperature": 1.0, "max_tokens": 8},
    }
    settings = {"opponent": {"kind": "policy", "policy": policy}}
    before = _open_factory.cache_info().misses
    lines, step = await game(settings)
    again, _ = await game(settings)
    assert lines == again
    assert step.reward.success == 1.0
    assert step.info["opponent_slips"] == len(lines) - 1
    assert _open_factory.cache_info().misses == before + 1


async def test_a_past_version_without_room_for_the_game_is_a_failure(folder):
    policy = {"kind": "language", "path": str(folder), "context": 64}
    with pytest.raises(EpisodeError, match=r"opponent\.policy: context=64"):
        await game({"opponent": {"kind": "policy", "policy": policy}})


async def test_a_model_behind_a_server_plays(server):
    policy = {"kind": "openai", "url": server, "model": "m"}
    lines, step = await game({"opponent": {"kind": "policy", "policy": policy}})
    assert len(lines) > 1
    assert step.info["opponent_slips"] == 0


async def test_a_server_that_is_gone_is_a_failure(unused_tcp_port):
    policy = {"kind": "openai", "url": f"http://127.0.0.1:{unused_tcp_port}/v1", "model": "m", "timeout_s": 5}
    with pytest.raises(EpisodeError, match=r"opponent\.policy"):
        await game({"opponent": {"kind": "policy", "policy": policy}})
