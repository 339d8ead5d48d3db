"""`loomrl feedback …`: feedback on served answers; questions for people, and their answers.

It works on the store, with the gateway's checks: a user who can open the store may judge everything
in it. Programs elsewhere give feedback to a gateway: `loomrl.feedback.client`.
"""

import getpass
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.face import Limit, Who, face, nouns, open_face_store
from loomrl.experiments.commands.listing import add_list, read_list, render_list
from loomrl.experiments.commands.output import emit
from loomrl.record.catalogue import FEEDBACK_RECORDS, QUESTION_RECORDS

app = nouns("Feedback on served answers, and questions that wait for a person.")
add_list(app, FEEDBACK_RECORDS)
Trajectory = Annotated[str, typer.Argument(help="Id of a session, which is its trajectory's too.")]


@app.command()
def questions(limit: Limit = QUESTION_RECORDS.limit) -> None:
    """List the questions that wait for a person's answer, oldest first."""
    listing = read_list(QUESTION_RECORDS, {}, limit=limit)
    emit(listing.as_json, show=lambda console: render_list(QUESTION_RECORDS, listing, console))


@app.command()
def answer(
    id: Annotated[str, typer.Argument(help="Id of the question, from `loomrl feedback questions`.")],
    choice: Annotated[str, typer.Argument(help="One of its choices.")],
    who: Who = "",
    comment: Annotated[str, typer.Option(help="Why.")] = "",
) -> None:
    """Answer a question; the answer is final."""
    from loomrl.store import judgements

    with open_face_store() as db:
        answered = judgements.answer(db, id, choice, who=who or getpass.getuser(), comment=comment, at=time.time())
    emit(
        asdict(answered),
        f"{answered.id}: {answered.choice!r}, by {answered.who}",
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
) -> None:
    """Judge an answer that was served; a comment may stand alone or beside another judgement."""
    outcome = {name: value for name, value in (("success", success), ("reward", reward)) if value is not None}
    judgement = {
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
    given = _store_feedback(
        {"session": trajectory} | {name: value for name, value in judgement.items() if value is not None}
    )

    def render(console: Console) -> None:
        console.print(f"{given['id']}: {given['kind']} of {given['call'] or given['trajectory']}", highlight=False)
        if not given["new"]:
            console.print("It was stored already.")

    emit(given, show=render)


@app.command("import")
def import_lines(
    file: Annotated[Path, typer.Argument(help="JSON lines {id, metric, value, call}; - reads from stdin.")],
) -> None:
    """Store feedback that was posted to TensorZero (docs/coordinate.md). What is stored already is left as it is."""
    from loomrl.errors import LoomError
    from loomrl.experiments.tensorzero import told_in

    counts: dict[str, Any] = {"new": 0, "known": 0, "refused": []}
    with sys.stdin if str(file) == "-" else file.open(encoding="utf-8") as lines:
        for body in told_in(lines):
            try:
                counts["new" if _store_feedback(body)["new"] else "known"] += 1
            except LoomError as error:
                counts["refused"].append(f"{body['id']}: {error}")

    def render(console: Console) -> None:
        console.print(f"{counts['new']} new, {counts['known']} known, {len(counts['refused'])} refused")
        for reason in counts["refused"]:
            console.print(reason, markup=False, highlight=False)

    emit(counts, show=render)
    raise typer.Exit(1 if counts["refused"] else 0)


def _store_feedback(body: dict[str, Any]) -> dict[str, Any]:
    """Store it as an administrator's, with the gateway's own checks."""
    from loomrl.errors import StoreError
    from loomrl.serving.dialect.openai import message_of
    from loomrl.serving.feedback.intake import EndpointHubs, FeedbackIntake, read_feedback_body
    from loomrl.serving.refusal import Refusal
    from loomrl.serving.request import Caller
    from loomrl.store.endpoints import list_endpoints

    with open_face_store() as db:
        intake = FeedbackIntake(db, EndpointHubs(face().store, [each.name for each in list_endpoints(db)]))
        try:
            return asdict(intake.take(read_feedback_body(body), caller=Caller(key="", is_admin=True)))
        except Refusal as refusal:
            raise StoreError(message_of(refusal)) from None
        finally:
            intake.close()
