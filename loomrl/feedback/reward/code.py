"""Code quality: Python in answers, its tests, and what a linter and a security linter find in it."""

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from loomrl.errors import ConfigError, SandboxError
from loomrl.feedback.reward.component import ComponentScore, known_score
from loomrl.files import scratch
from loomrl.gym.sandbox import Ending, Limits, SandboxSession, open_sandbox
from loomrl.gym.sandbox.bubblewrap import Bubblewrap
from loomrl.gym.sandbox.contract import inside, readable
from loomrl.gym.sandbox.gvisor import Gvisor
from loomrl.gym.sandbox.session import Sandbox
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
class CodeSubmission:
    """The Python of an attempt: the blocks of its last answer that has any, and tests that others gave."""

    code: str
    tests: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """The measurements. None: not measured; `left_out` says why."""

    lines: int
    findings: Mapping[str, int] | None = None
    """Rule of ruff → how often."""
    passed: int | None = None
    tests: int = 0
    left_out: tuple[str, ...] = ()


def submission(trajectory: Trajectory) -> CodeSubmission | None:
    """The code of an attempt; None without any. Tests that the policy wrote itself tell nothing."""
    if trajectory.end is End.FAILED:
        return None
    last = next((turn.action for turn in reversed(trajectory.turns) if "```py" in turn.action), "")
    code = "\n".join(BLOCK.findall(last))
    if not code.strip():
        return None
    given = [m.content for turn in trajectory.turns for m in turn.observation if m.role != "assistant"]
    blocks = [block for text in given if "```py" in text for block in BLOCK.findall(text)]
    return CodeSubmission(code, "\n".join(block for block in blocks if LEAST_TEST.search(block)))


def lines_of(code: str) -> int:
    """Lines that are neither empty nor a comment."""
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in code.splitlines())


def code_quality(found: Inspected) -> ComponentScore | None:
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
    return known_score(sum(marks.values()) / len(marks), told, source=source, **evidence)  # type: ignore[arg-type]


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


LIMITS = Limits(wall_s=10.0, cpu_s=2, memory_mb=512, processes=32, output_bytes=4 << 20, scratch_mb=16)
LONGEST = 100_000
"""Characters of code that are measured."""
MOST_TESTS = 50
TOTAL_S = 10.0
"""Seconds for all tests of a submission; those that come later have failed."""
FLOOD = "more findings than fit into the output"
TOOL = inside(Path("ruff"))
LINT = f"""
import os
rules = {",".join((*LINTED, *CRITICAL))!r}
arguments = ["check", "--isolated", "--no-cache", "--ignore-noqa", "--select", rules]
arguments += ["--output-format", "json-lines", "--stdin-filename", "code.py", "-"]
try:
    os.execv("{TOOL}", ["ruff", *arguments])
except OSError as error:
    os.write(2, str(error).encode())
    os._exit(127)  # Python itself would exit with 1, which is ruff's status where it found something
"""
UNITS = """
import ast
def parted(tests):
    body = ast.parse(tests).body
    def is_test(node):
        if isinstance(node, ast.FunctionDef):
            return node.name.startswith("test_") and not (node.args.args or node.args.posonlyargs)
        return isinstance(node, ast.Assert)
    return [node for node in body if not is_test(node)], [node for node in body if is_test(node)]
"""
COUNT = UNITS + "import json, sys\nprint(len(parted(json.load(sys.stdin)['tests'])[1]))\n"
TEST = f"""{UNITS}
def run(node, names):
    exec(compile(ast.Module([node], []), "tests.py", "exec"), names)
def main():
    import json, sys
    asked = json.load(sys.stdin)
    shared, units = parted(asked["tests"])
    names = {{"__name__": "code"}}
    exec(compile(asked["code"], "code.py", "exec"), names)
    for node in shared:
        try:
            run(node, names)
        except ImportError:
            pass  # of the module in which the tests expect the code: its names are here already
    unit = units[asked["unit"]]
    run(unit, names)
    if isinstance(unit, ast.FunctionDef):
        names[unit.name]()
    print(asked["nonce"])
main()
"""


