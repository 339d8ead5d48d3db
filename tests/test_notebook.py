"""The blocks of docs/notebook.md run as written there, block after block, in a program of its own."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.test_docs import blocks

CHECKS = """
print("SAID", json.dumps({
    "success": info["success"],
    "types": sorted(results.success_after),
    "made": [results.iterations, results.timesteps],
    "policies": [rollout.extra["policy"] == trainer.policy.id for rollout in rollouts],
    "team": [report.mean_reward, report.task_completion_rate, report.utilisation, report.collaboration_frequency],
}))
"""
"""After the last block."""


def run_cells(cells: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """One after the other, as a notebook does it, in a program of their own."""
    (folder / "cells.json").write_text(json.dumps(cells))
    (folder / "notebook.py").write_text(
        "import ast, asyncio, json, logging\n"
        "logging.getLogger('loomrl.experiments.notebook').setLevel('INFO')\n"
        "logging.basicConfig()\n"
        "async def main():\n"
        "    for cell in json.load(open('cells.json')):\n"
        "        code = compile(cell, 'cell', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)\n"
        "        ran = eval(code, globals())\n"
        "        if ran is not None:\n"
        "            await ran\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    return subprocess.run([sys.executable, "notebook.py"], cwd=folder, capture_output=True, text=True, timeout=580)


@pytest.mark.system
@pytest.mark.timeout(600)
def test_every_block_of_the_guide_runs_as_written(tmp_path: Path) -> None:
    ran = run_cells([*blocks("notebook.md", "python"), f"import json\n{CHECKS}"], tmp_path)
    assert not ran.returncode, ran.stderr[-3000:]
    said = json.loads(ran.stdout.rpartition("SAID ")[2])
    assert said["success"] == 0
    assert said["types"] == ["LogicPuzzle", "Math"]
    assert said["made"] == [2, 32]
    assert said["policies"] == [True] * 4
    mean_reward, *shares = said["team"]
    assert math.isfinite(mean_reward)
    assert all(0 <= share <= 1 for share in shares)
    assert 0 < shares[0] < 1
    assert re.findall(r"update (\d+): success", ran.stderr) == ["2"], "log_interval=2"
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
