"""`loomrl envs`: list, show and check environments."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.face import LIST, nouns, open_face_store, without
from loomrl.experiments.commands.output import emit, table

if TYPE_CHECKING:
    from loomrl.gym.registry import Registry


app = nouns("List and show environments, check them, compare their versions.")

Id = Annotated[str, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")]


@app.command(LIST)
def list_all(
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")] = None,
    family: Annotated[str | None, typer.Option(help="With an id: family of the sample task.")] = None,
    level: Annotated[int, typer.Option(min=1, max=10, help="With an id: level of the sample task.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="With an id: seed of the sample task.")] = 0,
) -> None:
    """List the installed environments and the versions in LoomDB; or show one, with an episode of its oracle."""
    from loomrl.gym.registry import Registry

    if id is not None:
        _show(id, family, level, seed)
        return
    with open_face_store() as db:
        recorded = {version.id: version.snapshot for version in Registry(db).list()}
    installed = _installed()
    rows = [(id, state, recorded.get(id, "")[:12]) for id, state in installed.items()]
    rows += [(id, "not installed", snapshot[:12]) for id, snapshot in recorded.items() if id not in installed]
    result = {"installed": installed, "recorded": recorded}
    emit(result, show=lambda console: console.print(table("", ("id", "state", "recorded as"), rows)))


def _installed() -> dict[str, str]:
    """Every environment that a package announces: its number of families, or the reason why it cannot be opened."""
    from loomrl.errors import RegistryError
    from loomrl.gym.catalogue import find, names

    states: dict[str, str] = {}
    for name in names():
        try:
            found = find(name)
        except RegistryError as error:
            states[name] = f"broken: {error}"
        else:
            states[found.id] = f"{len(found.cls.families)} families"
    return states


def _show(
    id: str,
    family: str | None,
    level: int,
    seed: int,
) -> None:
    """Show an environment: families, rewards, ceilings, settings, snapshot, and the oracle's episode."""
    from loomrl.gym.catalogue import find, make
    from loomrl.gym.registry import snapshot_of
    from loomrl.gym.task_mixture import resolve_id, transcript

    found = find(resolve_id(id))
    cls = found.cls
    result = {
        "id": found.id,
        "entry_point": found.registration.entry_point,
        "about": (cls.__doc__ or "").strip().splitlines()[0] if cls.__doc__ else "",
        "snapshot": snapshot_of(found.id).hash,
        "families": list(cls.families),
        "reward_range": list(cls.reward_range),
        "reward_parts": list(cls.reward_parts),
        "ceilings": dict(cls.ceilings),
        "guess_floor": dict(cls.guess_floor),
        "dependencies": list(cls.dependencies),
        "settings": {n: f"{s.annotation} = {s.default}" for n, s in cls.settings_class.model_fields.items()},
    }
    environment = make(found.id)
    sample = transcript(environment, environment.task(cls.families[0] if family is None else family, level, seed))

    def render(console: Console) -> None:
        rows = [(name, ", ".join(map(str, v)) if isinstance(v, list) else v) for name, v in result.items()]
        console.print(table("", ("", ""), rows))
        for role, text in sample:
            console.print(f"\n[bold]{role}[/bold]")
            console.print(text, markup=False, highlight=False)

    emit(result | {"sample": sample}, show=render)


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
    emit(result, show=lambda console: console.print("\n".join(lines), highlight=False))


def _compare_with_present(id: str, registry: "Registry") -> None:
    from loomrl.gym.task_mixture import resolve_id

    found = registry.verify(resolve_id(id))

    def render(console: Console) -> None:
        console.print(f"{found.id}: " + ("unchanged" if found.equal else f"{found.recorded} is now {found.current}"))
        for difference in found.differences:
            console.print(f"  {difference}", highlight=False)

    emit(asdict(found) | {"equal": found.equal}, show=render)
    raise typer.Exit(0 if found.equal else 1)
