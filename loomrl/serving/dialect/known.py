"""All dialects by their paths."""

from collections.abc import Callable, Mapping
from typing import Any

from loomrl.serving.dialect.anthropic import Messages
from loomrl.serving.dialect.chat import Chat
from loomrl.serving.dialect.completions import Completions
from loomrl.serving.dialect.dialect import Dialect
from loomrl.serving.dialect.openai import error_of
from loomrl.serving.dialect.responses import Responses
from loomrl.serving.door import Scope
from loomrl.serving.refusal import Refusal

DIALECTS: Mapping[str, Dialect] = {
    dialect.path: dialect for dialect in (Chat(), Completions(), Responses(), Messages())
}
"""Stateless, and shared by all requests."""
MODELS = "/v1/models"
"""Each model has a path below it."""
PATHS = (*DIALECTS, "/v1/act", "/v1/feedback", MODELS, "/complete", "/healthz", "/readyz")
"""What callers may ask a gateway for, at the root or below /sessions/ID. Its metrics are not for them."""

Shape = Callable[[Refusal], dict[str, Any]]


def errors_of(path: str, *, anthropic: bool) -> Shape:
    """The writer of errors for a path, below the root or a session; one of no dialect takes the client's."""
    dialect = next((dialect for dialect in DIALECTS.values() if path.endswith(dialect.path)), None)
    if dialect is None:
        return DIALECTS[Messages.path].refusal if anthropic else error_of
    return dialect.refusal


def errors_for(scope: Scope, path: str) -> Shape:
    """The writer of errors for a request, which is chosen once there is one."""

    def write(refusal: Refusal) -> dict[str, Any]:
        is_anthropic = any(name == b"anthropic-version" for name, _ in scope["headers"])
        return errors_of(path, anthropic=is_anthropic)(refusal)

    return write
