"""Proved attacks in a file beside the environment, which `loomrl envs check` tries from then on."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loomrl.errors import ConfigError
from loomrl.gym.attack.attempt import Finding
from loomrl.gym.base import BaseEnvironment


def file_of(environment: BaseEnvironment) -> Path:
    """The file of proved attacks: beside the environment's module, or in this folder where that is installed."""
    name = f"{environment.name or type(environment).__name__}.attacks.json"
    module = sys.modules[type(environment).__module__]
    place = Path(getattr(module, "__file__", None) or "")
    is_own = "site-packages" not in place.parts and not type(environment).__module__.startswith("loomrl.")
    return place.parent / name if is_own else Path(name)


def keep(findings: Sequence[Finding], file: Path) -> None:
    """Add findings to those on file."""
    known = read(file) if file.exists() else []
    every = [*known, *(each for each in findings if _key(each) not in set(map(_key, known)))]
    file.write_text(json.dumps([each.data() for each in every], indent=1, ensure_ascii=False) + "\n", "utf-8")


def _key(finding: Finding) -> tuple[Any, ...]:
    return finding.family, finding.rule, finding.attack.kind, finding.attack.moves


def read(file: Path) -> list[Finding]:
    """The findings of a file."""
    try:
        return [Finding.read(each) for each in json.loads(file.read_text("utf-8"))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{file}: not the attacks that `loomrl envs attack` writes: {why}.") from error
