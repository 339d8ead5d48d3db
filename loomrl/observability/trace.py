"""Traces by OpenTelemetry, with the names of its conventions for generative AI.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT is set. Log lines have a trace id anyway: the caller's, or the request's own.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan

SWITCHES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
FLUSH_MS = 3000
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
RANDOM = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Kind = Literal["server", "client", "internal"]
Value = str | int | float | bool | list[str] | None
_trace: ContextVar[Mapping[str, str]] = ContextVar("trace")


class Span:
    """A part of a trace. Without an exporter it is a name for nothing."""

    __slots__ = ("_span",)

    def __init__(self, span: "OtelSpan | None") -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        """Headers that put the receiver's spans below this one; empty if nothing is traced."""
        if self._span is None:
            return ""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    def rename(self, name: str) -> None:
        """Another name, once it is known."""
        if self._span is not None:
            self._span.update_name(name)

    def set(self, **attributes: Value) -> None:
        """Attributes that are known; `__` in a name stands for a point."""
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(name.replace("__", "."), value)

    def end(self, error: BaseException | None = None) -> None:
        """The part is over. Ending again does nothing."""
        if self._span is None or not self._span.is_recording():
            return
        if error is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", type(error).__name__)  # its text may be the caller's
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


NOTHING = Span(None)


@cache
def provider() -> "TracerProvider | None":
    """The exporter of this process; None where nothing is traced, or OpenTelemetry is not installed."""
    if not any(os.environ.get(name) for name in SWITCHES) or os.environ.get("OTEL_SDK_DISABLED") == "true":
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "loomrl")})
    made = TracerProvider(resource=resource)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made


def begin(name: str, *, kind: Kind = "internal", below: str = "", **attributes: Value) -> Span:
    """A new span below another one (`below` is its traceparent), or at the top of a trace."""
    tracing = provider()
    if tracing is None:
        return NOTHING
    from opentelemetry import trace
    from opentelemetry.context import Context

    parent = Context()
    if found := TRACEPARENT.fullmatch(below):
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        above = trace.SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=flags)
        parent = trace.set_span_in_context(trace.NonRecordingSpan(above), parent)
    begun = Span(tracing.get_tracer("loomrl").start_span(name, parent, kind=trace.SpanKind[kind.upper()]))
    begun.set(**attributes)
    return begun


@contextmanager
def ending(begun: Span) -> Iterator[Span]:
    """The span ends with the block; what the block raises is its error."""
    try:
        yield begun
    except BaseException as error:
        begun.end(error)
        raise
    begun.end()


@contextmanager
def serving(name: str, *, request: str, traceparent: str) -> Iterator[Span]:
    """The span of a request, below the caller's if it sent one. Log lines of the block have its trace."""
    begun = begin(name, kind="server", below=traceparent)
    token = _trace.set(_ids(begun.traceparent or traceparent, request))
    try:
        yield begun
    finally:
        begun.end()
        _trace.reset(token)


def below() -> str:
    """The traceparent of the request that is being served; empty if nothing is traced."""
    return _trace.get({}).get("traceparent", "") if provider() is not None else ""


def present_trace() -> Mapping[str, str]:
    """`trace_id`, `span_id` and `request_id` of the request that is being served."""
    return {name: value for name, value in _trace.get({}).items() if name != "traceparent"}


def is_random(id: str) -> bool:
    """True for a random id, as ours are; False for a name that a caller chose."""
    return RANDOM.fullmatch(id) is not None


def _ids(traceparent: str, request: str) -> Mapping[str, str]:
    found = TRACEPARENT.fullmatch(traceparent)
    own = {"request_id": request} if is_random(request) else {}
    if found is None:
        return {"trace_id": request.replace("-", ""), **own} if own else {}
    return {"trace_id": found[1], "span_id": found[2], **own, "traceparent": traceparent}


def flush() -> None:
    """Send what is left."""
    if (tracing := provider()) is not None:
        tracing.force_flush(FLUSH_MS)
