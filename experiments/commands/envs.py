"""`loomrl envs`: list, show and check environments."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import nouns, open_face_store, without
from loomrl.experiments.commands.listing import add_list, find, render_found
from loomrl.experiments.commands.output import emit
from loomrl.record.detail import ENVIRONMENT

if TYPE_CHECKING:
    from loomrl.gym.registry import Registry


app = nouns("List and show environments, check them, compare their versions.")

Id = Annotated[str, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")]


def _show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")],
    *,
    family: Annotated[str | None, typer.Option(help="With an id: family of the sample task.")] = None,
    level: Annotated[int, typer.Option(min=1, max=10, help="With an id: level of the sample task.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="With an id: seed of the sample task.")] = 0,
) -> None:
    """Show an environment: families, rewards, ceilings, settings, snapshot, and the oracle's episode."""
    from loomrl.gym.catalogue import make
    from loomrl.gym.task_mixture import resolve_id, transcript

    resolved = resolve_id(id)
    environment = make(resolved)
    found = find(ENVIRONMENT, resolved)
    sample = transcript(environment, environment.task(found["families"][0] if family is None else family, level, seed))

    def render(console: Console) -> None:
        render_found(ENVIRONMENT, found, console)
        for role, text in sample:
            console.print(f"\n[bold]{role}[/bold]")
            console.print(text, markup=False, highlight=False)

    emit(ENVIRONMENT.json(found) | {"sample": sample}, show=render)


add_list(app, ENVIRONMENT, show=_show)


@app.command()
@without("--store")
def check(
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Settings of the environment.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every environment that is installed.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Environments at a time.")] = 1,
) -> None:
    """Check an environment's contract: determinism, oracle, ceilings, hostile input. Exit 1 if it is broken."""
    from loomrl.errors import ConfigError
    from loomrl.gym.catalogue import names
    from loomrl.gym.check.run import check_all
    from loomrl.load import parse_assignments

    if (id is None) != everything:
        raise ConfigError("which environment? Name one, or say --all for every one that is installed; not both.")
    settings = parse_assignments(assignments or [])
    checked = check_all([id] if id is not None else names(), settings, jobs=jobs, may_lack=everything)
    reports = {report.environment: asdict(report) | {"passed": report.passed} for report in checked.reports}
    whole = {"passed": checked.passed, "seconds": round(checked.seconds, 1), "environments": reports}
    result = next(iter(reports.values())) if id is not None else whole | {"left_out": dict(checked.left_out)}

    def render(console: Console) -> None:
        for report in checked.reports:
            console.print(str(report), markup=False, highlight=False)
        for name, why in checked.left_out.items():
            console.print(f"{name} is left out: {why}", markup=False, highlight=False)

    emit(result, show=render)
    raise typer.Exit(0 if checked.passed else 1)


@app.command()
@without("--store")
def attack(
    id: Annotated[str, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")],
    assignments: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Settings of the environment.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time, on two cores.")] = 600.0,
) -> None:
    """Attack an environment: search for reward without the task. Exit 1 if any is found.

    Proved attacks are kept in NAME.attacks.json, and `envs check` tries them from then on.
    """
    import sys

    from loomrl.gym.attack.kept import keep
    from loomrl.gym.attack.run import attack_environment
    from loomrl.load import parse_assignments

    report = attack_environment(
        id,
        parse_assignments(assignments or []),
        seconds=seconds,
        watch=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if report.findings:
        keep(report.findings, Path(report.file))

    def render(console: Console) -> None:
        console.print(str(report), markup=False, highlight=False)
        if report.findings:
            console.print(f"Kept in {report.file}: `loomrl envs check {id}` tries them.", markup=False, highlight=False)

    emit(asdict(report) | {"passed": report.passed}, show=render)
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def diff(old: Id, new: Annotated[str | None, typer.Argument(metavar="[ID]", help="Another version.")] = None) -> None:
    """Compare a recorded version with another one: sources, settings, dependencies.

    Without another one: with the version that can be imported now; exit status 1 if it has changed.
    """
    from loomrl.gym.registry import Registry

    with open_face_store() as db:
        registry = Registry(db)
        if new is None:
            _compare_with_present(old, registry)
            return
        differences = registry.diff(old, new)
    lines = [str(difference) for difference in differences] or ["nothing"]
    result = {"old": old, "new": new, "differences": [asdict(difference) for difference in differences]}
    emit(result, "\n".join(lines))


def _compare_with_present(id: str, registry: "Registry") -> None:
    from loomrl.gym.task_mixture import resolve_id

    found = registry.verify(resolve_id(id))

    def render(console: Console) -> None:
        console.print(f"{found.id}: " + ("unchanged" if found.equal else f"{found.recorded} is now {found.current}"))
        for difference in found.differences:
            console.print(f"  {difference}", highlight=False)

    emit(asdict(found) | {"equal": found.equal}, show=render)
    raise typer.Exit(0 if found.equal else 1)
