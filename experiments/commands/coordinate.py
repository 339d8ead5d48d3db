"""`loomrl coordinate`: the loop of an endpoint, from what it served to its next version."""

import getpass
import sys
import time
from typing import Annotated

import typer

from loomrl.experiments.commands.group import DEFAULT, DefaultGroup

app = typer.Typer(
    cls=DefaultGroup,
    help="Have what an endpoint served train its next version: `loomrl coordinate EXPERIMENT`.",
    no_args_is_help=True,
)
Words = Annotated[
    list[str], typer.Argument(metavar="EXPERIMENT [PATH=VALUE]...", help="An experiment of kind loop, then overrides.")
]


@app.command(DEFAULT)
def run(
    words: Words,
    once: Annotated[bool, typer.Option("--once", help="End when there is nothing to do now.")] = False,
) -> None:
    """Coordinate until interrupted. Any number of these may run at once, and each may be killed at any instant."""
    from loomrl.experiments.coordinate import coordinating
    from loomrl.experiments.shipped import resolve_loop
    from loomrl.store import open_store

    plan = resolve_loop(words)
    with open_store(plan.store_url) as db, coordinating(db, plan, say=_say) as coordinator:
        while True:
            done = coordinator.tick()
            if once and not done:
                return
            if not done:
                time.sleep(plan.pace_s)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _who(who: str) -> str:
    return who or getpass.getuser()
