"""The adapter against the real verifiers, which cannot be installed beside vLLM. `make adapters` installs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from adapter_support import python_of_adapters

from loomrl.errors import ConfigError
from loomrl.gym.adapters.verifiers import VerifiersEnvironment

HERE = Path(__file__).parent


@pytest.mark.system
@pytest.mark.parametrize("marked", ["not slow", pytest.param("slow", marks=pytest.mark.slow)], ids=["quick", "slow"])
def test_rows_of_the_real_package_are_played_here(marked):
    python = python_of_adapters()
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marked, str(HERE / "verifiers_real.py")]
    beside = {**os.environ, "PYTHONPATH": str(Path(python).parent.parent / "verifiers")}
    root = HERE.parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, timeout=280, env=beside)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


def test_without_modules_or_library_the_error_says_what_to_do(monkeypatch):
    with pytest.raises(ConfigError, match="Set modules"):
        VerifiersEnvironment()
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.delitem(sys.modules, "loomrl.gym.adapters.taskset", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[verifiers\]'"):
        VerifiersEnvironment({"modules": {"sums": {"module": "sums"}}})
