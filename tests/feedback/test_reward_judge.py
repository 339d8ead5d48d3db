"""A judge of completion, behind a real server: asked only where nobody told, and no judgement where it fails."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loomrl.config import RewardPipeline
from loomrl.feedback.reward.inspection import Inspection
from loomrl.feedback.reward.pipeline import COMPLETION, Pipeline, Trails, as_event
from loomrl.gym.judge import conversation
from loomrl.types import Message
from tests.feedback.support import served

pytestmark = pytest.mark.system


class Model(ThreadingHTTPServer):
    """Answers every question with its verdict, or with an error."""

    daemon_threads = True
    verdict: str | None = "in part"
    asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        self.server.asked += 1
        self.rfile.read(int(self.headers["content-length"]))
        said = f"It did some.\nVERDICT: {self.server.verdict}"
        body = json.dumps({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]}).encode()
        self.send_response(200 if self.server.verdict else 400)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[Model]:
    server = Model(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_judge_is_asked_where_nobody_told_and_its_failure_is_no_zero(model: Model) -> None:
    url = f"http://127.0.0.1:{model.server_port}/v1"
    settings = RewardPipeline.parse({"judge": {"url": url, "model": "m"}})
    inspection, pipeline = Inspection(settings), Pipeline(settings)
    silent, told = served("a", "half of it"), served("b", "all of it", success=1.0)
    assert (inspection.takes_time(silent), inspection.takes_time(told)) == (True, False)
    found = inspection.inspect([silent, told])
    assert model.asked == 1
    assert found["a"][COMPLETION].value == 0.75
    reward = pipeline.reward(pipeline.case(silent, found=found["a"]), [], Trails(9), endpoint="talk", at=1.0)
    assert reward.first == {"task_completion": 0.75}
    assert as_event(reward)["metadata"]["evaluation_method"] == "model-based"
    model.verdict = None
    assert inspection.inspect([silent])["a"][COMPLETION].value is None


def test_a_judge_sees_the_whole_conversation() -> None:
    assert conversation(served("a", "one", "two")) == (
        Message("user", "please"),
        Message("assistant", "one"),
        Message("user", "please"),
        Message("assistant", "two"),
    )
