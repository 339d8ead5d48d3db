"""Refused requests."""

from starlette.responses import JSONResponse


class Refused(Exception):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def refusal_of(refused: Refused) -> JSONResponse:
    """The answer to a refused request, after which its connection is closed."""
    extra = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
    answer = {"error": "Refused", "message": str(refused)}
    return JSONResponse(answer, refused.status, headers={"connection": "close", **extra})
