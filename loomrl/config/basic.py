"""Types of numbers and text in settings."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
EntryPoint = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
"""The range that NumPy, torch and environments all accept, with room for seeds counted up from it."""
Episodes = Annotated[int, Field(ge=1, le=1_000_000)]
"""Episodes of an evaluation: the held-out tasks of two seeds are disjoint up to a million."""
Level = Annotated[int, Field(ge=1, le=10)]
Person = Annotated[str, Field(min_length=1, max_length=200)]
"""A name, as `--who` gives it."""


def _possible(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path cannot have a NUL character")
    return path


PathText = Annotated[str, Field(min_length=1), AfterValidator(_possible)]


def _without_password(url: str) -> str:
    if urlsplit(url).password:
        raise ValueError(
            "a password does not belong in an experiment, which is recorded whole: put it in ~/.pgpass or PGPASSWORD"
        )
    return url


StoreUrl = Annotated[str, AfterValidator(_without_password)]


def _of_a_server(url: str) -> str:
    try:
        parts = urlsplit(_without_password(url))
        parts.port  # noqa: B018 - asked for, it is checked
    except ValueError as error:
        raise ValueError(f"{url!r} is not a server's address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not a server's address: write one such as http://127.0.0.1:8000/v1")
    return url


ServerUrl = Annotated[str, AfterValidator(_of_a_server)]
