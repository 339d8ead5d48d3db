"""`loomrl sweep`: search for settings."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.errors import ConfigError
from loomrl.experiments.commands.output import AsJson, beginning, emit, table

if TYPE_CHECKING:
    from loomrl.experiments.sweep import SweepResult

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE [PATH=VALUE]...", help="A sweep's file or the name of a shipped one, then overrides."),
]


def sweep(
    words: Words = None,
    run: Annotated[str | None, typer.Option(help="Id of the sweep; an existing sweep is resumed.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume --run, or the latest of this name, with its original settings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search for settings: many trials of one experiment; bad ones are stopped, or continue from good ones' weights."""
    from loomrl.experiments.sweep_file import resolve_sweep

    asked = resolve_sweep(words or [])
    beginning(f"sweep {asked.name}")
    from loomrl.experiments.sweep import resumed
    from loomrl.experiments.sweep import sweep as begin

    changes = [word for word in words or [] if "=" in word and not word.startswith("experiment.store_url=")]
    if resume and changes:
        raise ConfigError(f"--resume: a sweep keeps its settings, so {changes[0]} would have no effect. Leave it out.")
    if resume:
        asked, run = resumed(asked, run)
    result = begin(asked, run=run)
    emit(result.as_dict(), as_json=as_json, show=lambda console: render(result, console))


def render(result: "SweepResult", console: Console) -> None:
    """The trials, best first; the errors; and how to continue."""
    from loomrl.experiments.sweep_file import short

    paths = list(result.trials[0].changes)
    failed = any(trial.failed for trial in result.trials)
    after = (f"{result.metric}>", *(["failed>"] if failed else []), f"{result.unit}>", "ended")
    columns = ("run", *(f"{name}>" for name in short(paths)), *after)
    rows = [
        (
            trial.run,
            *(_cell(trial.changes[path]) for path in paths),
            "–" if trial.score is None else f"{trial.score:.4g}",
            *([f"{trial.failed:,}"] if failed else []),
            f"{trial.done:,}",
            trial.stopped,
        )
        for trial in result.trials
    ]
    console.print(table("", columns, rows))
    console.print(f"\n{len(rows)} trials in {result.seconds:.0f} s: sweep {result.sweep}", highlight=False)
    console.print(f"parallel coordinates: {result.picture}", highlight=False)
    console.print(f"the best one, judged: loomrl evaluate {result.trials[0].run}", highlight=False)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
