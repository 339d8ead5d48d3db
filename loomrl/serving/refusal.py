"""A refused request, independent of any dialect."""

from enum import StrEnum


class RefusalCause(StrEnum):
    """The cause of a refusal. Its HTTP status is `STATUS[cause]`."""

    INVALID = "invalid"
    TOO_LONG = "too_long"
    """The conversation leaves no room in the policy's context."""
    TOO_LARGE = "too_large"
    KEY = "key"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    """No such model, session, answer or path."""
    METHOD = "method"
    CONFLICT = "conflict"
    FULL = "full"
    BUDGET = "budget"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    """The deadline passed: an answer may be had later, so it is 503 too."""
    INTERNAL = "internal"


STATUS = {
    RefusalCause.INVALID: 400,
    RefusalCause.TOO_LONG: 400,
    RefusalCause.TOO_LARGE: 413,
    RefusalCause.KEY: 401,
    RefusalCause.FORBIDDEN: 403,
    RefusalCause.UNKNOWN: 404,
    RefusalCause.METHOD: 405,
    RefusalCause.CONFLICT: 409,
    RefusalCause.FULL: 429,
    RefusalCause.BUDGET: 429,
    RefusalCause.UNAVAILABLE: 503,
    RefusalCause.TIMEOUT: 503,
    RefusalCause.INTERNAL: 500,
}


class Refusal(Exception):
    """A refused request. `where` is the path of the wrong part, as `messages.0.role`; `allow` the method to take."""

    def __init__(
        self,
        cause: RefusalCause,
        message: str,
        *,
        where: str = "",
        retry_after_s: float | None = None,
        allow: str = "",
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.where = where
        self.retry_after_s = retry_after_s
        self.allow = allow

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.cause]
