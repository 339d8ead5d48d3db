"""`loomrl archives …`: what was served and has left its endpoint's hub."""

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.people import OfEndpoint
from loomrl.experiments.commands.records import Limit, StoreUrl

app = typer.Typer(help="Read what was served and is archived in Parquet files.", no_args_is_help=True)
Day = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="In UTC.")]


@app.command("list")
def list_all(endpoint: OfEndpoint = "policy", store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """List an endpoint's files, oldest first."""
    from loomrl.store import open_store
    from loomrl.store.archives import list_files

    with open_store(store) as db:
        found = list_files(db, endpoint)
    rows = [(each.id, each.state, each.count, _when(each.first_at), _when(each.last_at), each.url) for each in found]

    def render(console: Console) -> None:
        columns = ("file", "state", "trajectories>", "first", "last", "url")
        console.print(table("", columns, rows) if rows else f"Nothing of {endpoint!r} is archived.")

    emit({"endpoint": endpoint, "files": [asdict(each) for each in found]}, as_json=as_json, show=render)


@app.command()
def read(
    endpoint: OfEndpoint = "policy",
    since: Day = None,
    until: Day = None,
    limit: Limit = 20,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Print archived conversations, oldest first."""
    from loomrl.serving.retention.archive import conversation, read_archive
    from loomrl.store import open_store

    bounds = {
        name: day.replace(tzinfo=UTC).timestamp()
        for name, day in (("since", since), ("until", until))
        if day is not None
    }
    with open_store(store) as db:
        found = [
            {
                "id": each.id,
                "version": each.task.version,
                "finished_at": each.finished_at,
                "reward": each.reward.total,
                "success": each.reward.success,
                "threads": json.loads(conversation(each)),
            }
            for each in islice(read_archive(db, endpoint, **bounds), limit)
        ]

    def render(console: Console) -> None:
        for each in found:
            console.print(f"[bold]{each['id']}[/bold], {_when(each['finished_at'])}, reward {each['reward']:g}")
            for message in (said for thread in each["threads"] for said in thread):
                console.print(f"  {message['role']}: {message['content']}", markup=False, highlight=False)
        if not found:
            console.print(f"Nothing of {endpoint!r} is archived in this time.")

    emit({"endpoint": endpoint, "trajectories": found}, as_json=as_json, show=render)


def prune(
    days: Annotated[float, typer.Option(min=0, help="Days since the training ended.")] = 90.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Delete old checkpoints, but not the best and the last of a run, nor those that were served."""
    from loomrl.serving.retention.checkpoint import age_checkpoints
    from loomrl.store import open_store

    with open_store(store) as db:
        pruned = age_checkpoints(db, days=days, now=time.time(), is_dry=dry_run)

    def render(console: Console) -> None:
        done = "would be deleted" if dry_run else "deleted"
        console.print(f"{len(pruned.deleted)} checkpoints of trainings that ended more than {days:g} days ago: {done}")
        for id in pruned.deleted:
            console.print(f"  {id}", highlight=False)
        for run, reason in pruned.failed.items():
            console.print(f"  {run} is left alone: {reason}", highlight=False, markup=False)

    emit({**asdict(pruned), "dry_run": dry_run}, as_json=as_json, show=render)


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
