"""The columnar store's place: a folder of this machine, which one process at a time may use, or a ClickHouse server."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from loomrl.errors import AnalyticsError, unknown
from loomrl.files import make_private

DATABASE = "loomrl"
SCHEMES = ("http", "https")
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Either a folder or the URL of a server; and the database there."""

    folder: Path | None = None
    url: str = ""
    database: str = DATABASE

    @property
    def name(self) -> str:
        """For people and records: without a password."""
        if self.folder is not None:
            return str(self.folder)
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}/{self.database}"


def place_of(text: str | None, store_url: str) -> StoreLocation:
    """The place with this name; by default the folder beside a LoomDB in a file."""
    if text is None:
        return StoreLocation(folder=_beside(store_url))
    if "://" not in text:
        return StoreLocation(folder=Path(text).expanduser().absolute())
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        said = f"analytics={_hidden(text)!r}: {error}. Example: http://USER:PASSWORD@HOST:8123."
        raise AnalyticsError(said) from None
    if parts.scheme not in SCHEMES:
        raise AnalyticsError("analytics URL " + unknown("scheme", parts.scheme, SCHEMES) + " Or give a folder.")
    return StoreLocation(url=text, database=parts.path.strip("/") or DATABASE)


@contextmanager
def sole(file: Path, *, wait_s: float, said: str, user: int | None = None) -> Iterator[None]:
    """We alone hold the file; AnalyticsError if another process does for longer than we wait. `said` is of its id.

    `user` is the process that others are told of; by default this one.
    """
    make_private(file.parent)
    until = time.monotonic() + wait_s
    with file.open("a+") as opened:
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise AnalyticsError(said.format(file.read_text().strip() or "?")) from None
                time.sleep(LOOK_S)
        opened.truncate(0)
        opened.write(str(os.getpid() if user is None else user))
        opened.flush()
        yield


def _beside(store_url: str) -> Path:
    parts = urlsplit(store_url)
    if parts.scheme.partition("+")[0] != "sqlite":
        raise AnalyticsError(
            "analytics: a LoomDB on a server has no folder beside it. Name one, or a ClickHouse server: "
            "--analytics FOLDER or --analytics http://USER:PASSWORD@HOST:8123."
        )
    file = Path(store_url.partition(":///")[2]).expanduser().absolute()
    return file.with_name(f"{file.stem}-analytics")


def _hidden(text: str) -> str:
    """A URL without what is before its host."""
    return text.partition("://")[0] + "://…" + text.rpartition("@")[2] if "@" in text else text
