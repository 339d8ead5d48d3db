"""`loomrl data`: data sets of what was served, and of what policies of control did."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import Limit, StoreUrl

if TYPE_CHECKING:
    from loomrl.store.datasets import Dataset

app = typer.Typer(
    help="Data sets to train on: what was served, frozen; what policies of control do, recorded.", no_args_is_help=True
)


@app.command()
def freeze(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[ENDPOINT]... [PATH=VALUE]...",
            help="Endpoints, then settings of the selection: min_reward=0.5, agents=[a1], suite=language.",
        ),
    ],
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Freeze the trajectories that a selection takes, with their rewards and feedback as they are now."""
    from loomrl.config import DataSelection
    from loomrl.experiments.data import frozen
    from loomrl.load import parse_assignments
    from loomrl.store import open_store

    endpoints = [word for word in words if "=" not in word]
    tree = {"endpoints": endpoints, **parse_assignments([word for word in words if "=" in word])}
    selection = DataSelection.parse(tree, origin="loomrl data freeze")
    with open_store(store) as db:
        made = frozen(db, store, selection)
    emit(as_result(made), as_json=as_json, show=lambda console: _render(made, console))


@app.command()
def record(  # noqa: PLR0913 - options
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
    as_json: AsJson = False,
) -> None:
    """Let policies of control play, and record a Minari data set with the probabilities of single choices."""
    from loomrl.experiments.record import Recording
    from loomrl.experiments.record import record as recorded
    from loomrl.experiments.shipped import judged_words

    experiment, policies = judged_words(words or ["kind=control"], policy or [])
    asked = Recording(id=id, policies=policies or ["random"], steps=steps, greedy=greedy, seed=seed)
    made = recorded(experiment, asked)

    def render(console: Console) -> None:
        rows = [
            (name, each["episodes"], each["steps"], f"{each['return']:.2f}") for name, each in made["policies"].items()
        ]
        if len(rows) > 1:
            rows.append(("all", made["episodes"], made["steps"], f"{made['return']:.2f}"))
        console.print(table(f"Minari data set {id}", ("", "episodes>", "steps>", "mean return>"), rows))
        known = "with" if made["with_logprobs"] else "without"
        console.print(f"{known} the probabilities of its actions; read by data={{minari: {id}}}", highlight=False)

    emit(made, as_json=as_json, show=render)


@app.command()
def judge(
    id: Annotated[str, typer.Argument(metavar="ID", help="A data set whose actions have their probabilities.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN | EXPERIMENT] [PATH=VALUE]...", help="RUN/12 is judged, or what --policy names."),
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="A further policy: RUN/NUMBER, or a folder.")] = None,
    gamma: Annotated[float, typer.Option(min=0, max=1, help="Discount of later rewards.")] = 1.0,
    sampled: Annotated[bool, typer.Option("--sampled", help="As it samples; else by its likeliest actions.")] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate what a policy would earn, from what another one did: doubly robust, and by importance weights.

    `episodes` is how many of the policy's own would tell as much. Where that is below two hundred, trust no interval.
    """
    from loomrl.experiments.judge_logged import as_rows, judge_named
    from loomrl.experiments.shipped import judged_words

    experiment, policies = judged_words(words or ["kind=control"], policy or [])
    found = judge_named(experiment, id, policies, gamma=gamma, greedy=not sampled)
    columns = ("", "doubly robust>", "snips>", "ips>", "episodes>")
    emit(
        {"id": id, "policies": {name: each.as_dict() for name, each in found.items()}},
        as_json=as_json,
        show=lambda console: console.print(table(f"Return by {id}, 95 % confidence", columns, as_rows(found))),
    )


@app.command("list")
def list_all(
    trajectory: Annotated[str | None, typer.Option(help="Only those that hold this trajectory.")] = None,
    store: StoreUrl = "sqlite:///loom.db",
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest data sets."""
    from loomrl.store import open_store
    from loomrl.store.datasets import list_datasets

    with open_store(store) as db:
        found = list_datasets(db, limit=limit, trajectory=trajectory)
    rows = [(one.id, *_sizes(one), one.parent or "", ", ".join(one.content["hubs"]), _at(one)) for one in found]
    columns = ("data set", "train>", "holdout>", "for", "from", "at")
    emit(
        {"datasets": [as_result(one) for one in found]},
        as_json=as_json,
        show=lambda console: console.print(table("", columns, rows) if rows else f"No data sets in {store}."),
    )


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a data set, or its name: then the newest.")],
    rows: Annotated[bool, typer.Option("--rows", help="Also every trajectory.")] = False,
    store: StoreUrl = "sqlite:///loom.db",
    as_json: AsJson = False,
) -> None:
    """Show a data set: what it takes, what it left out, what can be learnt from it, and who was trained on it."""
    from loomrl.experiments.data import described
    from loomrl.store import open_store
    from loomrl.store.datasets import find_dataset, read_rows
    from loomrl.store.log import columns_of

    with open_store(store) as db:
        found = find_dataset(db, id)
        told = described(db, found)
        members = read_rows(db, found.id) if rows else []

    def render(console: Console) -> None:
        _render(found, console)
        columns = ("domain", "train>", "holdout>")
        console.print(table("", columns, [(name, *each.values()) for name, each in told["domains"].items()]))
        said = ", ".join(f"{count} {kind}" for kind, count in told["feedback"].items()) or "none"
        console.print(f"with a reward {told['with_reward']}, with token ids {told['with_ids']}; feedback: {said}")
        if told["versions"]:
            console.print(f"trained on it: {', '.join(told['versions'])}", highlight=False)
        for row in members:
            console.print(f"{row.part}  {row.hub}  {row.trajectory}  {row.domain}  {row.reward}", highlight=False)

    whole = {**as_result(found), **told, **({"rows": [columns_of(row) for row in members]} if rows else {})}
    emit(whole, as_json=as_json, show=render)


def as_result(made: "Dataset") -> dict[str, Any]:
    """A data set as one JSON object."""
    return {"id": made.id, "sha256": made.sha256, "created_at": made.created_at, **made.content}


def _render(made: "Dataset", console: Console) -> None:
    from loomrl.config import DataSelection
    from loomrl.feedback.dataset import main_filter

    train, holdout = _sizes(made)
    console.print(f"[bold]{made.id}[/bold]: {train} to train on, {holdout} held out", highlight=False)
    left = ", ".join(f"{name} {count}" for name, count in made.content["counts"].items()) or "none"
    console.print(f"of {made.content['read']} in {', '.join(made.content['hubs'])}; left out: {left}", highlight=False)
    if most := main_filter(made.content["counts"], DataSelection.parse(made.content["selection"])):
        console.print(most, highlight=False)
    console.print(f"for {made.parent or 'no policy yet'}; SHA-256 {made.sha256}", highlight=False)


def _sizes(made: "Dataset") -> tuple[int, int]:
    return made.content["sizes"]["train"], made.content["sizes"]["holdout"]


def _at(made: "Dataset") -> str:
    return f"{datetime.fromtimestamp(made.created_at):%Y-%m-%d %H:%M:%S}"
