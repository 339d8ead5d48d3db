"""The console as a server."""

from loomrl.console.app import console_app
from loomrl.console.launch import Launcher
from loomrl.console.session import ROLES
from loomrl.console.source import RecordSource
from loomrl.errors import ServeError
from loomrl.http.listen import Certificate, Door, is_loopback, open_door
from loomrl.http.server import Limits, serve
from loomrl.http.site import JSON, Site
from loomrl.store.keys import any_key

FORM = "application/x-www-form-urlencoded"
NEEDED = "behind keys"
"""Stands for the token of a door that is behind keys: the console has one for each person."""


def site_for(door: Door) -> Site:
    """The names of the console, and what it takes."""
    names = frozenset(name.lower() for name in door.allowed_hosts)
    hosts = None if not is_loopback(door.host) and not names else names | {door.host.lower()}
    return Site(hosts, frozenset({JSON, FORM}))


def open_console(
    source: RecordSource,
    host: str,
    port: int,
    *,
    allowed_hosts: tuple[str, ...] = (),
    certificate: Certificate | None = None,
    now: float,
) -> Door:
    """Listen; a ServeError if other machines could reach it and no key exists to sign in with."""
    is_local = is_loopback(host)
    if not is_local and not any_key(source.db, ROLES, at=now):
        raise ServeError(
            f"host={host!r} can be reached from other machines, and no key for people is on record. Make one first: "
            "loomrl keys create NAME --scope admin; or serve on 127.0.0.1."
        )
    token = None if is_local else NEEDED
    return open_door(host, port, token=token, allowed_hosts=allowed_hosts, certificate=certificate)


def serve_console(
    source: RecordSource, door: Door, *, launcher: Launcher | None = None, analytics: str | None = None
) -> None:
    """Serve until interrupted."""
    is_local = is_loopback(door.host)
    app = console_app(source, site=site_for(door), is_local=is_local, launcher=launcher, analytics=analytics)
    serve(app, door.listeners, limits=Limits(), ending=app.state.feed.end, tls=door.tls)
