import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quick_benchmark_prints_every_figure() -> None:
    command = [sys.executable, "-m", "loomrl", "bench", "language", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["engine_tokens_per_s"] > 100
    assert figures["learner_tokens_per_s"] > 100
    assert 0 <= figures["idle_share"] < 1
    assert sum(figures["phase_s"].values()) > 0
