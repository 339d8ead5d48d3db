"""`loomrl events`: what has happened, for people and for whoever keeps logs."""

import json
import sys
import time
from typing import Annotated

import typer

from loomrl.experiments.commands.records import StoreUrl

PACE_S = 1.0


def events(
    store: StoreUrl = "sqlite:///loom.db",
    after: Annotated[int, typer.Option(min=0, help="The position of the last one that is known.")] = 0,
    kind: Annotated[str | None, typer.Option(help="Only those of this kind, such as deployment.made.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only those about this.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further ones, until interrupted.")] = False,
) -> None:
    """Print what has happened, a JSON object a line: rewards, feedback, jobs, verdicts, releases, deployments, keys.

    Each line has its position in the log: after a restart go on with --after.
    """
    from loomrl.store import open_store
    from loomrl.store.events import EVENTS

    with open_store(store) as db:
        while True:
            page = EVENTS.read(db, after=after, kind=kind, subject=subject)
            for position, event in page:
                about = {"kind": event.kind, "subject": event.subject, "at": event.created_at, "data": event.data}
                print(json.dumps({"position": position, **about}, ensure_ascii=False))
                after = position
            sys.stdout.flush()
            if not page and not follow:
                return
            if not page:
                time.sleep(PACE_S)
