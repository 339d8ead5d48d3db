"""Servers: `loomrl serve`, `loomrl hub`, `loomrl console` and `loomrl metrics`."""

import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import (
    AllowHost,
    Host,
    Tls,
    Words,
    face,
    open_face_store,
    with_store,
    without,
)
from loomrl.experiments.commands.output import beginning, emit
from loomrl.experiments.commands.query import Where


def serve(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT] [WHAT]... [PATH=VALUE]...",
            help="WHAT is a RUN, RUN/NUMBER, a model's folder or an exported control policy's.",
        ),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="The name that callers give as model.")] = None,
    follow: Annotated[str | None, typer.Option(help="A RUN whose newest version is served while it trains.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to serve on; beyond this machine a key is needed.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes any free port.")] = None,
    train: Annotated[
        str | None,
        typer.Option(metavar="BASE", help="Serve training: clients of tinker train adapters on this model."),
    ] = None,
) -> None:
    """Serve policies over HTTP in the dialects of OpenAI and Anthropic, and /v1/act for control, until interrupted.

    Ray is started unless RAY_ADDRESS names one. The first WHAT is the stable arm, each further one a canary.
    """
    beginning("serve")
    if train is not None:
        _serve_training(train, with_store(words), endpoint=endpoint, follow=follow, host=host, port=port)
        return
    from loomrl.experiments.serve import resolve_serving, serving, wait_for_the_end

    settings = {"endpoint": endpoint, "host": host, "port": port}
    experiment = resolve_serving(with_store(words), settings=settings, follow=follow)

    def show(console: Console) -> None:
        console.print(f"{served.endpoint} answers on {served.url} after {served.seconds:.1f} s", highlight=False)
        for arm in served.arms:
            console.print(f"  {arm['name']}: {arm['policy']}, share {arm['share']:g}", highlight=False, markup=False)
        if served.key:
            console.print(f"key (shown once): {served.key}", highlight=False, markup=False)
        console.print(f"{served.curl}", highlight=False, markup=False)
        console.print("Ctrl-C ends it.", highlight=False)

    with serving(experiment) as served:
        emit(served.as_dict(), show=show)
        sys.stdout.flush()
        wait_for_the_end()


def _serve_training(
    base: str, words: list[str], *, endpoint: str | None, follow: str | None, host: str | None, port: int | None
) -> None:
    for option, value in (("--endpoint", endpoint), ("--follow", follow)):
        if value is not None:
            raise ConfigError(
                f"{option}={value} has no effect with --train: nothing is served to callers. Leave it out."
            )
    from loomrl.experiments.serve_remote import resolve_remote, serve_remote

    def tell(served: dict[str, Any]) -> None:
        def show(console: Console) -> None:
            text = f"{served['base']} can be trained on {served['url']} after {served['seconds']} s"
            console.print(text, highlight=False, markup=False)
            console.print(served["environment"], highlight=False, markup=False, soft_wrap=True)
            console.print("Ctrl-C ends it.", highlight=False)

        emit(served, show=show)
        sys.stdout.flush()

    serve_remote(resolve_remote(base, words, {"host": host, "port": port}), tell)


@without("--json")
def hub(
    words: Words = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="LOOMRL_HUB_TOKEN", help="Bearer token that callers need.")
    ] = None,
    allow_host: AllowHost = None,
    tls: Tls = None,
) -> None:
    """Serve the trajectory hub over HTTP until interrupted: the Atropos routes under /, our own under /v2.

    A killed server is restarted, and its clients wait meanwhile; SIGTERM ends it.
    """
    from loomrl.http.listen import Certificate, open_door
    from loomrl.process import come_back_when_killed

    door = open_door(  # before what takes seconds to import
        host,
        port,
        token=token,
        allowed_hosts=allow_host or (),
        certificate=tls and Certificate(*tls),
    )
    from loomrl.experiments.shipped import resolve_language
    from loomrl.hub import open_hub
    from loomrl.hub.atropos.routes import atropos_routes
    from loomrl.hub.http import serve_hub
    from loomrl.store import open_store
    from loomrl.store.notes import Notes

    experiment = resolve_language(with_store(words))
    rollout = experiment.rollout
    come_back_when_killed()
    with (
        open_hub(
            experiment.store_url,
            experiment.hub,
            groups_per_update=rollout.groups_per_update,
            environments=experiment.environments,
        ) as served,
        open_store(experiment.store_url) as db,
    ):
        print(f"hub of {experiment.store_url} on {door.url}", file=sys.stderr, flush=True)
        serve_hub(served, door, extra_routes=atropos_routes(served, Notes(db)))


@without("--json")
def console(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8010,
    allow_host: AllowHost = None,
    tls: Tls = None,
    analytics: Where = None,
    launch: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Let operators start and resume runs, as processes of this machine with logs in this folder.",
        ),
    ] = None,
) -> None:
    """Serve the console, with runs, trajectories, releases and feedback in a browser, until interrupted.

    People sign in with keys (`loomrl keys create NAME --scope view`, or rate, operate, admin). On this machine alone it
    is open to everyone as long as no such key is on record.
    """
    from loomrl.console.app import open_console, serve_console
    from loomrl.console.source import open_source
    from loomrl.experiments.coordinate.work import LocalLauncher
    from loomrl.http.listen import Certificate

    source = open_source(face().store)
    try:
        names = tuple(allow_host or ())
        shown = tls and Certificate(*tls)
        door = open_console(source, host, port, allowed_hosts=names, certificate=shown, now=time.time())
        print(f"console of {source.db.location} on {door.url}", file=sys.stderr, flush=True)
        launcher = None if launch is None else LocalLauncher(face().store, launch)
        serve_console(source, door, launcher=launcher, analytics=analytics)
    finally:
        source.close()


@without("--json")
def metrics(
    address: Annotated[
        str, typer.Option(help="HOST:PORT; beyond this machine LOOMRL_METRICS_TOKEN is needed.")
    ] = "127.0.0.1:9464",
) -> None:
    """Serve the record to Prometheus: /metrics, and /targets with the other processes to scrape, until interrupted.

    Any number of these may run: all serve the same figures. Scrape one.
    """
    from loomrl.observability.exposition import door_at, exposed
    from loomrl.telemetry.record import record_routes

    door = door_at(address)
    with open_face_store() as db, record_routes(db, face().store) as routes, exposed(door, routes) as url:
        print(f"metrics of {db.location} on {url}/metrics; Ctrl-C ends it", file=sys.stderr, flush=True)
        threading.Event().wait()
