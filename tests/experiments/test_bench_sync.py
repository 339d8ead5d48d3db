"""`loomrl bench sync` measures what it says, on little work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]


def test_quick_bench_has_every_figure() -> None:
    command = [sys.executable, "-m", "loomrl", "bench", "sync", "--quick", "--json"]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert 0 < found["nexus_bytes_ratio"] < 0.1
    assert all(0 < changed < 1 for changed in found["changed"].values())
    assert found["nexus_s"] > 0 < found["full_s"]
    assert 0 < found["check_overhead"] < 0.5
    assert {*found["publish_s"]} == {"seal", "load", "probe"}
