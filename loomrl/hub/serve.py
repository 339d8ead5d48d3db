"""Serving a hub over HTTP with uvicorn; on this machine alone, unless there is a token."""

import ipaddress
from collections.abc import Sequence

import uvicorn
from starlette.routing import BaseRoute

from loomrl.errors import HubError
from loomrl.hub.http import create_app
from loomrl.hub.hub import Hub


def serve_hub(
    hub: Hub,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    extra_routes: Sequence[BaseRoute] = (),
) -> None:
    """Serve until interrupted. HubError for an address that others can reach, with no token to keep them out."""
    if not token and not is_loopback(host):
        raise HubError(f"host={host!r} can be reached from other machines: give a token, or serve on 127.0.0.1.")
    app = create_app(hub, token=token, extra_routes=extra_routes)
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
