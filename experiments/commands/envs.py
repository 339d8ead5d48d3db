"""`loomrl envs`: list, show and check environments."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import StoreUrl

app = typer.Typer(help="Look at environments, check them, compare their versions.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")]


@app.command("list")
def list_all(store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """List the installed environments, and the versions recorded in LoomDB."""
    from loomrl.gym.registry import Registry
    from loomrl.store import open_store

    with open_store(store) as db:
        recorded = {version.id: version.snapshot for version in Registry(db).list()}
    installed = _installed()
    rows = [(id, state, recorded.get(id, "")[:12]) for id, state in installed.items()]
    rows += [(id, "not installed", snapshot[:12]) for id, snapshot in recorded.items() if id not in installed]
    result = {"installed": installed, "recorded": recorded}
    emit(result, as_json=as_json, show=lambda console: console.print(table("", ("id", "state", "recorded as"), rows)))


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


@app.command()
def show(
    id: Id,
    family: Annotated[str | None, typer.Option(help="Family of the sample task; the first one by default.")] = None,
    level: Annotated[int, typer.Option(min=1, max=10)] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**62)] = 0,
    as_json: AsJson = False,
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

    emit(result | {"sample": sample}, as_json=as_json, show=render)


@app.command()
def check(
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Name, Name@version, or pkg.module:Class.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Settings of the environment.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every environment that is installed.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Environments at a time.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Check an environment's contract: determinism, oracle, ceilings, hostile input. Exit 1 if it is broken."""
    from loomrl.errors import ConfigError
    from loomrl.experiments.check_envs import check_all
    from loomrl.gym.catalogue import names
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

    emit(result, as_json=as_json, show=render)
    raise typer.Exit(0 if checked.passed else 1)


@app.command()
def verify(id: Id, store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """Compare a recorded version with the importable one. Exit 1 if it has changed."""
    from loomrl.gym.registry import Registry
    from loomrl.gym.task_mixture import resolve_id
    from loomrl.store import open_store

    with open_store(store) as db:
        found = Registry(db).verify(resolve_id(id))

    def render(console: Console) -> None:
        console.print(f"{found.id}: " + ("unchanged" if found.equal else f"{found.recorded} is now {found.current}"))
        for difference in found.differences:
            console.print(f"  {difference}", highlight=False)

    emit(asdict(found) | {"equal": found.equal}, as_json=as_json, show=render)
    raise typer.Exit(0 if found.equal else 1)


@app.command()
def diff(old: Id, new: Id, store: StoreUrl = "sqlite:///loom.db", as_json: AsJson = False) -> None:
    """Show the differences between two recorded versions: sources, settings, dependencies."""
    from loomrl.gym.registry import Registry
    from loomrl.store import open_store

    with open_store(store) as db:
        found = Registry(db).diff(old, new)
    lines = [str(difference) for difference in found] or ["nothing"]
    result = {"old": old, "new": new, "differences": [asdict(difference) for difference in found]}
    emit(result, as_json=as_json, show=lambda console: console.print("\n".join(lines), highlight=False))
