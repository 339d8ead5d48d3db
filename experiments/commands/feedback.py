"""`loomrl feedback`: feedback on what was served; and questions for people's judgement, and their answers.

It works on the store, as all commands do, with the same checks as the gateway's; whoever can open the store may judge
everything in it. Programs elsewhere give feedback to a gateway: `loomrl.feedback.client`.
"""

import getpass
import sys
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import Limit, StoreUrl

app = typer.Typer(
    help="Judge answers that were served, and conversations that wait for a person.", no_args_is_help=True
)
Trajectory = Annotated[str, typer.Argument(help="Id of a session, which is its trajectory's too.")]


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


@app.command()
def give(  # noqa: PLR0913 - options
    trajectory: Trajectory,
    call: Annotated[str, typer.Option(help="The answer that is meant, by the id its caller got.")] = "",
    thumb: Annotated[str | None, typer.Option(help="up or down.")] = None,
    stars: Annotated[float | None, typer.Option(help="0 to 5.")] = None,
    correction: Annotated[str | None, typer.Option(help="The answer that would have been right.")] = None,
    over: Annotated[str | None, typer.Option(help="This answer is better than that one: the other's id.")] = None,
    abandoned: Annotated[bool, typer.Option("--abandoned", help="The person gave up.")] = False,
    success: Annotated[float | None, typer.Option(help="Outcome: 0 to 1.")] = None,
    reward: Annotated[float | None, typer.Option(help="Outcome: any number.")] = None,
    comment: Annotated[str | None, typer.Option(help="In words.")] = None,
    id: Annotated[str, typer.Option(help="The same id stores nothing more.")] = "",
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Judge an answer that was served; a comment may stand alone or beside another judgement."""
    outcome = {name: value for name, value in (("success", success), ("reward", reward)) if value is not None}
    said = {
        "call": call or None,
        "id": id or None,
        "thumb": thumb,
        "stars": stars,
        "correction": correction,
        "over": None if over is None else {"call": over},
        "abandoned": abandoned or None,
        "outcome": outcome or None,
        "comment": comment,
    }
    given = _given(store, {"session": trajectory} | {name: value for name, value in said.items() if value is not None})

    def render(console: Console) -> None:
        console.print(f"{given['id']}: {given['kind']} of {given['call'] or given['trajectory']}", highlight=False)
        if not given["new"]:
            console.print("It was stored already.")

    emit(given, as_json=as_json, show=render)


@app.command("given")
def list_given(
    trajectory: Annotated[str | None, typer.Argument(help="Only of this session; of all without.")] = None,
    store: StoreUrl = "sqlite:///loom.db",
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List feedback on what was served, newest first."""
    from loomrl.store import open_store
    from loomrl.store.feedback import latest_feedback

    with open_store(store) as db:
        found = latest_feedback(db, limit=limit, trajectory=trajectory)
    rows = [
        (
            f"{datetime.fromtimestamp(each.created_at):%Y-%m-%d %H:%M:%S}",
            each.trajectory,
            each.call,
            each.source,
            each.kind,
            f"{each.value:g}",
            (each.comment or str(each.data.get("text", "")))[:40],
        )
        for each in found
    ]
    columns = ("given", "trajectory", "call", "source", "kind", "value>", "words")

    def render(console: Console) -> None:
        console.print(table("", columns, rows) if rows else f"There is no feedback in {store}.")

    emit({"feedback": [asdict(each) for each in found]}, as_json=as_json, show=render)


@app.command("import")
def import_lines(
    file: Annotated[Path, typer.Argument(help="JSON lines {id, metric, value, call}; - reads from stdin.")],
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Store feedback that was posted to TensorZero (docs/coordinate.md). What is stored already is left as it is."""
    from loomrl.errors import LoomError
    from loomrl.experiments.tensorzero import told_in

    counts: dict[str, Any] = {"new": 0, "known": 0, "refused": []}
    with sys.stdin if str(file) == "-" else file.open(encoding="utf-8") as lines:
        for body in told_in(lines):
            try:
                counts["new" if _given(store, body)["new"] else "known"] += 1
            except LoomError as error:
                counts["refused"].append(f"{body['id']}: {error}")

    def render(console: Console) -> None:
        console.print(f"{counts['new']} new, {counts['known']} known, {len(counts['refused'])} refused")
        for reason in counts["refused"]:
            console.print(reason, markup=False, highlight=False)

    emit(counts, as_json=as_json, show=render)
    raise typer.Exit(1 if counts["refused"] else 0)


def _given(store: str, body: dict[str, Any]) -> dict[str, Any]:
    """Store it as an administrator's, with the gateway's own checks."""
    from loomrl.errors import StoreError
    from loomrl.serving.dialect.openai import message_of
    from loomrl.serving.feedback.intake import Hubs, Intake, read_feedback_body
    from loomrl.serving.refusal import Refusal
    from loomrl.serving.request import Caller
    from loomrl.store import open_store
    from loomrl.store.endpoints import list_endpoints

    with open_store(store) as db:
        intake = Intake(db, Hubs(store, [each.name for each in list_endpoints(db)]))
        try:
            return asdict(intake.take(read_feedback_body(body), caller=Caller(key="", is_admin=True)))
        except Refusal as refusal:
            raise StoreError(message_of(refusal)) from None
        finally:
            intake.close()
