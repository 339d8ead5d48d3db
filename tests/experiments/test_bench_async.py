import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quick_benchmark_prints_every_figure() -> None:
    command = [sys.executable, "-m", "loomrl", "bench", "async", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["async_vs_sync"] > 0
    assert 0 <= figures["max_staleness_seen"] <= 1
    assert 0 <= figures["overlap"] < 1
    assert figures["threads"]["async"] == figures["threads"]["sync"] == 1
