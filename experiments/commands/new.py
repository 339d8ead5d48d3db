"""`loomrl new`: files of a user's own to begin with."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from loomrl.experiments.commands.output import AsJson, emit
from loomrl.experiments.commands.words import new_kinds


def new(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="env, algorithm, agent or experiment.", autocompletion=new_kinds)
    ],
    name: Annotated[str, typer.Argument(help="Of the module, such as my_game, or package.my_game in a package here.")],
    as_json: AsJson = False,
) -> None:
    """Make a new environment, algorithm, agent or experiment here that passes its checks at once."""
    from loomrl.experiments.new import make_new

    made = make_new(what, name)

    def render(console: Console) -> None:
        console.print(f"Made {', '.join(made.files)}. Try:\n", highlight=False)
        for command in made.then:
            console.print(f"    {command}", highlight=False, markup=False)

    emit(asdict(made), as_json=as_json, show=render)
