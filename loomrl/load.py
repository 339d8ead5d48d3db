"""YAML files and `path=value` assignments → a resolved Experiment. Later wins."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from loomrl.config import AnyExperiment, AnyRoot, experiment_class, require_training
from loomrl.errors import ConfigError
from loomrl.schema import Config, Tree, merge, nest

MOST_VALUES = 100_000
"""Maximum values of one text. Aliases repeat their target, so a few lines could exhaust the memory."""


class _Loader(yaml.SafeLoader):
    """YAML 1.1 without its traps: `1e-4` is a number, `on` and `no` are words, a repeated key is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, rule) for tag, rule in rules if tag not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def get_single_node(self) -> yaml.Node | None:
        root: yaml.Node | None = super().get_single_node()
        if root is not None:
            _count(root, {})
        return root

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = {str(key) for key in keys if keys.count(key) > 1}
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"repeated key {', '.join(repeated)}", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _count(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """Values in a node, counting aliases each time; an error if they are endless or too many."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node not in known:
        known[node] = 0  # it has begun
        inside = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        known[node] = 1 + sum(_count(part, known) for part in inside)
    if known[node] == 0:
        raise yaml.constructor.ConstructorError(None, None, "an alias within what it names", node.start_mark)
    if known[node] > MOST_VALUES:
        said = f"with its aliases this holds over {MOST_VALUES:,} values"
        raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
    return known[node]


_FLOAT = re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def load(files: Iterable[str | Path] = (), assignments: Iterable[str] = ()) -> AnyExperiment:
    """Defaults, then each YAML file, then each `path=value`; unknown keys and bad values are a ConfigError."""
    return require_training(load_any(files, assignments))


def load_any(
    files: Iterable[str | Path] = (), assignments: Iterable[str] = (), *, complete: Callable[[Tree], Tree] | None = None
) -> AnyRoot:
    """Load an experiment, also one that trains nothing by itself. `complete` gets the tree of settings."""
    names = [str(file) for file in files]
    given = [read_yaml(name) for name in names] + [nest(parse_assignment(assignment)) for assignment in assignments]
    kinds = [tree["kind"] for tree in given if "kind" in tree]
    experiment = experiment_class(kinds[-1] if kinds else "language")
    tree = experiment.defaults()
    for over in given:
        tree = merge(tree, over)
    if not any("environments" in over for over in given):
        tree.pop("environments", None)  # the default depends on the algorithm
    if complete is not None:
        tree = complete(tree)
    return experiment.parse(tree, origin=", ".join(names) or "settings")


def read_yaml(file: str | Path) -> Tree:
    """The mapping in a YAML file; an empty file is an empty mapping."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}. Is the path right?") from None
    tree = parse_yaml(text, origin=str(file)) or {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{file}: a mapping of settings is needed at the top, got {type(tree).__name__}.")
    return tree


def parse_yaml(text: str, *, origin: str) -> Any:
    """The value of a YAML text; a syntax error names line and column."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not valid YAML: {' '.join(str(error).split())}") from None


def parse_assignment(assignment: str) -> Tree:
    """`hub.lease_s=30` as `{"hub.lease_s": 30}`; the value is YAML, so `[1, 2]`, `null` and `1e-4` work."""
    path, sign, text = assignment.partition("=")
    if not sign or not path:
        raise ConfigError(f"{assignment!r}: an assignment is path=value, such as hub.lease_s=30.")
    return {path: parse_yaml(text, origin=assignment)}


def parse_assignments(assignments: Iterable[str]) -> Tree:
    """All of them as one tree; later wins."""
    return nest({path: value for each in assignments for path, value in parse_assignment(each).items()})


def dump(settings: Config) -> str:
    """A resolved experiment, or another tree, as YAML; loading it gives an equal one."""
    return to_yaml(settings.plain)


def to_yaml(tree: Tree) -> str:
    """Plain data as YAML, in its order."""
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
