"""`loomrl verify`: the record of a version, derived again."""

from pathlib import Path
from typing import Annotated

import typer

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import open_face_store
from loomrl.experiments.commands.output import beginning, emit


def verify(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="A bundle (a folder or .tar of `policies export --evidence`), or RUN/12."),
    ],
    share: Annotated[float, typer.Option(help="Share of each link that is derived again; 1 for all.")] = 0.05,
    seed: Annotated[int | None, typer.Option(help="Seed of what is drawn; by default another one each time.")] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The model that the first run began with, if it has a path.")
    ] = None,
) -> None:
    """Derive a version's record again from its evidence: tokens, rewards, updates, evaluations, verdicts.

    Exit status 0: all that was checked holds; 1: something differs, and is named; 2: bad input.
    """
    beginning(f"verify {what:.100}")
    from loomrl.experiments.verify.bundle import open_bundle
    from loomrl.experiments.verify.export import write_evidence
    from loomrl.experiments.verify.verification import render, verify_bundle
    from loomrl.files import scratch

    place = Path(what)
    if not place.exists():
        if place.suffix == ".tar":
            raise ConfigError(f"{what}: no such file. Give a bundle, or a version on record such as RUN/12.")
        place = scratch("evidence") / "bundle"
        with open_face_store() as db:
            write_evidence(what, db, place)
    found = verify_bundle(open_bundle(place), share=share, seed=seed, model=model)
    emit(found.as_dict(), show=lambda console: render(found, console))
    raise typer.Exit(0 if found.holds else 1)
