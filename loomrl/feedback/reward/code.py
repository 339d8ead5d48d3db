"""Code quality: Python in answers, its tests, and what a linter and a security linter find in it."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loomrl.feedback.reward.score import Score, known
from loomrl.types import End, Trajectory

BLOCK = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
LEAST_TEST = re.compile(r"^(?:def test_\w|assert\b)", re.MULTILINE)
SYNTAX = "invalid-syntax"
LINTED = ("E4", "E7", "E9", "F", "B", "C4", "PLE")
"""Ruff's rules about mistakes; none about taste."""
ERRORS = ("E9", "F5", "F6", "F7", "F82", "PLE")
"""Those that break a program count five times, as in Pylint's formula."""
ERROR_WEIGHT = 5
CRITICAL = (
    *("S102", "S201", "S301", "S302", "S307", "S312", "S321", "S324", "S401", "S402", "S501", "S502", "S504"),
    *("S505", "S506", "S507", "S602", "S604", "S605", "S608", "S609", "S701", "S702"),
)
"""Ruff's rules for what Bandit calls severe: code from data, shells, SQL from text, broken ciphers, no certificates."""


@dataclass(frozen=True, slots=True)
class Submission:
    """The Python of an attempt: the blocks of its last answer that has any, and tests that others gave."""

    code: str
    tests: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What was found. None: it was not measured, and `left_out` says why."""

    lines: int
    findings: Mapping[str, int] | None = None
    """Rule of ruff → how often."""
    passed: int | None = None
    tests: int = 0
    left_out: tuple[str, ...] = ()


def submission(trajectory: Trajectory) -> Submission | None:
    """The code of an attempt; None without any. Tests that the policy wrote itself tell nothing."""
    if trajectory.end is End.FAILED:
        return None
    last = next((turn.action for turn in reversed(trajectory.turns) if "```py" in turn.action), "")
    code = "\n".join(BLOCK.findall(last))
    if not code.strip():
        return None
    given = [m.content for turn in trajectory.turns for m in turn.observation if m.role != "assistant"]
    blocks = [block for text in given if "```py" in text for block in BLOCK.findall(text)]
    return Submission(code, "\n".join(block for block in blocks if LEAST_TEST.search(block)))


def lines_of(code: str) -> int:
    """Lines that are neither empty nor a comment."""
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in code.splitlines())


def code_quality(found: Inspected) -> Score | None:
    """The mean of what was measured; None if nothing was."""
    marks: dict[str, float] = {}
    if found.findings is not None:
        marks["linter"] = lint_mark(found.findings, found.lines) / 10
        if SYNTAX not in found.findings:
            critical = sum(count for rule, count in found.findings.items() if rule in CRITICAL)
            marks["security"] = max(0.0, 1 - 0.5 * critical)
    if found.passed is not None and found.tests:
        marks["tests"] = found.passed / found.tests
    if not marks:
        return None
    told = ", ".join(f"{name} {mark:.2f}" for name, mark in marks.items())
    evidence: dict[str, Any] = {"marks": {name: round(mark, 4) for name, mark in marks.items()}, "lines": found.lines}
    if found.findings:
        evidence["findings"] = dict(found.findings)
    if "tests" in marks:
        evidence["tests"] = [found.passed, found.tests]
    if found.left_out:
        evidence["left_out"] = list(found.left_out)
    source = "test_results" if "tests" in marks else "linter"
    return known(sum(marks.values()) / len(marks), told, source=source, **evidence)  # type: ignore[arg-type]


def lint_mark(findings: Mapping[str, int], lines: int) -> float:
    """From 10, without findings, to 0: Pylint's formula, by lines instead of statements."""
    if SYNTAX in findings:
        return 0.0
    weighed = sum(
        count * (ERROR_WEIGHT if rule.startswith(ERRORS) else 1)
        for rule, count in findings.items()
        if rule not in CRITICAL
    )
    return max(0.0, 10 - 10 * weighed / max(lines, 1))


def read_findings(output: bytes) -> dict[str, int]:
    """Findings by rule, from ruff's lines of JSON."""
    return dict(sorted(Counter(str(json.loads(line)["code"]) for line in output.splitlines() if line.strip()).items()))
