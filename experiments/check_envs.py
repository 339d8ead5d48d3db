"""The checker over several environments, a few at a time."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from loomrl.config.placement import PER_CORE
from loomrl.errors import ConfigError, RegistryError
from loomrl.gym.catalogue import make
from loomrl.gym.check.probe import CheckReport, EnvironmentCheck
from loomrl.gym.check.run import check_environment
from loomrl.gym.task_mixture import resolve_id


@dataclass(frozen=True, slots=True)
class Checked:
    """The results; `left_out` lists environments with missing requirements."""

    reports: tuple[CheckReport, ...]
    left_out: Mapping[str, str]
    seconds: float

    @property
    def passed(self) -> bool:
        """True if every checked environment keeps its contract."""
        return all(report.passed for report in self.reports)


def check_all(
    ids: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    *,
    jobs: int = 1,
    may_lack: bool = False,
    share: float = 1.0,
) -> Checked:
    """Check these environments; one that cannot be opened is an error, or left out where it `may_lack` something.

    `share` is how much is played.
    """
    most = PER_CORE * (os.cpu_count() or 1)
    if jobs > most:
        raise ConfigError(f"--jobs={jobs}: this machine has cores for {most}, {PER_CORE} to each. Ask for fewer.")
    began = time.monotonic()
    left_out: dict[str, str] = {}
    opened = []
    for id in ids:
        try:
            make(name := resolve_id(id), settings)
        except (ConfigError, RegistryError) as error:
            if not may_lack:
                raise
            left_out[id] = str(error)
        else:
            opened.append(name)
    with ThreadPoolExecutor(jobs) as pool:
        reports = tuple(pool.map(partial(_check, settings=settings, share=share), opened))
    return Checked(reports, left_out, time.monotonic() - began)


def _check(name: str, *, settings: Mapping[str, Any] | None, share: float) -> CheckReport:
    def tell(check: EnvironmentCheck) -> None:
        print(f"{name} {check.name}: {'ok' if check.passed else 'not kept'}", file=sys.stderr, flush=True)

    return check_environment(name, settings, share=share, watch=tell)
