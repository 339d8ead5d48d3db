"""The console over a store, for tests: a browser without pictures, that keeps cookies and sends tokens."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from loomrl.console.app import console_app
from loomrl.console.launch import Launcher
from loomrl.console.source import Indexer, RecordSource, open_source
from loomrl.http.site import JSON, Site
from loomrl.store.keys import create_key

FORM = "application/x-www-form-urlencoded"
SITE = Site(frozenset({"testserver"}), frozenset({JSON, FORM}))
HTML = {"accept": "text/html"}


class Browser(TestClient):
    """A client that shows pages."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(app, headers=HTML)

    def token(self, path: str = "/runs") -> str:
        """The token of the session's forms."""
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.get(path).text)
        assert found is not None, f"{path} has no form"
        return found[1]

    def submit(self, path: str, *, page: str, **fields: str) -> Any:
        """Send a form of a page."""
        return self.post(path, data={"csrf": self.token(page), **fields}, follow_redirects=False)

    def sign_in(self, key: str) -> Any:
        """Sign in with a key."""
        return self.submit("/sign-in", page="/sign-in", key=key, next="/runs")


def key(source: RecordSource, *scopes: str, at: float = 1.0, expires_at: float | None = None) -> tuple[str, str]:
    """A key for people: the plain one, and its id."""
    plain, made = create_key(source.db, "ann", scopes=scopes, at=at, expires_at=expires_at)
    return plain, made.id


def charts_in(page: str) -> list[dict[str, Any]]:
    """The charts that a page brings as data."""
    return [json.loads(unescape(data)) for data in re.findall(r'data-chart="([^"]*)"', page)]


@contextmanager
def console(
    url: str, *, is_local: bool = True, launcher: Launcher | None = None, analytics: str | None = None
) -> Iterator[tuple[RecordSource, Starlette]]:
    """The console, with every trajectory in its index."""
    source = open_source(url)
    indexer = Indexer(source)
    while indexer.round():
        pass
    try:
        yield source, console_app(source, site=SITE, is_local=is_local, launcher=launcher, analytics=analytics)
    finally:
        source.close()
