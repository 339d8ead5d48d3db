import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.system
@pytest.mark.slow
def test_controller_is_measured_with_more_actors_than_processes(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "loomrl", "bench", "scale", "--quick", "--json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert [row["actors"] for row in figures["rows"]] == [1, 4]
    assert figures["controller_share_256"] is None  # --quick does not go that far
    for row in figures["rows"]:
        assert row["attempts"] == 8 * row["actors"]
        spent = [row[part] for part in ("controller_s", "hub_s", "publish_s", "rollout_s", "learn_s")]
        assert min(spent) > 0
        assert row["iteration_s"] == pytest.approx(sum(spent), abs=0.005)
        assert row["controller_share"] == pytest.approx(row["controller_s"] / row["iteration_s"], rel=0.02)
        assert row["controller_share_balanced"] >= row["controller_share"]
