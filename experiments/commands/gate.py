"""`loomrl gate`: a policy in front of the release gate, and its verdicts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loomrl.experiments.commands.face import RUN, open_face_store, verb
from loomrl.experiments.commands.listing import add_list, print_found
from loomrl.experiments.commands.output import beginning
from loomrl.record.detail import VERDICT, verdict_found

if TYPE_CHECKING:
    from loomrl.store.verdicts import StoredVerdict

app = verb(
    "Judge a version before its release: `loomrl gate VERSION --against production`; exit status 1 if it may not pass."
)
EXIT = {"allowed": 0, "refused": 1, "waiting": 1, "error": 2}
PageFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdict as an HTML page.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a verdict.")]


@app.command(RUN)
def run(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="VERSION [PATH=VALUE]...",
            help="RUN, RUN/12, a model's folder, or an exported control policy; then settings of the suite.",
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(help="The baseline: as VERSION, or production[:ENDPOINT]. Without it there is no comparison."),
    ] = None,
    suite: Annotated[str, typer.Option(help="A suite's file, or the name of a shipped one.")] = "language",
    logged: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET",
            help="Frozen sessions that the baseline served: a candidate that would have done worse is refused.",
        ),
    ] = None,
    page: PageFile = None,
) -> None:
    """Judge a policy by a suite, and record the verdict.

    Exit status 0: allowed; 1: refused, or waiting for an approval; 2: bad input, or nothing could be found out.
    """
    from loomrl.experiments.gate.suite import resolve_suite

    version, *settings = words
    resolved = resolve_suite(suite, settings)
    beginning(f"gate {version:.100}")
    from loomrl.experiments.gate.judge import judge_version

    with open_face_store() as db:
        verdict = judge_version(version, against, resolved, db, logged=logged)
    _write(verdict, page)
    _print_verdict(verdict)
    raise typer.Exit(EXIT[verdict.outcome])


def _show(
    id: Id,
    *,
    page: PageFile = None,
) -> None:
    """Show a verdict with its evidence."""
    from loomrl.store.verdicts import VERDICTS

    with open_face_store() as db:
        verdict = VERDICTS.require(db, id)
    _write(verdict, page)
    _print_verdict(verdict)


add_list(app, VERDICT, show=_show)


def _write(verdict: "StoredVerdict", file: Path | None) -> None:
    """Write the page, if one is wanted."""
    if file is None:
        return
    from loomrl.console.saved import save_verdict

    file.write_text(save_verdict(verdict), encoding="utf-8")


def _print_verdict(verdict: "StoredVerdict") -> None:
    print_found(VERDICT, verdict_found(verdict))
