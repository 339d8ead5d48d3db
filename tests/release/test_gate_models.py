from pathlib import Path

import pytest

from loomrl.experiments.bench.served import save_language
from loomrl.experiments.gate.judge import judge_version
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.store import open_store
from loomrl.store.verdicts import VerdictOutcome


@pytest.mark.slow
def test_untrained_model_is_refused_by_its_benchmark_alone(tmp_path: Path) -> None:
    save_language(tmp_path / "model")
    words = ["benchmarks.0.episodes=20", "max_tokens=8", "safety.secrets=null", "safety.prompt=null", "cost.answers=5"]
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        refused = judge_version(str(tmp_path / "model"), None, resolve_suite("language_tiny", words), db)
    states = {check["name"]: check["state"] for check in refused.report["checks"]}
    assert refused.outcome is VerdictOutcome.REFUSED
    assert [name for name, state in states.items() if state == "failed"] == ["benchmark Math"]
    assert (states["safety.toxicity"], states["cost.latency"]) == ("passed", "passed")
