"""`loomrl query`: questions in SQL about what is on record, over columns that `loomrl query load` keeps."""

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

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import RUN, face, verb
from loomrl.experiments.commands.output import emit, table

if TYPE_CHECKING:
    from loomrl.analytics.feeder import Fed
    from loomrl.analytics.place import StoreLocation
    from loomrl.analytics.question import QueryAnswer

app = verb('Ask in SQL about what is on record: `loomrl query "SELECT …"`, after `loomrl query load`.')
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


def _complete_question(incomplete: str) -> list[str]:
    """Tables and standard questions that begin with these letters."""
    from loomrl.analytics.schema import TABLES, VIEWS

    return [name for name in (*VIEWS, *(one.name for one in TABLES)) if name.startswith(incomplete)]


@app.command()
def load(
    follow: Annotated[bool, typer.Option("--follow", help="Keep loading new rows until interrupted.")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Make the columns again from LoomDB.")] = False,
    analytics: Where = None,
) -> None:
    """Load new trajectories, rewards, feedback and exposures into the columns; delete what LoomDB has deleted.

    If it is killed, the next one continues from there. A folder is free for questions between two rounds.
    """
    if follow and anew:
        raise ConfigError("--anew ends when the columns are made: leave out --follow.")
    _load(face().store, _place(analytics), follow=follow, anew=anew)


@app.command(RUN)
def query(
    sql: Annotated[
        str,
        typer.Argument(
            help="One SELECT, or the name of a table or standard question.",
            autocompletion=_complete_question,
        ),
    ],
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV with the columns' names.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write all rows to this Parquet file.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="How many rows at most, 0 for all; 1,000 unless it is for a file.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the question may take.")] = 30.0,
    analytics: Where = None,
) -> None:
    """Ask in SQL, such as "SELECT * FROM versions". Nothing can be changed this way.

    Standard questions: baselines, versions, cohorts, cost, satisfaction. Tables: trajectories, rewards, feedback,
    exposures, and judged (the rewards that hold). `loomrl query load` loads new rows.
    """
    from loomrl.analytics.question import QueryLimits, open_asking, question_of
    from loomrl.files import write_whole

    if csv + face().as_json + (parquet is not None) > 1:
        raise ConfigError("query: --json, --csv and --parquet exclude each other.")
    sql = question_of(sql)
    rows = limit if limit is not None else 0 if csv or parquet else 1000
    with open_asking(_place(analytics), QueryLimits(rows=rows, timeout_s=timeout)) as asking:
        if parquet is not None:
            write_whole(parquet, asking.ask_as(sql, "Parquet"))
        elif csv:
            sys.stdout.buffer.write(asking.ask_as(sql, "CSVWithNames"))
        else:
            answer = asking.ask(sql)
            emit(_plain(answer), show=lambda console: _render(answer, console))


def _place(analytics: str | None) -> "StoreLocation":
    from loomrl.analytics.place import place_of

    return place_of(analytics, face().store)


def _load(store: str, place: "StoreLocation", *, follow: bool = False, anew: bool = False) -> None:
    from loomrl.analytics.engine import ChdbEngine
    from loomrl.analytics.feeder import ignore_progress
    from loomrl.analytics.feeding import Feeding
    from loomrl.telemetry.progress import progress

    with closing(ChdbEngine()) as engine, Feeding(store, place, engine=engine if follow else None) as feeding:
        fed = feeding.round(
            anew=anew, report=lambda waiting: progress("load", waiting) if waiting else nullcontext(ignore_progress)
        )
        _print_load(fed, place)
        checked = time.monotonic()
        while follow:
            time.sleep(PAUSE_S)
            is_time = time.monotonic() - checked > CHECK_S
            checked = time.monotonic() if is_time else checked
            fed = feeding.round(check=is_time)
            if fed.loaded or fed.deleted:
                _print_load(fed, place)


def _print_load(fed: "Fed", place: "StoreLocation") -> None:
    loaded = ", ".join(f"{count:,} {what}" for what, count in fed.loaded.items()) or "nothing new"
    deleted = ", ".join(f"{count:,} {what}" for what, count in fed.deleted.items())
    said = f"{place.name}: loaded {loaded}" + (f"; deleted {deleted}" if deleted else "")
    result = {"place": place.name, **asdict(fed)}
    emit(result, said)


def _plain(answer: "QueryAnswer") -> dict[str, Any]:
    """The value as JSON; NaN and infinities are null."""
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


def _render(answer: "QueryAnswer", console: Console) -> None:
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
