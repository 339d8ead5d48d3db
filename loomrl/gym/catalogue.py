"""Environments by id: those registered in this process and those that installed packages announce.

A package announces its environments under the entry-point group `loomrl.environments`: `Name = "package.module:Class"`.
Nothing is imported before it is used.
"""

import importlib.metadata
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from loomrl.errors import ConfigError, RegistryError, unknown
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.namespace import GROUP, expose
from loomrl.gym.synchronous import asynchronous
from loomrl.named import named

_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_VERSION = re.compile(r"\d+(\.\d+)*")


class EnvironmentType(StrEnum):
    """The environments shipped with LoomRL, by id."""

    CODE = "Code"
    DIALOGUE = "Dialogue"
    GAME = "Game"
    LANGUAGE = "Language"
    LOGIC_PUZZLE = "LogicPuzzle"
    MATH = "Math"
    MEMORY_BUFFER = "MemoryBuffer"
    META_REASONING = "MetaReasoning"
    MULTIMODAL = "Multimodal"
    TOOLCALL = "ToolCall"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRegistration:
    """An environment's location, and settings that its registration adds to the class. Picklable."""

    name: str
    entry_point: str
    version: str | None = None
    """None: the version declared by the class."""
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    """Mean reward at which it counts as solved."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _ENTRY_POINT.fullmatch(self.entry_point):
            raise RegistryError(f"entry_point={self.entry_point!r}: 'package.module:Class' is needed.")
        if not re.fullmatch(r"[A-Za-z][\w-]*", self.name):
            raise RegistryError(f"name={self.name!r}: a letter, then letters, digits, _ and - are needed.")
        if self.version is not None:
            _order(self.version)

    def all_settings(self) -> dict[str, Any]:
        """The settings that the class gets unless its user overrides them."""
        limit = {} if self.max_episode_steps is None else {"max_steps": self.max_episode_steps}
        return limit | dict(self.settings)


@dataclass(frozen=True, slots=True)
class FoundEnvironment:
    """An importable environment: its class and version."""

    registration: EnvironmentRegistration
    cls: type[BaseEnvironment]
    version: str

    @property
    def id(self) -> str:
        """`Name@version`."""
        return f"{self.registration.name}@{self.version}"


_registered: dict[str, dict[str, EnvironmentRegistration]] = {}
"""By name and version. The only process-wide state here: a script registers once, then uses ids."""


def register_environment(
    *,
    name: str,
    entry_point: str,
    version: str,
    max_episode_steps: int | None = None,
    reward_threshold: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> EnvironmentRegistration:
    """Make an environment known in this process, by `name`, `name@version` and to Gymnasium. Imports nothing of it.

    Registering it again is fine; the same version with anything else is a RegistryError.
    """
    registration = EnvironmentRegistration(
        name=name,
        entry_point=entry_point,
        version=version,
        max_episode_steps=max_episode_steps,
        reward_threshold=reward_threshold,
        settings=dict(settings or {}),
    )
    register(registration)
    return registration


def register(registration: EnvironmentRegistration) -> None:
    """Register an environment that was registered in another process."""
    name = registration.name
    version = registration.version
    if version is None:
        raise RegistryError(f"name={name!r}: a registration needs a version, such as '1.0.0'.")
    announced = _entry_points().get(name)
    if announced is not None and registration == EnvironmentRegistration(
        name=name, entry_point=announced, version=version
    ):
        return
    if announced is not None:
        raise RegistryError(f"name={name!r} is taken by an installed package ({announced}). Choose another name.")
    known = _registered.setdefault(name, {}).setdefault(version, registration)
    if known != registration:
        raise RegistryError(
            f"{name}@{version} is registered already, as {known}, now as {registration}. Give it a new version number."
        )
    expose(name, version)


def registrations() -> list[EnvironmentRegistration]:
    """The environments registered in this process, for another process to `register`."""
    return [registration for versions in _registered.values() for registration in versions.values()]


def list_announced(ids: Iterable[str]) -> list[EnvironmentRegistration]:
    """Registrations for those of these environments that installed packages announce, for machines without the
    packages.
    """
    shared = sorted({id.partition("@")[0] for id in ids} & _entry_points().keys())
    return [
        EnvironmentRegistration(name=name, entry_point=_entry_points()[name], version=find(name).version)
        for name in shared
    ]


def names() -> list[str]:
    """All known environments, registered here or announced by an installed package."""
    return sorted(_registered.keys() | _entry_points().keys())


def find(id: str) -> FoundEnvironment:
    """The environment of an id: `Math` is the newest version, `Math@1.0.0` exactly that one."""
    name, _, version = id.partition("@")
    versions = _registered.get(name, {})
    if name in _entry_points():
        found = _load(EnvironmentRegistration(name=name, entry_point=_entry_points()[name]))
        versions = {found.version: found.registration}
    if not versions:
        raise RegistryError(unknown("environment", name, names()) + _beside(name))
    chosen = version or max(versions, key=_order)
    if chosen not in versions:
        what = unknown(f"{name} version", chosen, versions)
        raise RegistryError(f"{what} Install the release that has it, or ask for {name!r}.")
    return _load(versions[chosen])


def _beside(name: str) -> str:
    """A sentence about an environment in a file of this name in the present folder."""
    file = Path(f"{name}.py")
    if not (name.isidentifier() and file.is_file()):
        return ""
    cls = re.search(r"^class (\w+)\(\w*Environment\)", file.read_text(errors="replace"), re.MULTILINE)
    return f" {file} is here: write {name}:{cls.group(1) if cls else 'CLASS'}."


def make(id: str, settings: Mapping[str, Any] | None = None) -> BaseEnvironment:
    """A new environment. `settings` override those of its registration, which override the class's defaults."""
    found = find(str(id))
    environment = found.cls(found.registration.all_settings() | dict(settings or {}))
    vars(environment).update(name=found.registration.name, version=found.version)
    return environment


def _load(registration: EnvironmentRegistration) -> FoundEnvironment:
    where = f"environment {registration.name!r}, entry_point={registration.entry_point!r}"
    try:
        cls = named(registration.entry_point, what=f"environment {registration.name!r}, entry_point")
    except ConfigError as error:
        raise RegistryError(str(error)) from error
    except Exception as error:  # the boundary: a stranger's module may raise anything
        raise RegistryError(f"{where}: importing it raised {type(error).__name__}: {error}.") from error
    if not (inspect.isclass(cls) and issubclass(cls, BaseEnvironment)):
        raise RegistryError(f"{where}: {cls!r:.100} is no environment. Derive it from loomrl.gym.base.BaseEnvironment.")
    if not cls.families:
        raise RegistryError(f"{where}: the class has no families. Name one at least: families = ('default',).")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise RegistryError(f"{where}: the class lacks {missing}. Define what is missing.")
    version = registration.version or cls.version
    _order(version)
    # Plain functions are adapted here, so that pool, actors and checker need not know of them.
    return FoundEnvironment(registration, asynchronous(cls, registration.reward_threshold), version)


@cache
def _entry_points() -> dict[str, str]:
    return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}


def _order(version: str) -> tuple[int, ...]:
    if not _VERSION.fullmatch(version):
        raise RegistryError(f"version={version!r}: whole numbers joined by dots are needed, such as '1.2.0'.")
    return tuple(map(int, version.split(".")))
