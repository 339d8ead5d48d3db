"""Experiment files by path, or by the name under which they ship with LoomRL."""

from collections.abc import Sequence
from pathlib import Path

from loomrl.config import Experiment
from loomrl.errors import ConfigError, unknown
from loomrl.load import load

HOME = Path(__file__).parent
DEFAULT = "math"


def names() -> list[str]:
    """The experiments that ship with LoomRL."""
    return sorted(str(file.relative_to(HOME).with_suffix("")) for file in HOME.rglob("*.yaml"))


def resolve(words: Sequence[str]) -> Experiment:
    """The experiment of `FILE… path=value…`; without a file, the default one."""
    files = [word for word in words if "=" not in word]
    assignments = [word for word in words if "=" in word]
    return load([_file(name) for name in files or [DEFAULT]], assignments)


def _file(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    if name in names():
        return HOME / f"{name}.yaml"
    raise ConfigError("no such file, and experiment " + unknown("name", name, names()))
