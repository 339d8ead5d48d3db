"""`loomrl bench release` measures what it says, on few releases, and draws its picture."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def benched(*words: str) -> str:
    command = [sys.executable, "-m", "loomrl", "bench", "release", *words]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_quick_bench_keeps_the_error_rates_that_peeking_breaks() -> None:
    found = json.loads(benched("--quick", "--json").splitlines()[-1])
    assert found["false_rollback"] <= 0.1
    assert found["missed"] <= 0.15
    assert found["detect_20"] <= 150
    assert found["detect_10"] <= 500
    rates = found["false_rollbacks"]
    assert rates["all six metrics, ramp"]["peeking"] > 0.5
    assert rates["rate 0.3 to 0.9 in a day, shares against it"]["peeking"] > 0.9
    assert found["good"]["promoted"] > 0.5


def test_picture_shows_both_releases_and_their_ends(tmp_path: Path) -> None:
    benched(f"picture={tmp_path}/bounds.svg")
    text = (tmp_path / "bounds.svg").read_text()
    assert text.count('class="ours"') == 2
    assert "peeking rolls back" in text
    assert "ours rolls back" in text
