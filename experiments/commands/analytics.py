"""`loomrl analytics …` and `loomrl query`: what is on record, as columns, and questions about it in SQL."""

import math
import sys
import time
from contextlib import closing, nullcontext
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit, table
from loomrl.experiments.commands.records import StoreUrl
from loomrl.experiments.commands.words import questions_like

if TYPE_CHECKING:
    from loomrl.analytics.feeder import Fed
    from loomrl.analytics.place import Place
    from loomrl.analytics.question import Answer

app = typer.Typer(help="Keep what is on record as columns too, for questions over all of it.", no_args_is_help=True)
PAUSE_S = 1.0
"""Between two looks at whether there is anything new."""
CHECK_S = 60.0
"""Between two looks at whether LoomDB has deleted anything."""
Where = Annotated[
    str | None,
    typer.Option(
        "--analytics",
        envvar="LOOMRL_ANALYTICS",
        metavar="FOLDER|URL",
        help="A folder, or http://USER:PASSWORD@HOST:8123/DATABASE; by default a folder beside LoomDB.",
    ),
]


@app.command()
def feed(
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted, and load what is new.")] = False,
    store: StoreUrl = "sqlite:///loom.db",
    analytics: Where = None,
    as_json: AsJson = False,
) -> None:
    """Load what is new in LoomDB: trajectories, rewards, feedback, exposures; and delete what LoomDB has no more.

    Killed anywhere, it goes on from where it was. A folder is free for questions between two rounds.
    """
    _feed(store, _place(analytics, store), follow=follow, as_json=as_json)


@app.command()
def rebuild(store: StoreUrl = "sqlite:///loom.db", analytics: Where = None, as_json: AsJson = False) -> None:
    """Make the columns anew from LoomDB, whatever is there now."""
    _feed(store, _place(analytics, store), anew=True, as_json=as_json)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Target folder; it is made if it does not exist.")],
    store: StoreUrl = "sqlite:///loom.db",
    analytics: Where = None,
    as_json: AsJson = False,
) -> None:
    """Write every table as a Parquet file."""
    from loomrl.analytics.question import Limits, open_asking
    from loomrl.analytics.schema import TABLES
    from loomrl.files import write_whole

    files = {}
    with open_asking(_place(analytics, store), Limits(rows=0, timeout_s=3600)) as asking:
        for one in TABLES:
            file = folder / f"{one.name}.parquet"
            write_whole(file, asking.ask_as(f"SELECT * FROM {one.name} FINAL", "Parquet"))
            files[one.name] = str(file)
    emit({"files": files}, as_json=as_json, show=lambda console: console.print("\n".join(files.values())))


def query(  # noqa: PLR0913 - a command with its options
    sql: Annotated[
        str,
        typer.Argument(
            help="One SELECT, or the name of a table or standard question.",
            autocompletion=questions_like,
        ),
    ],
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV with the columns' names.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write all rows to this Parquet file.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="How many rows at most, 0 for all; 1,000 unless it is for a file.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the question may take.")] = 30.0,
    store: StoreUrl = "sqlite:///loom.db",
    analytics: Where = None,
    as_json: AsJson = False,
) -> None:
    """Ask the columns something in SQL, such as "SELECT * FROM versions". Nothing can be changed this way.

    Standard questions: baselines, versions, cohorts, cost, satisfaction. Tables: trajectories, rewards, feedback,
    exposures, and judged (the rewards that hold). `loomrl analytics feed` loads what is new.
    """
    from loomrl.analytics.question import Limits, open_asking, question_of
    from loomrl.errors import ConfigError
    from loomrl.files import write_whole

    if csv + as_json + (parquet is not None) > 1:
        raise ConfigError("query: --json, --csv and --parquet exclude each other.")
    sql = question_of(sql)
    rows = limit if limit is not None else 0 if csv or parquet else 1000
    with open_asking(_place(analytics, store), Limits(rows=rows, timeout_s=timeout)) as asking:
        if parquet is not None:
            write_whole(parquet, asking.ask_as(sql, "Parquet"))
        elif csv:
            sys.stdout.buffer.write(asking.ask_as(sql, "CSVWithNames"))
        else:
            answer = asking.ask(sql)
            emit(_plain(answer), as_json=as_json, show=lambda console: _render(answer, console))


def _place(analytics: str | None, store: str) -> "Place":
    from loomrl.analytics.place import place_of

    return place_of(analytics, store)


def _feed(store: str, place: "Place", *, follow: bool = False, anew: bool = False, as_json: bool) -> None:
    from loomrl.analytics.engine import Engine
    from loomrl.analytics.feeder import nobody
    from loomrl.analytics.feeding import Feeding
    from loomrl.telemetry.progress import progress

    with closing(Engine()) as engine, Feeding(store, place, engine=engine if follow else None) as feeding:
        fed = feeding.round(
            anew=anew, report=lambda waiting: progress("load", waiting) if waiting else nullcontext(nobody)
        )
        _tell(fed, place, as_json=as_json)
        checked = time.monotonic()
        while follow:
            time.sleep(PAUSE_S)
            is_time = time.monotonic() - checked > CHECK_S
            checked = time.monotonic() if is_time else checked
            fed = feeding.round(check=is_time)
            if fed.loaded or fed.deleted:
                _tell(fed, place, as_json=as_json)


def _tell(fed: "Fed", place: "Place", *, as_json: bool) -> None:
    loaded = ", ".join(f"{count:,} {what}" for what, count in fed.loaded.items()) or "nothing new"
    deleted = ", ".join(f"{count:,} {what}" for what, count in fed.deleted.items())
    said = f"{place.name}: loaded {loaded}" + (f"; deleted {deleted}" if deleted else "")
    result = {"place": place.name, **asdict(fed)}
    emit(result, as_json=as_json, show=lambda console: console.print(said, highlight=False, markup=False))


def _plain(answer: "Answer") -> dict[str, Any]:
    """As JSON has it; NaN and infinities are null."""
    rows = [[_json(cell) for cell in row] for row in answer.rows]
    return {"columns": list(answer.columns), "rows": rows, "is_cut": answer.is_cut, "as_of": answer.as_of}


def _json(cell: Any) -> Any:
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, dict):
        return {str(name): _json(value) for name, value in cell.items()}
    if isinstance(cell, list | tuple):
        return [_json(value) for value in cell]
    if isinstance(cell, bytes):
        return cell.hex()
    return cell if cell is None or isinstance(cell, str | int) else str(cell)


def _render(answer: "Answer", console: Console) -> None:
    numbers = answer.numbers
    names = [f"{name}>" if name in numbers else name for name in answer.columns]
    console.print(table("", names, [[_shown(cell) for cell in row] for row in answer.rows]))
    more = (
        f"the first {len(answer.rows):,} rows; --limit 0 for all"
        if answer.is_cut
        else f"{len(answer.rows):,} row{'s' * (len(answer.rows) != 1)}"
    )
    at = datetime.fromtimestamp(answer.as_of)
    print(f"{more}, as of {at:%Y-%m-%d %H:%M:%S}", file=sys.stderr)


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    if isinstance(cell, datetime):
        return f"{cell:%Y-%m-%d %H:%M:%S}"
    return "" if cell is None else str(cell)
