"""Spans of a call as an OTLP collector gets them, and log lines that name their trace."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from loomrl.errors import ConfigError
from loomrl.observability import trace
from loomrl.observability.log import JsonFormatter, is_json, open_log, teller
from loomrl.serving.channel.link import ChannelLink
from loomrl.serving.channel.server import ChannelServer
from loomrl.store.endpoints import Arm, Role
from tests.observability.gateway_samples import metered, served
from tests.serving.test_gateway import Slow

pytestmark = pytest.mark.system
CHAT, HELLO = "/v1/chat/completions", {"model": "e", "messages": [{"role": "user", "content": "Hello"}]}
ABOVE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    """A real receiver of OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        received = self.spans

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    received.extend(span for scope in resource.scope_spans for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Receiver)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def named(self) -> dict[str, Any]:
        trace.flush()
        return {span.name: span for span in self.spans}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    trace.provider.cache_clear()
    yield made
    tracing = trace.provider()
    tracing.shutdown()
    trace.provider.cache_clear()
    made.close()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_a_call_is_one_trace_from_the_caller_to_the_recorder(collector: Collector) -> None:
    server = ChannelServer(Slow(tokens=4), token="t")
    link = await ChannelLink.open(await server.start(), token="t")
    async with metered(served({"stable": link})) as gateway:
        answer = await gateway.client.post(CHAT, json=HELLO, headers={"traceparent": ABOVE})
        assert answer.status_code == 200, answer.text
    await link.close()
    await server.close()
    spans = collector.named()
    assert spans.keys() == {"chat e", "arm stable", "engine", "record"}
    chat, arm, engine, record = (spans[name] for name in ("chat e", "arm stable", "engine", "record"))
    assert {span.trace_id.hex() for span in spans.values()} == {"0af7651916cd43dd8448eb211c80319c"}
    assert chat.parent_span_id.hex() == "b7ad6b7169203331"
    assert arm.parent_span_id == record.parent_span_id == chat.span_id
    assert engine.parent_span_id == arm.span_id
    about = attributes(chat)
    assert about["gen_ai.operation.name"] == "chat"
    assert (about["gen_ai.request.model"], about["gen_ai.response.model"]) == ("e", "slow")
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (2, 4)
    assert about["http.response.status_code"] == 200
    assert about["gen_ai.conversation.id"] == answer.headers["x-loomrl-session"]
    assert attributes(engine)["gen_ai.usage.output_tokens"] == 4
    assert "Hello" not in str(collector.spans), "no content leaves"


async def test_an_arm_that_fails_is_an_error_in_the_trace_and_the_one_that_answers_is_beside_it(
    collector: Collector,
) -> None:
    arms = Arm(name="stable", policy="good", share=0.0), Arm(name="canary", policy="bad", role=Role.CANARY)
    view = served({"good": Slow(tokens=1), "bad": Slow(error_at=0)}, *arms)
    async with metered(view) as gateway:
        streamed = await gateway.client.post(CHAT, json=HELLO | {"stream": True})
        assert streamed.status_code == 200, streamed.text
    spans = collector.named()
    assert spans["arm canary"].status.code == 2
    assert spans["arm stable"].status.code == 0
    assert spans["arm canary"].parent_span_id == spans["arm stable"].parent_span_id == spans["chat e"].span_id


async def test_health_and_metrics_are_not_traced(collector: Collector) -> None:
    async with metered(served({"stable": Slow(tokens=1)})) as gateway:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await gateway.client.get(path)).status_code == 200
    assert collector.named() == {}


def test_nothing_is_traced_by_default() -> None:
    trace.provider.cache_clear()
    assert trace.provider() is None
    assert trace.begin("x") is trace.NOTHING


@pytest.fixture
def lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator["pytest.CaptureFixture[str]"]:
    monkeypatch.setenv("LOOMRL_LOG", "json")
    yield capsys
    log = logging.getLogger("loomrl")
    for handler in [each for each in log.handlers if isinstance(each.formatter, JsonFormatter)]:
        log.removeHandler(handler)
    log.setLevel(logging.NOTSET)
    log.propagate = True


async def test_a_request_is_a_line_with_its_trace_and_without_its_content(
    lines: "pytest.CaptureFixture[str]",
) -> None:
    open_log()
    open_log()
    async with metered(served({"stable": Slow(tokens=2)})) as gateway:
        named = {"x-loomrl-session": "anna@example.org", "x-request-id": "anna"}
        await gateway.client.post(CHAT, json=HELLO, headers={"traceparent": ABOVE, **named})
        plain = await gateway.client.post(CHAT, json={"model": "nobody"})
    first, second = (json.loads(line) for line in lines.readouterr().err.splitlines())
    assert first["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert (first["status"], first["endpoint"], first["version"], first["completion_tokens"]) == (200, "e", "slow", 2)
    assert first["level"] == "info"
    assert (second["status"], second["trace_id"]) == (400, plain.headers["x-request-id"])
    assert "Hello" not in json.dumps([first, second])
    assert "anna" not in json.dumps([first, second]), "what callers name may be people"


def test_an_exception_is_one_line(lines: "pytest.CaptureFixture[str]") -> None:
    open_log()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("loomrl.x").exception("It failed.", extra={"job": 7})
    teller("bus", "bus: ")("it works again")
    failed, told = (json.loads(line) for line in lines.readouterr().err.splitlines())
    assert (failed["message"], failed["job"]) == ("It failed.", 7)
    assert "two\nlines" in failed["exception"]
    assert (told["message"], told["logger"]) == ("it works again", "loomrl.bus")


def test_another_format_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMRL_LOG", "xml")
    with pytest.raises(ConfigError, match="text or json"):
        is_json()
