"""The `loomrl` command. Makes sure that its own packages are the ones that will be imported, then hands over."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("experiments", "envs", "algorithms", "cluster")


def main() -> None:
    """Run the command line. The current folder is importable, behind everything installed."""
    trouble = shadowed()
    if trouble:
        sys.exit(f"loomrl: {trouble}")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    importlib.import_module("experiments.cli").main()


def shadowed() -> str | None:
    """What is wrong if another top-level package hides one of ours, and what to do; None if all is well."""
    home = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = find_spec(name)
        places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []
        if home / name in places[:1]:
            continue
        found = str(places[0]) if places else (spec.origin if spec else None)
        if found is None:
            return f"its package {name!r} is missing from {home}. Install LoomRL again."
        return (
            f"its package {name!r} ({home / name}) is hidden by {found}. Rename that one, or keep its folder off "
            "the import path: run `loomrl` rather than `python -m loomrl`, and take the folder out of PYTHONPATH."
        )
    return None


if __name__ == "__main__":
    main()