class Laboratory:
    """Measures submissions, many in one box; what cannot be measured says why."""

    def __init__(self) -> None:
        self.refusal = ""
        """Why nothing can be measured here; empty where it can."""
        try:
            self._sandbox = open_sandbox()
        except ConfigError as error:
            self.refusal = f"no sandbox: {error}"
            return
        ruff = _ruff()
        self._has_ruff = ruff is not None
        if ruff is not None:
            self._sandbox = _with_tool(self._sandbox, ruff)

    def inspect(self, submissions: Mapping[str, CodeSubmission]) -> dict[str, Inspected | str]:
        """By the keys of the submissions: what was found, or why nothing was measured."""
        if self.refusal:
            return dict.fromkeys(submissions, self.refusal)
        return asyncio.run(self._inspect(submissions)) if submissions else {}

    async def _inspect(self, submissions: Mapping[str, CodeSubmission]) -> dict[str, Inspected | str]:
        found: dict[str, Inspected | str] = {}
        async with self._sandbox.session(limits=LIMITS) as session:
            for key, one in submissions.items():
                try:
                    found[key] = await self._inspected(session, one)
                except SandboxError as error:
                    found[key] = f"the sandbox failed: {error!s:.300}"
        return found

    async def _inspected(self, session: SandboxSession, one: CodeSubmission) -> Inspected | str:
        if len(one.code) + len(one.tests) > LONGEST:
            return f"{len(one.code) + len(one.tests)} characters of code and tests, and {LONGEST} are measured at most"
        left_out: list[str] = []
        findings = None
        if not self._has_ruff:
            left_out.append("linter and security: ruff is not installed (pip install ruff)")
        else:
            findings = await self._lint(session, one.code, left_out)
        passed, tests = await _run_tests(session, one)
        return Inspected(
            lines=lines_of(one.code), findings=findings, passed=passed, tests=tests, left_out=tuple(left_out)
        )

    async def _lint(self, session: SandboxSession, code: str, left_out: list[str]) -> dict[str, int] | None:
        text = code.encode("utf-8", "replace")
        done = await session.run(LINT, text)
        if done.ending is Ending.EXITED and done.status in (0, 1):
            return read_findings(done.output)
        said = done.errors.decode(errors="replace")[-200:].strip()
        why = FLOOD if done.ending is Ending.OVERFLOW else f"ruff {done.ending} with {done.status}: {said}"
        left_out.append(f"linter and security: {why}")
        return None


async def _run_tests(session: SandboxSession, one: CodeSubmission) -> tuple[int | None, int]:
    """Tests that passed, and all: each in a process of its own. None where there are no tests."""
    if not one.tests:
        return None, 0
    asked = {"tests": one.tests}
    counted = await session.run(COUNT, json.dumps(asked).encode())
    if counted.ending is not Ending.EXITED or counted.status or not re.fullmatch(rb"\d{1,6}\n", counted.output):
        return None, 0  # they are no Python, which is not the policy's fault
    count = min(int(counted.output), MOST_TESTS)
    passed = 0
    left_s = TOTAL_S
    for unit in range(count):
        if left_s > 0:
            passes, wall_s = await _passes(session, one, unit)
            passed = passed + passes
            left_s = left_s - wall_s
    return (passed, count) if count else (None, 0)


async def _passes(session: SandboxSession, one: CodeSubmission, unit: int) -> tuple[bool, float]:
    """The result of a test and its seconds."""
    nonce = secrets.token_hex(16)
    asked = {"tests": one.tests, "code": one.code, "unit": unit, "nonce": nonce}
    done = await session.run(TEST, json.dumps(asked).encode())
    is_whole = done.output.count(nonce.encode()) == 1 and done.output.endswith(f"{nonce}\n".encode())
    return done.ending is Ending.EXITED and done.status == 0 and is_whole, done.wall_s


@cache
def _ruff() -> Path | None:
    """Where the sandbox's own users can read it: where root's folders are closed to them, that is a copy."""
    beside = Path(sys.executable).with_name("ruff")
    found = str(beside) if beside.is_file() else shutil.which("ruff")
    if found is None or readable(Path(found).resolve(), for_others=os.geteuid() == 0):
        return None if found is None else Path(found).resolve()
    folder = scratch("tools")
    folder.chmod(0o711)
    copy = Path(shutil.copyfile(found, folder / "ruff"))
    copy.chmod(0o555)
    return copy


def _with_tool(sandbox: Sandbox, tool: Path) -> Sandbox:
    """The same sandbox, proved already, in which one more program may be read and run, with its libraries."""
    said = subprocess.run(["ldd", tool], capture_output=True, text=True, check=False).stdout
    needed = [Path(word).resolve() for word in said.split() if word.startswith("/")]
    boxes = sandbox.boxes
    assert isinstance(boxes, Bubblewrap | Gvisor), "there is no other kind"
    own = boxes.interpreter
    libraries = tuple(dict.fromkeys((*own.libraries, *needed)))
    return Sandbox(replace(boxes, interpreter=replace(own, libraries=libraries, tools=(tool,))))
