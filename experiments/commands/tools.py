"""Small tools: `loomrl new`, `doctor` and `events`."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import Limit, open_face_store, without
from loomrl.experiments.commands.listing import read_list, render_list
from loomrl.experiments.commands.output import emit, table
from loomrl.record.catalogue import EVENT_RECORDS, EventRow, event_as_json

PACE_S = 1.0
MONITORING = "monitoring"
"""Things that `loomrl new` makes beside the kinds of code: configuration of Prometheus and Grafana, as shipped."""


def _complete_kind(incomplete: str) -> list[str]:
    """Kinds of new things that begin with these letters."""
    from loomrl.experiments.new import KINDS

    return [kind for kind in (*KINDS, MONITORING) if kind.startswith(incomplete)]


@without("--store")
def new(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="env, algorithm, agent, experiment or monitoring.",
            autocompletion=_complete_kind,
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            help="The module, such as my_game, or package.my_game in a package here; the folder of monitoring."
        ),
    ],
) -> None:
    """Make a new environment, algorithm, agent or experiment that passes its checks; or a folder for Prometheus."""
    from loomrl.experiments.new import make_new

    if what == MONITORING:
        from loomrl.cluster.monitoring import write

        files = [str(path) for path in write(Path(name))]
        emit({"files": files}, "\n".join(files))
        return
    made = make_new(what, name)

    def render(console: Console) -> None:
        console.print(f"Made {', '.join(made.files)}. Try:\n", highlight=False)
        for command in made.then:
            console.print(f"    {command}", highlight=False, markup=False)

    emit(asdict(made), show=render)


@without("--store")
def doctor(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Cluster files: of Ray's launcher, or of KubeRay.")
    ] = None,
    crds: Annotated[
        list[Path] | None,
        typer.Option(help="Definitions of the KubeRay that will read the files: `kubectl get crd NAME… -o yaml`."),
    ] = None,
) -> None:
    """Report versions, cores, GPUs, and missing parts with how to install them; or find mistakes in cluster files."""
    if files:
        _check_cluster_files(files, crds or [])
        return
    if crds:
        raise ConfigError("--crds: name the cluster files to check with these definitions.")
    from loomrl.experiments.doctor import close_to_others, examine

    report = examine()

    def render(console: Console) -> None:
        console.print(f"Python {report['python']} on {report['platform']}", highlight=False)
        gpus = ", ".join(report["gpus"]) or "no GPU"
        console.print(f"{report['cores']} cores, {report['memory_gb']} GB memory, {gpus}\n", highlight=False)
        parts = [(p["name"], p["found"] or f"missing: {p['remedy']}", p["purpose"])
                 for p in report["required"] + report["optional"]]  # fmt: skip
        console.print(table("", ("part", "report", "for"), parts))
        console.print("\nhealthy" if report["healthy"] else "\nnot healthy: a required part is missing")
        if paths := report["exposed"]:
            console.print(f"\nOther users of this machine can read {', '.join(paths)}. To prevent it:", highlight=False)
            console.print(f"  {close_to_others(paths)}", highlight=False, soft_wrap=True)

    emit(report, show=render)
    raise typer.Exit(0 if report["healthy"] else 1)


def _check_cluster_files(files: Sequence[Path], crds: Sequence[Path]) -> None:
    """Check them without a cluster: unknown keys are listed with the nearest known one."""
    from loomrl.cluster.check import check_file
    from loomrl.cluster.manifest import read_crds

    schemas = {about: schema for file in crds for about, schema in read_crds(file).items()} if crds else None
    checked = {str(file): check_file(file, schemas) for file in files}
    lines = "\n".join(f"{file}: {', '.join(what)}" for file, what in checked.items())
    emit(checked, lines)


def events(
    kind: Annotated[str | None, typer.Option(help=EVENT_RECORDS.filters[0].about)] = None,
    subject: Annotated[str | None, typer.Option(help=EVENT_RECORDS.filters[1].about)] = None,
    limit: Limit = EVENT_RECORDS.limit,
    after: Annotated[
        int | None, typer.Option(min=0, help="Print all events behind this position as lines of JSON, oldest first.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="With --after: wait for further events.")] = False,
) -> None:
    """List what happened, newest first; or follow it as lines of JSON, for programs that keep logs.

    Each line has its position: after a restart continue with --after.
    """
    if after is not None:
        _follow_events(after, kind, subject, follow=follow)
        return
    if follow:
        raise ConfigError("--follow: say from where, such as --after 0.")
    listing = read_list(EVENT_RECORDS, {"kind": kind or "", "subject": subject or ""}, limit=limit)
    emit(listing.as_json, show=lambda console: render_list(EVENT_RECORDS, listing, console))


def _follow_events(after: int, kind: str | None, subject: str | None, *, follow: bool) -> None:
    from loomrl.store.events import EVENTS

    with open_face_store() as db:
        while True:
            page = EVENTS.read(db, after=after, kind=kind, subject=subject)
            for position, event in page:
                print(json.dumps(event_as_json(EventRow(position, event)), ensure_ascii=False))
                after = position
            sys.stdout.flush()
            if not page and not follow:
                return
            if not page:
                time.sleep(PACE_S)
