"""`loomrl serve --train BASE`: adapters are trained here, by loops that run elsewhere."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from loomrl.config.serving import RemoteTraining
from loomrl.errors import ConfigError
from loomrl.files import absolute_places
from loomrl.http.listen import is_loopback, open_door
from loomrl.load import parse_assignments
from loomrl.schema import merge
from loomrl.store import open_store
from loomrl.store.keys import any_key, create_key

SCOPES = ("train",)


def resolve_remote(base: str, words: Sequence[str], settings: dict[str, Any]) -> RemoteTraining:
    """The service's settings: the base, options of the command line, and `PATH=VALUE` words, which win."""
    others = [word for word in words if "=" not in word]
    if others:
        raise ConfigError(f"serve --train {base}: {others[0]!r} would be served, and here one base is. Leave it out.")
    given = {"base": base, **{name: value for name, value in settings.items() if value is not None}}
    made = RemoteTraining.parse(merge(given, parse_assignments(words)), origin="serve --train")
    return made.override(absolute_places(made.store_url, made.artifact_url))


def serve_remote(settings: RemoteTraining, show: Callable[[dict[str, Any]], None]) -> None:
    """Serve until interrupted. A taken port is refused before anything slow begins."""
    began = time.monotonic()
    door = open_door(settings.host, settings.port, token="callers need keys")
    with ExitStack() as stack:
        for listener in door.listeners:
            stack.callback(listener.close)
        db = stack.enter_context(open_store(settings.store_url))
        now = time.time()
        required = not is_loopback(settings.host) or any_key(db, SCOPES, at=now)
        key = None
        if required and not any_key(db, (*SCOPES, "admin"), at=now):
            key = create_key(db, "first to train by remote hand", scopes=SCOPES, at=now)[0]
        from loomrl.algorithms.tinker.app import PREFIX, serve_tinker
        from loomrl.algorithms.tinker.base import OpenBase
        from loomrl.algorithms.tinker.service import TinkerService
        from loomrl.serving.deployment.key import StoredKeys

        base = stack.enter_context(OpenBase(settings, db))
        variable = PREFIX + (key or ("KEY" if required else "local"))
        show(
            {
                "url": door.url,
                "base": settings.base,
                "names": list(base.names),
                "context": base.context,
                "key": key,
                "environment": f"TINKER_BASE_URL={door.url} TINKER_API_KEY={variable}",
                "seconds": round(time.monotonic() - began, 1),
            }
        )
        serve_tinker(TinkerService(base, db), StoredKeys(db, required=required), door)
