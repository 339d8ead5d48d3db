"""Code quality: what counts as code, how findings become a score, and measuring it in the real sandbox."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from loomrl.config import RewardPipeline
from loomrl.errors import ConfigError
from loomrl.feedback.reward import code as laboratory
from loomrl.feedback.reward.code import CodeSubmission, Inspected, Laboratory, code_quality, lint_mark, submission
from loomrl.feedback.reward.inspection import Inspection
from loomrl.feedback.reward.pipeline import QUALITY
from loomrl.types import End, Failure, Message, Turn
from tests.feedback.support import served
from tests.needs import needs

GOOD = "def add(a, b):\n    return a + b\n"
TESTS = "from solution import add\n\ndef test_sum():\n    assert add(1, 2) == 3\n\nassert add(2, 2) == 5\n"


def block(code: str) -> str:
    return f"Here it is:\n```python\n{code}```\nDone."


def test_code_is_what_the_last_answer_with_any_has_and_tests_are_those_of_others() -> None:
    asked = Turn((Message("user", block(TESTS)), Message("assistant", block("assert True\n"))), block("x = 1\n"))
    better = Turn((Message("user", "```python\nprint('an example')\n```"),), block(GOOD) + block("y = 2\n"))
    found = submission(served("a", turns=(asked, better, Turn((), "You are welcome."))))
    assert found == CodeSubmission(f"{GOOD}\ny = 2\n", TESTS)
    assert submission(served("a", "```python is a fence")) is None
    assert submission(served("a", "```js\nx\n```")) is None
    failed = served("a", block(GOOD), end=End.FAILED, failure=Failure("engine", "Timeout", "late"))
    assert submission(failed) is None


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (Inspected(lines=10, findings={}), 1.0),
        (Inspected(lines=10, findings={"F401": 1}), (0.9 + 1) / 2),
        (Inspected(lines=10, findings={"F821": 1}), (0.5 + 1) / 2),
        (Inspected(lines=10, findings={"S602": 1}), (1 + 0.5) / 2),
        (Inspected(lines=10, findings={"S602": 2, "S307": 7}), (1 + 0.0) / 2),
        (Inspected(lines=10, findings={"invalid-syntax": 3}), 0.0),
        (Inspected(lines=10, findings={}, passed=1, tests=4), (1 + 1 + 0.25) / 3),
        (Inspected(lines=10, passed=3, tests=4, left_out=("no ruff",)), 0.75),
    ],
)
def test_quality_is_the_mean_of_what_was_measured(found: Inspected, value: float) -> None:
    score = code_quality(found)
    assert score.value == pytest.approx(value, abs=1e-6)
    assert score.source == ("test_results" if found.tests else "linter")


def test_nothing_measured_is_no_score_and_many_findings_are_no_less_than_zero() -> None:
    assert code_quality(Inspected(lines=3, left_out=("no ruff",))) is None
    assert lint_mark({"F821": 99}, 10) == 0.0


@pytest.fixture(scope="module")
def lab() -> Laboratory:
    return Laboratory()


@pytest.mark.system
@needs("a sandbox")
def test_code_is_measured_in_the_sandbox(lab: Laboratory) -> None:
    found = lab.inspect(
        {
            "good": CodeSubmission(GOOD, TESTS),
            "evil": CodeSubmission("import subprocess\nx = eval(input())  # noqa\nsubprocess.run(x, shell=True)\n"),
            "broken": CodeSubmission("def f(:\n"),
            "leaves": CodeSubmission("import os\nos._exit(0)\n", "assert True\n"),
            "endless": CodeSubmission("while True:\n    pass\n", "assert True\n"),
            "untested": CodeSubmission(GOOD, "assert is no Python\n"),
            "long": CodeSubmission("x = 1\n" * 20_000),
        }
    )
    assert found["good"] == Inspected(lines=2, findings={}, passed=1, tests=2)
    assert found["evil"] == Inspected(lines=3, findings={"S307": 1, "S602": 1})
    assert "invalid-syntax" in (found["broken"].findings or {})
    assert found["leaves"] == Inspected(lines=2, findings={}, passed=0, tests=1)
    assert found["endless"] == Inspected(lines=2, findings={}, passed=0, tests=1)
    assert found["untested"] == Inspected(lines=2, findings={})
    assert isinstance(found["long"], str)


@pytest.mark.system
@needs("a sandbox")
def test_tests_have_little_time_together(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "TOTAL_S", 0.2)
    slow = CodeSubmission("import time\ntime.sleep(0.3)\n", "assert True\nassert True\n")
    assert lab.inspect({"a": slow})["a"] == Inspected(lines=2, findings={}, passed=1, tests=2)


@pytest.mark.system
@needs("a sandbox")
def test_ruff_may_lie_where_the_sandbox_sees_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The box has a /tmp of its own, and its users may not read the folders of whoever opens it."""
    own = shutil.which("ruff") or Path(sys.executable).with_name("ruff")
    closed = Path(tempfile.mkdtemp(dir="/tmp")) / "bin"
    closed.mkdir(mode=0o700)
    shutil.copy(own, closed / "ruff")
    monkeypatch.setattr(sys, "executable", str(closed / "python"))
    laboratory._ruff.cache_clear()
    found = Laboratory().inspect({"a": CodeSubmission("import os\n")})["a"]
    laboratory._ruff.cache_clear()
    shutil.rmtree(closed.parent)
    assert found == Inspected(lines=1, findings={"F401": 1})


@pytest.mark.system
@needs("a sandbox")
def test_a_ruff_that_does_not_run_has_found_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "LINT", laboratory.LINT.replace(str(laboratory.TOOL), "/tools/missing"))
    found = Laboratory().inspect({"a": CodeSubmission("import os\n")})["a"]
    assert found.findings is None
    assert "missing" in found.left_out[0] or "No such file" in found.left_out[0]


def test_without_a_sandbox_nothing_runs_and_the_score_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConfigError("there is no safe sandbox on this machine")

    monkeypatch.setattr(laboratory, "open_sandbox", refuse)
    inspection = Inspection(RewardPipeline())
    coded = served("a", block(GOOD))
    assert not inspection.takes_time(coded)
    score = inspection.inspect([coded])["a"][QUALITY]
    assert score.value is None
    assert score.applies
    assert "no safe sandbox" in score.reasoning


def test_code_that_is_not_to_be_judged_takes_no_time() -> None:
    inspection = Inspection(RewardPipeline(code="off"))
    coded = served("a", block(GOOD))
    assert not inspection.takes_time(coded)
    assert not inspection.inspect([coded])["a"][QUALITY].applies
    assert inspection.inspect([served("b", "no code")]) == {"b": {}}
