"""Requests that go no further."""

from starlette.responses import JSONResponse


class Refused(Exception):
    """A request that goes no further, and the status that it is answered with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def refusal_of(refused: Refused) -> JSONResponse:
    """The answer to such a request, after which its connection is closed."""
    extra = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
    answer = {"error": "Refused", "message": str(refused)}
    return JSONResponse(answer, refused.status, headers={"connection": "close", **extra})
