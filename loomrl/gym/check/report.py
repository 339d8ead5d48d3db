"""The result of checking an environment, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: kept or not, the finding, and its figures."""

    name: str
    passed: bool
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of all checks of an environment."""

    environment: str
    version: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """True if every promise is kept."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{'ok  ' if check.passed else 'FAIL'}  {check.name:<12} {check.detail}" for check in self.checks]
        verdict = "passes" if self.passed else "does not pass"
        return "\n".join([*lines, f"{self.environment} {self.version} {verdict}."])
