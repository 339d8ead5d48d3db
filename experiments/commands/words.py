"""What a shell may complete: names of experiments, and files of them."""

from pathlib import Path


def experiments_like(incomplete: str) -> list[str]:
    """Shipped experiments and YAML files that begin so; a folder to go on in."""
    from loomrl.experiments.shipped import names

    folder, _, _ = incomplete.rpartition("/")
    here = Path(folder or ".")
    try:
        found = sorted(here.iterdir())
    except OSError:
        found = []
    files = [f"{one}/" if one.is_dir() else str(one) for one in found if one.is_dir() or one.suffix == ".yaml"]
    return [one for one in (*names(), *files) if one.startswith(incomplete) and not one.startswith(".")]


def new_kinds(incomplete: str) -> list[str]:
    """What `loomrl new` makes."""
    from loomrl.experiments.new import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def questions_like(incomplete: str) -> list[str]:
    """Tables and standard questions."""
    from loomrl.analytics.schema import TABLES, VIEWS

    return [name for name in (*VIEWS, *(one.name for one in TABLES)) if name.startswith(incomplete)]
