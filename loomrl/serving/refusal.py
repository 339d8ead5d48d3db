"""A refused request, independent of any dialect."""

from enum import StrEnum


class Cause(StrEnum):
    """The cause of a refusal. Its HTTP status is `STATUS[cause]`."""

    INVALID = "invalid"
    TOO_LONG = "too_long"
    """The conversation leaves no room in the policy's context."""
    TOO_LARGE = "too_large"
    KEY = "key"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    """No such model, session or path."""
    CONFLICT = "conflict"
    FULL = "full"
    BUDGET = "budget"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    """The deadline passed: an answer may be had later, so it is 503 too."""
    INTERNAL = "internal"


STATUS = {
    Cause.INVALID: 400,
    Cause.TOO_LONG: 400,
    Cause.TOO_LARGE: 413,
    Cause.KEY: 401,
    Cause.FORBIDDEN: 403,
    Cause.UNKNOWN: 404,
    Cause.CONFLICT: 409,
    Cause.FULL: 429,
    Cause.BUDGET: 429,
    Cause.UNAVAILABLE: 503,
    Cause.TIMEOUT: 503,
    Cause.INTERNAL: 500,
}


class Refusal(Exception):
    """A refused request. `where` is the path of the wrong part, as `messages.0.role`."""

    def __init__(self, cause: Cause, message: str, *, where: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.where = where
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.cause]
