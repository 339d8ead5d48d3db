"""YAML files and `path=value` assignments → a resolved Experiment. Later wins."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from loomrl.config import AnyExperiment, experiment_class
from loomrl.errors import ConfigError
from loomrl.schema import Config, Tree, merge, nest


class _Loader(yaml.SafeLoader):
    """YAML 1.1 without its traps: `1e-4` is a number, `on` and `no` are words, a repeated key is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, rule) for tag, rule in rules if tag not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = {str(key) for key in keys if keys.count(key) > 1}
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"repeated key {', '.join(repeated)}", node.start_mark)
        return super().construct_mapping(node, deep=deep)


_FLOAT = re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def load(files: Iterable[str | Path] = (), assignments: Iterable[str] = ()) -> AnyExperiment:
    """Defaults, then each YAML file, then each `path=value`; unknown keys and bad values are a ConfigError."""
    names = [str(file) for file in files]
    given = [read_yaml(name) for name in names] + [nest(parse_assignment(assignment)) for assignment in assignments]
    kinds = [tree["kind"] for tree in given if "kind" in tree]
    experiment = experiment_class(kinds[-1] if kinds else "language")
    tree = experiment.defaults()
    for over in given:
        tree = merge(tree, over)
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


def dump(settings: Config) -> str:
    """A resolved experiment, or another tree, as YAML; loading it again gives an equal one."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
