"""`loomrl data …`: data sets to train on, archived trajectories, and texts without personal data."""

import json
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import Limit, face, nouns, open_face_store, with_store, without
from loomrl.experiments.commands.listing import add_list, print_found, read_list, render_list
from loomrl.experiments.commands.output import emit, table
from loomrl.record import word
from loomrl.record.catalogue import ARCHIVE_RECORDS
from loomrl.record.declaration import Column, Part
from loomrl.record.detail import DATASET

data = nouns("Data sets to train on: freeze what was served, record what control policies do.")
Day = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="In UTC.")]


@data.command()
def freeze(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[ENDPOINT]... [PATH=VALUE]...",
            help="Endpoints, then settings of the selection: min_reward=0.5, agents=[a1], suite=language.",
        ),
    ],
) -> None:
    """Freeze the trajectories that a selection takes, with their rewards and feedback as they are now."""
    from loomrl.config import DataSelection
    from loomrl.experiments.data import frozen
    from loomrl.load import parse_assignments

    endpoints = [word for word in words if "=" not in word]
    tree = {"endpoints": endpoints, **parse_assignments([word for word in words if "=" in word])}
    selection = DataSelection.parse(tree, origin="loomrl data freeze")
    with open_face_store() as db:
        found = DATASET.find(db, frozen(db, face().store, selection).id)
    print_found(DATASET, found)


@data.command()
def record(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the Minari data set: cartpole/mixed-v0.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN | EXPERIMENT] [PATH=VALUE]...",
            help="RUN/12 plays in its own environment; or an experiment with --policy.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="A further policy: random, RUN/NUMBER, a folder, pkg.module:callable.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of all policies, which play equal parts.")] = 10_000,
    greedy: Annotated[bool, typer.Option("--greedy", help="The likeliest actions, instead of sampled ones.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of episodes and actions.")] = 0,
) -> None:
    """Let policies of control play, and record a Minari data set with the probabilities of single choices."""
    from loomrl.experiments.record import Recording
    from loomrl.experiments.record import record as recorded
    from loomrl.experiments.shipped import judged_words

    experiment, policies = judged_words(with_store(words or ["kind=control"]), policy or [])
    plan = Recording(id=id, policies=policies or ["random"], steps=steps, greedy=greedy, seed=seed)
    made = recorded(experiment, plan)

    def render(console: Console) -> None:
        rows = [
            (name, each["episodes"], each["steps"], f"{each['return']:.2f}") for name, each in made["policies"].items()
        ]
        if len(rows) > 1:
            rows.append(("all", made["episodes"], made["steps"], f"{made['return']:.2f}"))
        console.print(table(f"Minari data set {id}", ("", "episodes>", "steps>", "mean return>"), rows))
        known = "with" if made["with_logprobs"] else "without"
        console.print(f"{known} the probabilities of its actions; read by data={{minari: {id}}}", highlight=False)

    emit(made, show=render)


@data.command()
def judge(
    id: Annotated[str, typer.Argument(metavar="ID", help="A data set whose actions have their probabilities.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN | EXPERIMENT] [PATH=VALUE]...", help="RUN/12 is judged, or what --policy names."),
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="A further policy: RUN/NUMBER, or a folder.")] = None,
    gamma: Annotated[float, typer.Option(min=0, max=1, help="Discount of later rewards.")] = 1.0,
    sampled: Annotated[bool, typer.Option("--sampled", help="As it samples; else by its likeliest actions.")] = False,
) -> None:
    """Estimate what a policy would earn, from what another one did: doubly robust, and by importance weights.

    `episodes` is how many of the policy's own would tell as much. Where that is below two hundred, trust no interval.
    """
    from loomrl.experiments.judge_logged import as_rows, judge_named
    from loomrl.experiments.shipped import judged_words

    experiment, policies = judged_words(with_store(words or ["kind=control"]), policy or [])
    found = judge_named(experiment, id, policies, gamma=gamma, greedy=not sampled)
    columns = ("", "doubly robust>", "snips>", "ips>", "episodes>")
    emit(
        {"id": id, "policies": {name: each.as_dict() for name, each in found.items()}},
        show=lambda console: console.print(table(f"Return by {id}, 95 % confidence", columns, as_rows(found))),
    )


def _show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a data set, or its name: then the newest.")],
    *,
    rows: Annotated[bool, typer.Option("--rows", help="Also every trajectory.")] = False,
) -> None:
    """Show a data set: what it takes, what it left out, what can be learnt from it, and who was trained on it."""
    from loomrl.store.datasets import read_rows

    with open_face_store() as db:
        found = DATASET.find(db, id)
        if rows:
            found = {**found, "rows": read_rows(db, found["dataset"].id)}
    print_found(replace(DATASET, parts=(*DATASET.parts, MEMBERS)) if rows else DATASET, found)


MEMBERS = Part(
    name="rows",
    title="Trajectories",
    columns=(Column("part"), Column("hub"), Column("trajectory"), Column("domain"), Column("reward", form="number")),
)
add_list(data, DATASET, show=_show)


@data.command()
def archives(
    endpoint: Annotated[str, typer.Option(help="The endpoint's name.")] = "policy",
    read: Annotated[bool, typer.Option("--read", help="Print the conversations in them, oldest first.")] = False,
    since: Day = None,
    until: Day = None,
    limit: Limit = ARCHIVE_RECORDS.limit,
) -> None:
    """List the archived files of an endpoint, whose trajectories have left its hub; or read them."""
    if not read:
        if since or until:
            raise ConfigError("--since and --until choose conversations: add --read.")
        listing = read_list(ARCHIVE_RECORDS, {"endpoint": endpoint}, limit=limit)
        emit(listing.as_json, show=lambda console: render_list(ARCHIVE_RECORDS, listing, console))
        return
    from loomrl.serving.retention.archive import conversation, read_archive

    bounds = {
        name: day.replace(tzinfo=UTC).timestamp()
        for name, day in (("since", since), ("until", until))
        if day is not None
    }
    with open_face_store() as db:
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
            console.print(f"[bold]{each['id']}[/bold], {word.clock(each['finished_at'])}, reward {each['reward']:g}")
            for message in (said for thread in each["threads"] for said in thread):
                console.print(f"  {message['role']}: {message['content']}", markup=False, highlight=False)
        if not found:
            console.print(f"Nothing of {endpoint!r} is archived in this time.")

    emit({"endpoint": endpoint, "trajectories": found}, show=render)


@data.command()
@without("--store")
def redact(
    file: Annotated[
        typer.FileBinaryRead, typer.Argument(metavar="FILE", help="A text in UTF-8; - reads standard input.")
    ],
) -> None:
    """Print a text as it would be stored, without secrets and personal data; with --json the findings alone."""
    from loomrl.safety.placeholder import Counting
    from loomrl.safety.redaction import PatternRedactor
    from loomrl.safety.redaction.redactor import replace_findings

    text = file.read().decode("utf-8", "replace")
    found = PatternRedactor().find(text)
    if not face().as_json:
        sys.stdout.buffer.write(replace_findings(text, found).text.encode())
        return
    names = Counting()
    names.see(text)
    findings = [
        {
            "kind": one.kind,
            "placeholder": names.name(one.kind, text[one.start : one.end]),
            "line": text.count("\n", 0, one.start) + 1,
            "start": one.start,
            "end": one.end,
        }
        for one in found
    ]
    kinds = dict(Counter(one.kind for one in found).most_common())
    print(json.dumps({"characters": len(text), "kinds": kinds, "findings": findings}))
