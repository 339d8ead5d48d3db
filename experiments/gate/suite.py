"""A suite of the gate from its file, or by the name of a shipped one."""

from collections.abc import Sequence

from loomrl.config.suite import SUITES as KINDS
from loomrl.config.suite import Suite
from loomrl.errors import ConfigError, unknown
from loomrl.experiments.shipped import SUITES, find_file, names_in
from loomrl.load import parse_assignments, read_yaml
from loomrl.schema import Tree, merge


def names() -> list[str]:
    """The names of the shipped suites."""
    return names_in(SUITES)


def resolve_suite(name: str, assignments: Sequence[str] = ()) -> Suite:
    """The suite of a file, or the shipped one of this name, with `path=value…` applied."""
    tree = merge(read_yaml(find_file(name, SUITES, what="suite")), parse_assignments(assignments))
    return parse_suite(tree, origin=name)


def parse_suite(tree: Tree, *, origin: str) -> Suite:
    """The suite from plain data, such as that of a verdict's report."""
    kind = str(tree.get("kind", "language"))
    if kind not in KINDS:
        raise ConfigError(f"{origin}: {unknown('kind', kind, list(KINDS))}")
    return KINDS[kind].parse(tree, origin=origin)
