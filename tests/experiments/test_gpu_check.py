import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from loomrl.experiments.bench.model import HALF_BILLION, build_model
from loomrl.experiments.gpu import update
from loomrl.experiments.gpu.check import PARTS
from loomrl.experiments.gpu.compute import model_size, planned_learner
from loomrl.experiments.gpu.update import SHARINGS, STEPS

ROOT = Path(__file__).parent.parent.parent
ABSENT = ("ray", "vllm", "pydantic", "msgspec", "zstandard", "sqlalchemy", "gymnasium", "sklearn")
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
    yield {"gpu": None, "torch": "2", "cuda": None}

def machine(*, cpu, tiny):
    yield {"gpu": "planted"}

def good(*, cpu, tiny):
    yield {"figure": 7}

def bad(*, cpu, tiny):
    yield {"half": 1}
    raise ValueError("out of luck")

def dead(*, cpu, tiny):
    yield {"half": 2}
    ctypes.string_at(0)

def slow(*, cpu, tiny):
    yield {"half": 3}
    time.sleep(60)

def late(*, cpu, tiny):
    yield {"figure": 8}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a folder of links of its own, and a Python that has little more than torch."""
    for name in ("Makefile", "loomrl", "algorithms", "cluster", "envs", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    return tmp_path


def figures(part: Callable[..., Iterator[dict[str, Any]]]) -> dict[str, Any]:
    """The figures of a part of the rehearsal, made here."""
    return {name: figure for found in part(cpu=True, tiny=True) for name, figure in found.items()}


def check_updates(ways: dict[str, Any]) -> None:
    for name in ("synchronous", "turns", "streams"):
        assert ways[name]["update_tokens_per_s"] > 10
        assert 0 <= ways[name]["idle"] < 1
        assert (ways[name]["drift"] or 0) < 1e-5
    assert ways["synchronous"]["drift"] > 0
    assert ways["synchronous"]["overlap"] == 0


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process: a fork of this one, which has threads, may hang."""
    monkeypatch.setattr(update, "SHARINGS", {name: way for name, way in SHARINGS.items() if not way.apart})


@pytest.mark.usefixtures("one_thread", "here")
def test_updates_by_every_way_of_sharing_a_device_learn_from_what_the_present_weights_say() -> None:
    check_updates(figures(update.update))


@pytest.mark.usefixtures("one_thread", "here")
def test_engines_without_new_weights_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {name: tensor.clone() for name, tensor in build_model(model_size(cpu=True, tiny=True)).state_dict().items()}
    monkeypatch.setattr(update, "RATE", 1e-2)
    monkeypatch.setattr(update.Learner, "weights", lambda self: first)
    with pytest.raises(ArithmeticError, match="apart over the same weights"):
        figures(update.update)


@pytest.mark.usefixtures("one_thread")
def test_curves_are_apart_where_the_computation_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures(update.curves)["apart"] == {"loss": 0, "mean_logp": 0}
    plain = update.Learner.step
    number = count()
    monkeypatch.setattr(update.Learner, "step", lambda self, samples: plain(self, samples[next(number) // STEPS :]))
    with pytest.raises(ArithmeticError, match="losses are apart"):
        figures(update.curves)


@pytest.mark.slow
@pytest.mark.system
def test_rehearsal_goes_through_all_parts_with_little_more_than_torch(checkout: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = ["make", "-s", "gpu-check", f"PYTHON={sys.executable}", "ARGS=--cpu --tiny"]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rehearsal"]
    assert found["failed"] == []
    parts = found["parts"]
    assert parts.keys() == PARTS.keys()
    assert parts["process_group"]["backend"] == "gloo"
    assert found["machine"]["torch"]
    assert found["date"]
    check_updates(parts["update"])
    assert parts["update"]["processes"]["update_tokens_per_s"] > 10
    for each in (parts["engine"], parts["engine_graphs"], parts["engine_graphs"]["smollm2"]):
        assert each["engine_tokens_per_s"] > 100
        assert each["drift_max"] < 1e-4
        assert each["same_tokens"] == 1
    assert parts["chunked_loss"]["trials"][-1]["peak_mib"] >= parts["chunked_loss"]["logits_mib"]
    assert parts["fsdp"]["fsdp"]["sharded"] == parts["fsdp"]["plain"]["tensors"] > 0
    assert parts["publication"]["verified"] == 6
    learnt = parts["learner"]
    assert learnt["dense"]["learner_tokens_per_s"] > 100
    assert learnt["dense"]["learner_model_tflops_per_s"] > 0
    assert learnt["flat"]["gradient_norm"] == pytest.approx(learnt["dense"]["gradient_norm"], rel=1e-5)
    assert learnt["flat"]["graphs"] == 0
    assert [learnt[name]["graphs"] for name in learnt if name.startswith("compiled")] == [1, 1, 1]
    losses = parts["curves"]["float32"]["loss"]
    assert sorted(losses, reverse=True) == losses
    assert len(losses) == 5


@pytest.mark.system
def test_a_part_that_fails_keeps_its_figures_and_no_other_from_running_and_no_gpu_is_said_at_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    script = """
import sys
from loomrl.experiments.gpu import check as gpu_check
gpu_check.MACHINE = "planted:machine"
gpu_check.PARTS = {name: f"planted:{name}" for name in ("bad", "dead", "good", "slow", "late")}
print(gpu_check.main(["--within-s", "6"]))
gpu_check.MACHINE = "planted:poor"
print(gpu_check.main([]), file=sys.stderr)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    *report, status = done.stdout.splitlines()
    found = json.loads("\n".join(report))
    assert status == "1"
    assert found["failed"] == ["bad", "dead", "slow", "late"]
    assert found["parts"]["good"]["figure"] == 7
    assert [found["parts"][name]["half"] for name in ("bad", "dead", "slow")] == [1, 2, 3]
    assert found["parts"]["bad"]["error"] == "ValueError: out of luck"
    assert "exit code -11" in found["parts"]["dead"]["error"]
    assert "its time was up" in found["parts"]["slow"]["error"]
    assert "not begun" in found["parts"]["late"]["error"]
    *_, refusal, status = done.stderr.splitlines()
    assert status == "2"
    assert "no GPU" in refusal
    assert "--cpu --tiny" in refusal


def test_the_plan_of_a_learner_on_a_gpu_is_near_the_peak_that_one_had() -> None:
    with torch.device("meta"):
        model = build_model(replace(HALF_BILLION, device="meta"))
    parts = planned_learner(model, HALF_BILLION)
    gib = {name: size / 2**30 for name, size in parts.items()}
    numbers = sum(parameter.numel() for parameter in model.parameters()) / 2**30
    assert gib["activations"] == pytest.approx(28.4 - 8 * numbers, rel=0.15)  # weights, gradients, AdamW: bfloat16 then
    assert gib["weights"] + gib["gradients"] + gib["AdamW"] == pytest.approx(18 * numbers)
