"""Pages of other sites that may ask a server: closed, except for the sites that are named."""

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp


def open_to(app: ASGIApp, origins: Collection[str], *, shown: Collection[str] = ()) -> ASGIApp:
    """The application, for pages of these sites too; they may read the headers `shown`."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=list(shown),
    )
