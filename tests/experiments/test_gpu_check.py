import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loomrl.experiments.gpu.check import PARTS

ROOT = Path(__file__).parent.parent.parent
ABSENT = ("ray", "vllm", "pydantic", "msgspec", "xxhash", "zstandard", "sqlalchemy", "gymnasium")
HIDE = f"""
import sys
from importlib.machinery import PathFinder

class Partly(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {ABSENT} else super().find_spec(name, path, target)

others = [finder for finder in sys.meta_path if "editable" not in str(finder)]
sys.meta_path = [Partly if finder is PathFinder else finder for finder in others]
"""
"""Hides what a Python with little more than torch lacks: our dependencies, and LoomRL as an installed package."""
PLANTED = """
import ctypes, time

def poor(*, cpu, tiny):
    return {"gpu": None, "torch": "2", "cuda": None}

def machine(*, cpu, tiny):
    return {"gpu": "planted"}

def good(*, cpu, tiny):
    return {"figure": 7}

def bad(*, cpu, tiny):
    raise ValueError("out of luck")

def dead(*, cpu, tiny):
    ctypes.string_at(0)

def slow(*, cpu, tiny):
    time.sleep(60)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a folder of links of its own, and a Python that has little more than torch."""
    for name in ("Makefile", "loomrl", "algorithms", "cluster", "envs", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    return tmp_path


@pytest.mark.system
@pytest.mark.parametrize("only", [["learner", "process_group"], pytest.param(list(PARTS), marks=pytest.mark.slow)])
def test_rehearsal_goes_through_its_parts_with_little_more_than_torch(checkout: Path, only: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    words = f"--cpu --tiny --only {' '.join(only)}"
    command = ["make", "-s", "gpu-check", f"PYTHON={sys.executable}", f"ARGS={words}"]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rehearsal"]
    assert found["failed"] == []
    assert list(found["parts"]) == only
    parts = found["parts"]
    ways = parts["learner"]
    assert ways["dense"]["learner_tokens_per_s"] > 100
    assert ways["dense"]["learner_model_tflops_per_s"] > 0
    assert ways["flat"]["gradient_norm"] == pytest.approx(ways["dense"]["gradient_norm"], rel=1e-5)
    assert ways["flat"]["graphs"] == 0
    assert [ways[name]["graphs"] for name in ways if name.startswith("compiled")] == [1, 1, 1]
    assert parts["process_group"]["backend"] == "gloo"
    assert found["machine"]["torch"]
    assert found["date"]
    if "engine" in only:
        for each in (parts["engine"], parts["engine_graphs"], parts["engine_graphs"]["smollm2"]):
            assert each["engine_tokens_per_s"] > 100
            assert each["drift_max"] < 1e-4
            assert each["same_tokens"] == 1
        assert parts["chunked_loss"]["trials"][-1]["peak_mib"] >= parts["chunked_loss"]["logits_mib"]
        assert parts["fsdp"]["fsdp"]["sharded"] == parts["fsdp"]["plain"]["tensors"] > 0
        assert parts["publication"]["verified"] == 6


@pytest.mark.system
def test_a_part_that_fails_keeps_no_other_from_running_and_no_gpu_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    script = """
import sys
from loomrl.experiments.gpu import check as gpu_check
gpu_check.MACHINE = "planted:machine"
gpu_check.PARTS = {name: f"planted:{name}" for name in ("bad", "dead", "slow", "good")}
print(gpu_check.main(["--limit-s", "3"]))
gpu_check.MACHINE = "planted:poor"
print(gpu_check.main([]), file=sys.stderr)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    *report, status = done.stdout.splitlines()
    found = json.loads("\n".join(report))
    assert status == "1"
    assert found["failed"] == ["bad", "dead", "slow"]
    assert found["parts"]["good"]["figure"] == 7
    assert found["parts"]["bad"]["error"] == "ValueError: out of luck"
    assert "exit code -11" in found["parts"]["dead"]["error"]
    assert "no result after 3 s" in found["parts"]["slow"]["error"]
    *_, refusal, status = done.stderr.splitlines()
    assert status == "2"
    assert "no GPU" in refusal
    assert "--cpu --tiny" in refusal


def test_a_checksum_notices_what_changed_and_what_changed_places() -> None:
    import torch

    from loomrl.experiments.gpu.publication import checksum

    flat = torch.arange(1.0, 9.0).to(torch.bfloat16)
    swapped = flat[[1, 0, 2, 3, 4, 5, 6, 7]]
    changed = flat.clone()
    changed[5] += 1
    assert checksum(flat) == checksum(flat.clone())
    assert len({checksum(flat), checksum(swapped), checksum(changed)}) == 3
