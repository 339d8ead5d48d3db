"""The blocks of docs/notebook.md run as written there, block after block."""

import ast
import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from loomrl import GymPPOIntegration
from tests.algorithms.language_support import QUIET
from tests.test_docs import blocks

LESS = {"4_096": "256", "_episodes=40": "_episodes=4", "_episodes=20": "_episodes=4", '"steps": 20': '"steps": 2'}


def run_cells(cells: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """One after the other, as a notebook does it, in a program of their own."""
    (folder / "cells.json").write_text(json.dumps(cells))
    (folder / "notebook.py").write_text(
        "import ast, asyncio, json\n"
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


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(600)
def test_every_block_of_the_guide_runs_as_written(tmp_path: Path) -> None:
    ran = run_cells(blocks("notebook.md", "python"), tmp_path)
    assert not ran.returncode, ran.stderr[-3000:]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster", "one_thread")
@QUIET
@pytest.mark.slow
async def test_every_block_runs_on_the_tests_ray_with_few_steps_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "loomrl.experiments.notebook")
    there = vars(main)
    distributed: list[Any] = []

    def run(here: GymPPOIntegration, updates: int, *, listener: Any) -> Any:
        """In place of four processes."""
        listener(1, {})
        distributed.extend([here.gym.enabled_env_types, here.ppo.distributed, here.ppo.compression, updates])
        return there["results"]

    for cell in blocks("notebook.md", "python"):
        with monkeypatch.context() as patch:
            if "NexusWorker" in cell:
                patch.setattr(GymPPOIntegration, "run", run)
            for much, little in LESS.items():
                cell = cell.replace(much, little)
            code = compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            ran = eval(code, there)  # noqa: S307 - of our guide
            if ran is not None:
                await ran
    assert there["info"]["success"] == 0
    assert_trained(there)
    assert [each.id for each in distributed[0]] == ["Math"]
    assert distributed[1:] == [True, "fp16", 1]
    assert re.findall(r"update (\d+): success", caplog.text) == ["2"], "log_interval=2"
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def assert_trained(there: Mapping[str, Any]) -> None:
    results = there["results"]
    assert sorted(results.success_after) == ["LogicPuzzle", "Math"]
    assert (results.iterations, results.timesteps) == (2, 32)
    assert [each.extra["policy"] for each in there["rollouts"]] == [there["trainer"].policy.id] * 4
    report = there["report"]
    assert math.isfinite(report.mean_reward)
    assert 0 < report.task_completion_rate < 1
    assert 0 <= report.utilisation <= 1
    assert 0 <= report.collaboration_frequency <= 1
