"""What is told of a request once it is answered: attributes of its span, and a line of the log. Never its content."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from loomrl.observability import trace
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.dialect.known import DIALECTS
from loomrl.serving.door import Incoming
from loomrl.serving.reply import Reply

log = redacted_logger(__name__)
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked by machines, again and again."""
OPERATIONS = {"/v1/completions": "text_completion", "/v1/act": "act"}


@contextmanager
def told(head: Incoming, reply: Reply) -> Iterator[None]:
    """Trace and log what is answered in the block."""
    if head.path in QUIET:
        yield
        return
    asked = head.headers.get("traceparent", "")
    begun = time.perf_counter()
    with trace.serving(f"{head.method} {head.path[:100]}", request=head.id, traceparent=asked) as span:
        yield
        _tell(span, head, reply)
        if log.isEnabledFor(logging.INFO):
            log.info("%s %s %d", head.method, head.path[:100], reply.status, extra=_fields(reply, begun))


def _tell(span: trace.Span, head: Incoming, reply: Reply) -> None:
    """The conventions' names for servers and for generative AI."""
    if span is trace.NOTHING:
        return
    span.set(http__request__method=head.method, url__path=head.path[:100], http__response__status_code=reply.status)
    heading = reply.heading
    usage = reply.usage
    if heading is not None:
        operation = OPERATIONS.get(head.path, "chat" if head.path in DIALECTS else "act")
        span.rename(f"{operation} {heading.model}")
        span.set(
            gen_ai__operation__name=operation,
            gen_ai__provider__name="loomrl",
            gen_ai__request__model=heading.model,
            gen_ai__response__model=heading.version,
            gen_ai__response__id=heading.id,
            gen_ai__conversation__id=_named(heading.session),
            loomrl__arm=heading.arm,
            loomrl__recorded=reply.is_recorded,
        )
    if usage is not None:
        span.set(gen_ai__usage__input_tokens=usage.prompt, gen_ai__usage__output_tokens=usage.completion)
    if reply.status >= 500:
        span.set(error__type=str(reply.status))


def _fields(reply: Reply, begun: float) -> dict[str, object]:
    found: dict[str, object] = {"status": reply.status, "ms": round(1000 * (time.perf_counter() - begun), 2)}
    if (heading := reply.heading) is not None:
        found |= {"endpoint": heading.model, "arm": heading.arm, "version": heading.version}
        found |= {"session": _named(heading.session)} if _named(heading.session) else {}
    if reply.usage is not None:
        found |= {"prompt_tokens": reply.usage.prompt, "completion_tokens": reply.usage.completion}
    return found


def _named(session: str) -> str | None:
    """The session's id, unless the caller chose it: it may be a person's name."""
    return session if trace.is_random(session) else None
