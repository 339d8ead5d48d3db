"""New files of a user's own, copied from `loomrl.experiments.scaffold` under the user's names."""

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from loomrl.errors import ConfigError, unknown

HOME = Path(__file__).parent / "scaffold"
PACKAGE = "loomrl.experiments.scaffold"
TRAIN = "loomrl train {path}.yaml"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of new thing: the file that is copied, its suffixes, and what to do next with it."""

    source: str
    suffixes: tuple[str, ...]
    then: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "env": Kind(
        "environment",
        (".py",),
        (
            "loomrl envs check {module}:{Own}Environment",
            "loomrl evaluate \"environments=[{{id: '{module}:{Own}Environment'}}]\" --policy oracle --policy random",
        ),
    ),
    "algorithm": Kind("algorithm", (".py", ".yaml"), (TRAIN,)),
    "agent": Kind(
        "agent", (".py", ".yaml"), ("loomrl evaluate {path}.yaml --policy oracle", "loomrl train {path}.yaml")
    ),
    "experiment": Kind("experiment", (".yaml",), ("loomrl show {path}.yaml", "loomrl train {path}.yaml")),
}


@dataclass(frozen=True, slots=True)
class Made:
    """The new files, and commands to try next."""

    files: tuple[str, ...]
    then: tuple[str, ...]


def make_new(what: str, name: str) -> Made:
    """Make the files of a new thing below the current folder. Nothing that exists is touched."""
    if what not in KINDS:
        raise ConfigError("new " + unknown("what", what, KINDS))
    kind = KINDS[what]
    _check(name)
    path = Path(*name.split("."))
    files = {path.with_suffix(suffix): _text(HOME / f"{kind.source}{suffix}", kind, name) for suffix in kind.suffixes}
    if there := [str(file) for file in files if file.exists()]:
        raise ConfigError(f"{', '.join(there)}: there already. Choose another name than {name!r}.")
    if ".py" in kind.suffixes and "." not in name and _is_taken(name):
        raise ConfigError(f"name={name!r}: there is a module of this name, which yours would hide. Choose another one.")
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    names = {"module": name, "path": str(path), "Own": _camel(name)}
    return Made(tuple(map(str, files)), tuple(command.format(**names) for command in kind.then))


def _check(name: str) -> None:
    parts = name.split(".")
    if not all(part.isidentifier() and part.isascii() and not keyword.iskeyword(part) for part in parts):
        raise ConfigError(
            f"name={name!r:.100} is no name of a module: letters, digits and _, such as my_game or pkg.my_game."
        )
    folder = Path(*parts[:-1])
    if not folder.is_dir():
        raise ConfigError(
            f"name={name!r}: there is no folder {str(folder)!r} here. Make the package first, or leave it out."
        )


def _is_taken(name: str) -> bool:
    return name in sys.stdlib_module_names or find_spec(name) is not None


def _text(source: Path, kind: Kind, name: str) -> str:
    """The source with the user's names in place of ours."""
    text = source.read_text(encoding="utf-8").replace(f"{PACKAGE}.{kind.source}", name)
    last = name.rpartition(".")[2]
    return re.sub(r"\bown\b(?=\.yaml|$)", last, re.sub(r"\bOwn(?=[A-Z])", _camel(name), text), flags=re.MULTILINE)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.rpartition(".")[2].split("_"))
