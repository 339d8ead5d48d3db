"""Serving a hub over HTTP."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from loomrl.http.listen import Door
from loomrl.http.server import serve
from loomrl.http.site import site_of
from loomrl.hub import wire
from loomrl.hub.http import create_app
from loomrl.hub.hub import Hub


def serve_hub(hub: Hub, door: Door, *, extra_routes: Sequence[BaseRoute] = ()) -> None:
    """Serve behind the door until interrupted or terminated; then SystemExit or KeyboardInterrupt, to close the hub."""
    site = site_of(door, wire.PAYLOADS)
    serve(create_app(hub, site=site, token=door.token, extra_routes=extra_routes), door.listeners, tls=door.tls)
