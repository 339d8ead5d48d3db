"""`loomrl feedback`: questions for people's judgement, and their answers."""

import getpass
import time
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit
from loomrl.experiments.commands.records import Limit, StoreUrl

app = typer.Typer(help="Judge conversations that wait for a person.", no_args_is_help=True)


@app.command("list")
def list_waiting(store: StoreUrl = "sqlite:///loom.db", limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the questions that wait for an answer, oldest first."""
    from loomrl.store import open_store
    from loomrl.store.judgements import waiting

    now = time.time()
    with open_store(store) as db:
        found = waiting(db, now=now, limit=limit)

    def render(console: Console) -> None:
        for each in found:
            console.print(f"[bold]{each.id}[/bold], waited for another {each.expires_at - now:.0f} s")
            for message in each.conversation:
                console.print(f"  {message.role}: {message.content}", markup=False, highlight=False)
            console.print(f"  {each.question} {' | '.join(each.choices)}", markup=False, highlight=False)
        if not found:
            console.print(f"Nothing waits in {store}.", highlight=False)

    emit({"waiting": [asdict(each) for each in found]}, as_json=as_json, show=render)


@app.command()
def answer(
    id: Annotated[str, typer.Argument(help="Id of the question, from `loomrl feedback list`.")],
    choice: Annotated[str, typer.Argument(help="One of its choices.")],
    who: Annotated[str, typer.Option(help="Author of the judgement.")] = "",
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Answer a question; the answer is final."""
    from loomrl.store import judgements, open_store

    with open_store(store) as db:
        given = judgements.answer(db, id, choice, who=who or getpass.getuser(), comment=comment, at=time.time())
    emit(
        asdict(given),
        as_json=as_json,
        show=lambda console: console.print(f"{given.id}: {given.choice!r}, by {given.who}", highlight=False),
    )
